"""A real Grid Engine on the hosts of hosts.py: sge_qmaster on the first, sge_execd on each.

    with Hosts(4) as hosts:
        engine = GridEngine(hosts)
        engine.start()
        job = engine.submit("copper launch ...", nodes=4)

All its files are in the hosts' own /run or in their shared directory, and its processes end with the hosts.
"""

import os
import pathlib
import time

from copper import CopperError, wait_until

SECONDS_MAX = 60
LOOK_SECONDS = 0.2
PROGRAMS = pathlib.Path("/usr/lib/gridengine")
DEFAULTS = pathlib.Path("/usr/share/gridengine")
SLOTS = 2  # of each host; a job gets all of them

BOOTSTRAP = """admin_user root
default_domain none
ignore_fqdn false
spooling_method classic
spooling_lib libspoolc
spooling_params {directory}/default/common;{directory}/spool
binary_path {programs}
qmaster_spool_dir {directory}/spool
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""

# control_slaves: qrsh -inherit, with which an MPI launcher reaches the other hosts, is for such environments.
PARALLEL_ENVIRONMENT = """pe_name mpi
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule {slots}
control_slaves TRUE
job_is_first_task FALSE
urgency_slots min
accounting_summary FALSE
qsort_args NONE
"""

HOST_GROUP = "group_name @allhosts\nhostlist {hosts}\n"
SCHEDULER = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
QUEUE = {"slots": str(SLOTS), "pe_list": "mpi", "hostlist": "@allhosts", "load_thresholds": "NONE", "shell": "/bin/bash",
         "shell_start_mode": "unix_behavior"}


def why_no_grid_engine():
    """The reason why Grid Engine cannot be run here, or None."""
    for program in ("sge_qmaster", "sge_execd", "qsub", "qrsh", "qconf"):
        if not (PROGRAMS / program).exists():
            return f"{program} is not installed"
    return None


class GridEngine:
    def __init__(self, hosts):
        self.hosts = hosts
        self.directory = f"{hosts.directory}/gridengine"
        self.environment = {"SGE_ROOT": self.directory, "SGE_CELL": "default", "SGE_QMASTER_PORT": "6444",
                            "SGE_EXECD_PORT": "6445", "PATH": f"{hosts.environment()['PATH']}:{PROGRAMS}",
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                            **hosts.tcp_only(remote_shell="")}

    def start(self):
        common = pathlib.Path(self.directory, "default", "common")
        common.mkdir(parents=True)
        first = self.hosts.names[0]
        (common / "act_qmaster").write_text(first + "\n", encoding="utf-8")
        (common / "bootstrap").write_text(BOOTSTRAP.format(directory=self.directory, programs=PROGRAMS), encoding="utf-8")
        arch = self.check(str(DEFAULTS / "util" / "arch")).strip()
        for name in ("bin", "utilbin", "lib"):  # where the launchers look
            os.mkdir(f"{self.directory}/{name}")
            os.symlink(PROGRAMS, f"{self.directory}/{name}/{arch}")
        os.symlink(DEFAULTS / "util", f"{self.directory}/util")
        self.initialize()
        self.check("sge_qmaster")  # returns before it listens
        wait_until(self.has_master, SECONDS_MAX, "an answer of sge_qmaster")
        for host in self.hosts.names:
            self.check("qconf", "-ah", host)
            self.check("qconf", "-as", host)
        self.add("-Ahgrp", HOST_GROUP.format(hosts=" ".join(self.hosts.names)))
        self.add("-Ap", PARALLEL_ENVIRONMENT.format(slots=SLOTS))
        self.add("-Aq", edited(self.check("qconf", "-sq"), {"qname": "all.q", **QUEUE}))
        self.add("-Msconf", edited(self.check("qconf", "-ssconf"), SCHEDULER))
        for host in self.hosts.names:
            self.hosts.check(host, "sge_execd", **self.environment)
        wait_until(self.all_serve, SECONDS_MAX, "all hosts")

    def has_master(self):
        return self.hosts.run(self.hosts.names[0], "qconf", "-sconf", **self.environment).returncode == 0

    def all_serve(self):
        """Whether each host has told its load."""
        time.sleep(LOOK_SECONDS)
        lines = self.check("qhost").splitlines()
        return all(any(line.startswith(f"{host} ") and " - " not in line for line in lines) for host in self.hosts.names)

    def submit(self, script, nodes, *options):
        """Starts a job and returns its number. output() returns what the job prints."""
        # Grid Engine takes HOME from the passwords.
        self.write("job.sh", f"#!/bin/bash\nexport HOME={self.hosts.directory}\n{script}")
        return self.check("qsub", "-terse", "-V", "-wd", self.directory, "-pe", "mpi", str(nodes * SLOTS), "-j", "y", "-o",
                          f"{self.directory}/job-$JOB_ID.out", *options, f"{self.directory}/job.sh").strip()

    def output(self, job):
        path = pathlib.Path(f"{self.directory}/job-{job}.out")
        return path.read_text(errors="replace") if path.exists() else ""

    def is_there(self, job):
        """Whether the job waits, runs or is being ended."""
        time.sleep(LOOK_SECONDS)
        return any(line.split()[0] == job for line in self.check("qstat").splitlines()[2:])

    def initialize(self):
        """The spooled configuration, as /usr/share/gridengine/scripts/init_cluster does it."""
        configuration = edited((DEFAULTS / "default-configuration").read_text(encoding="utf-8"),
                               {"execd_spool_dir": "/run/gridengine", "min_uid": "0", "min_gid": "0", "mailer": "/bin/true"})
        self.write("configuration", configuration)
        os.mkdir(f"{self.directory}/spool")
        where = f"{self.directory}/default/common;{self.directory}/spool"
        self.check("spoolinit", "classic", "libspoolc", where, "init")
        for words in (("configuration", f"{self.directory}/configuration"),
                      ("complexes", str(DEFAULTS / "util/resources/centry")),
                      ("usersets", str(DEFAULTS / "util/resources/usersets")), ("managers", "root")):
            self.check("spooldefaults", *words)

    def add(self, option, text):
        self.write("added", text)
        self.check("qconf", option, f"{self.directory}/added")

    def write(self, name, text):
        pathlib.Path(self.directory, name).write_text(text, encoding="utf-8")

    def check(self, *words):
        return self.hosts.check(self.hosts.names[0], *words, **self.environment)


def edited(text, changes):
    """Lines of names and values, some of them with other values."""
    lines = []
    for line in text.splitlines():
        name = line.split(maxsplit=1)[0] if line.strip() else ""
        lines.append(f"{name} {changes[name]}" if name in changes else line)
    return "\n".join(lines) + "\n"
