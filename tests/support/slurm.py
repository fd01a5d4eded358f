"""A real Slurm on the hosts of hosts.py: munge and a slurmd on each, slurmctld on the first.

    with Hosts(4) as hosts:
        slurm = Slurm(hosts)
        slurm.start()
        job = slurm.submit("srun hostname", nodes=4)

All its files are in the hosts' own /run or in their shared directory, and its processes end with the hosts. There is
nothing else to undo, but for the cgroups (`proctrack`): SIGKILL to a test leaves their empty directories.
"""

import os
import pathlib
import secrets
import shutil
import subprocess
import time

from copper import REPOSITORY, CopperError, wait_until

SECONDS_MAX = 60
LOOK_SECONDS = 0.2

# KillWait: how long scancel waits before SIGKILL.
CONFIGURATION = """
ClusterName=copper
SlurmctldHost={first}
SlurmUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation={directory}/state
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd-%n.log
ProctrackType=proctrack/{proctrack}
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=pmix
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=120
SchedulerParameters=bf_interval=1
KillWait=2
PlugStackConfig={directory}/plugstack.conf
NodeName={nodes} CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes={nodes} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
"""

# Slurm on each host has a cgroup of its own below this one.
CGROUPS = pathlib.Path("/sys/fs/cgroup/freezer")
CGROUP_MOUNT = "/run/cgroup"


def best_proctrack():
    """What most sites have, if the machine can."""
    return "cgroup" if os.access(CGROUPS / "tasks", os.W_OK) else "pgid"


def why_no_slurm(plugin=False):
    """The reason why Slurm, or a plugin of it, cannot be run here, or None."""
    if plugin and not os.path.exists("/usr/include/slurm/spank.h"):
        return "libslurm-dev is not installed"
    for program in ("munged", "slurmctld", "slurmd", "srun", "sbatch", "scancel"):
        if not shutil.which(program, path="/usr/sbin:/usr/bin"):
            return f"{program} is not installed"
    return None


PRIVATE_TMP = """
JobContainerType=job_container/tmpfs
PrologFlags=Contain
"""


SCRIPTS = """
Prolog={site}/slurm-prolog.sh
Epilog={site}/slurm-epilog.sh
TaskProlog={site}/slurm-task-prolog.sh
"""


class Slurm:
    def __init__(self, hosts, cpus=2, proctrack=None, private_tmp=False, plugin_trees=None):
        """`proctrack`: how Slurm knows the processes of a step, which it kills when the step's task has ended. cgroup: all; pgid:
        those of the task's process group. Default: cgroup if the machine can. `private_tmp`: each job has its own /tmp and
        /dev/shm on each node, which the prologue and the epilogue do not see. `plugin_trees`: the site has Copper's plugin instead
        of its scripts, for these trees."""
        self.hosts = hosts
        self.cpus = cpus
        self.proctrack = proctrack or best_proctrack()
        self.private_tmp = private_tmp
        self.plugin_trees = plugin_trees
        self.directory = f"{hosts.directory}/slurm"
        self.cgroup = CGROUPS / pathlib.Path(hosts.directory).name
        self.environment = {"SLURM_CONF": f"{self.directory}/slurm.conf", "COPPER_LAUNCHER_ARGS": ""}

    def start(self):
        os.makedirs(f"{self.directory}/state")
        site = self.install_scripts()
        self.write("slurm.conf", CONFIGURATION.format(
            first=self.hosts.names[0], directory=self.directory, nodes=",".join(self.hosts.names), cpus=self.cpus,
            proctrack=self.proctrack) + ("" if self.plugin_trees else SCRIPTS.format(site=site)) +
            (PRIVATE_TMP if self.private_tmp else ""))
        self.write("job_container.conf", "AutoBasePath=true\nBasePath=/run/containers\n")
        self.write("cgroup.conf", f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={CGROUP_MOUNT}\n")
        if self.proctrack == "cgroup":
            self.hosts.after.callback(self.remove_cgroups)
            for host in self.hosts.names:
                self.make_cgroup(host)
        self.write("plugstack.conf", f"optional {self.build_plugin(site)} trees={':'.join(self.plugin_trees)} site={site}\n"
                   if self.plugin_trees else "")
        self.write("munge.key", secrets.token_hex(64))
        os.chmod(f"{self.directory}/munge.key", 0o600)
        for host in self.hosts.names:
            if self.plugin_trees:
                self.hosts.check(host, "mount", "--make-rshared", "/")  # as systemd does
            self.start_munge(host)
        try:
            # Each daemon returns once it runs in the background.
            self.hosts.check(self.hosts.names[0], "slurmctld", **self.environment)
            for host in self.hosts.names:
                self.hosts.check(host, "slurmd", **self.environment)
            self.wait_until_idle()
        except CopperError as error:
            raise CopperError(f"{error}\n{self.logs()}") from error

    def write(self, name, text):
        pathlib.Path(self.directory, name).write_text(text, encoding="utf-8")

    def install_scripts(self):
        """Where `cmake --install` has them, relative to the hosts' bin. Returns their folder."""
        return shutil.copytree(REPOSITORY / "tools" / "job" / "site", f"{self.hosts.directory}/libexec/copper/site")

    def build_plugin(self, site):
        """As its first lines say."""
        plugin = f"{self.directory}/copper.so"
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O2", "-o", plugin, f"{site}/slurm-spank.c"], check=True)
        return plugin

    def start_munge(self, host):
        # Not in /run itself: munge requires directories that only its user can write to.
        self.hosts.check(host, "sh", "-ec", f"mkdir -m 755 -p /run/munge /run/slurmd; exec munged --force "
                         f"--key-file={self.directory}/munge.key --seed-file=/run/munge/seed "
                         "--socket=/run/munge/munge.socket.2 --pid-file=/run/munge/munged.pid "
                         "--log-file=/run/munge/munged.log")

    def make_cgroup(self, host):
        (self.cgroup / host).mkdir(parents=True)
        self.hosts.check(host, "sh", "-ec", f"mkdir -p {CGROUP_MOUNT}/freezer; "
                                            f"mount --bind {self.cgroup / host} {CGROUP_MOUNT}/freezer")

    def remove_cgroups(self):
        for directory, _, _ in os.walk(self.cgroup, topdown=False):
            os.rmdir(directory)

    def submit(self, script, nodes, *options, by=(), **variables):
        """Starts a job and returns its number. output() returns what the job prints. `by`: words in front of sbatch."""
        self.write("job.sh", f"#!/bin/bash\n{script}")
        return self.hosts.check(self.hosts.names[0], *by, "sbatch", "--parsable", f"--nodes={nodes}", "--ntasks-per-node=2",
                                f"--output={self.directory}/job-%j.out", *options, f"{self.directory}/job.sh",
                                **self.environment, **variables).strip()

    def output(self, job):
        path = pathlib.Path(f"{self.directory}/job-{job}.out")
        return path.read_text(errors="replace") if path.exists() else ""

    def is_there(self, job):
        """Whether the job waits, runs or is being ended."""
        done = self.ask("squeue", "-h", "-o", "%A")
        return done.returncode != 0 or job in done.stdout.split()

    def end_jobs(self):
        """Returns when the epilogue has run on all nodes."""
        for user in ("root", "nobody"):
            self.hosts.check(self.hosts.names[0], "scancel", f"--user={user}", **self.environment)
        self.wait_until_idle()

    def wait_until_idle(self):
        wanted = {host: "idle" for host in self.hosts.names}
        try:
            wait_until(lambda: self.states() == wanted, SECONDS_MAX, "all nodes idle")
        except CopperError as error:
            raise CopperError(f"{error}: {self.states()}, {sorted(self.hosts.traces())}\n{self.logs()}") from None

    def states(self):
        """The state of each node, as {host: state}."""
        return dict(line.split() for line in self.ask("sinfo", "-h", "-N", "-o", "%N %T").stdout.splitlines())

    def ask(self, *words):
        """Asks the controller, which may not run yet. Sleeps first, so that polling leaves the processors to the job."""
        time.sleep(LOOK_SECONDS)
        return self.hosts.run(self.hosts.names[0], *words, **self.environment)

    def logs(self):
        text = ""
        for log in sorted(pathlib.Path(self.directory).glob("*.log")):
            text += f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}"
        return text
