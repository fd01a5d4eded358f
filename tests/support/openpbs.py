"""A real OpenPBS on the hosts of hosts.py: server, scheduler and communication on the first, a MoM on each.

    with Hosts(4, ssh=True) as hosts:
        pbs = OpenPbs(hosts)
        pbs.start()
        job = pbs.submit("copper launch ...", "-l", "select=4", "-l", "place=scatter")

It is the one in /opt/pbs, or is unpacked from ARCHIVE for the hosts alone. Each host has its own PBS_HOME, /var/tmp and
changes of /etc, in memory; all processes end with the hosts. Root and nobody may submit jobs.
"""

import os
import pathlib
import shutil
import subprocess
import time

from copper import REPOSITORY, wait_until
from pages import block_with

SECONDS_MAX = 90
LOOK_SECONDS = 0.2
PROGRAMS = pathlib.Path("/opt/pbs")
ARCHIVE = REPOSITORY.parent / "shared/schedulers/openpbs-debian12-amd64.tar.xz"
CPUS = 8  # of each host, as PBS counts

# The directory that the hosts share is in /var/tmp. /etc/hosts and /etc/passwd are those of hosts.py. /dev/fuse has its usual mode,
# unlike on some machines.
PRIVATE = """mount --bind {directory} /mnt
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
mkdir {directory}
mount --move /mnt {directory}
mount -t tmpfs -o mode=755 tmpfs /var/spool
mkdir /var/spool/etc /var/spool/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/var/spool/etc,workdir=/var/spool/work /etc
for name in hosts passwd; do
    mount --bind {directory}/$name /etc/$name
done
mount -t tmpfs tmpfs /opt
mkdir /opt/copper /opt/pbs
ln -s {directory} /opt/copper/current
mount --bind {directory}/opt/pbs /opt/pbs
cat >/etc/pbs.conf <<END
PBS_EXEC=/opt/pbs
PBS_HOME=/var/spool/pbs
PBS_SERVER={first}
PBS_START_SERVER=$1
PBS_START_SCHED=$1
PBS_START_COMM=$1
PBS_START_MOM=1
END
mknod -m 666 /var/spool/fuse c 10 229
mount --bind /var/spool/fuse /dev/fuse
mkdir /run/postgresql
chown postgres /run/postgresql
version=$(/opt/pbs/libexec/pbs_postinstall --version)
if [ $1 = 1 ]; then
    /opt/pbs/libexec/pbs_postinstall server "${{version##* }}" /opt/pbs /var/spool/pbs postgres sameconf
else
    /opt/pbs/libexec/pbs_postinstall execution "${{version##* }}" /opt/pbs /var/spool/pbs sameconf
fi
cp {directory}/pbs/environment /var/spool/pbs/pbs_environment
printf '$clienthost {first}\\n$usecp *:/ /\\n' >/var/spool/pbs/mom_priv/config
/opt/pbs/libexec/pbs_init.d start
"""

# kill_delay: how long the MoM waits between SIGTERM and SIGKILL. The default of 10 s may be too short for `copper stop` on a busy
# machine.
SETTINGS = ["set queue workq kill_delay = 90", "set server acl_roots = root@*", "set server flatuid = true",
            "set server job_history_enable = true"]

# Without the requests that PBS gets, and without its copies of hooks.
LOGS = """cd /var/spool/pbs
for log in $(ls server_logs/* mom_logs/* 2>/dev/null); do
    echo "--- $0: $log"
    grep -v ';Req;;\\|;copy hook-related' "$log" | tail -c 3000
done"""


def why_no_openpbs():
    """The reason why OpenPBS cannot be run here, or None."""
    if not (PROGRAMS / "sbin/pbs_server").exists() and not ARCHIVE.exists():
        return "OpenPBS is not installed"
    for package, pattern in (("postgresql", "lib/postgresql/*/bin/initdb"), ("libpython3.11", "lib/*/libpython3.11.so.1.0"),
                             ("libical3", "lib/*/libical.so.3"), ("libcjson1", "lib/*/libcjson.so.1")):
        if not list(pathlib.Path("/usr").glob(pattern)):
            return f"OpenPBS needs the package {package} (tools/setup openpbs)"
    return None


class OpenPbs:
    def __init__(self, hosts):
        self.hosts = hosts
        self.directory = f"{hosts.directory}/pbs"
        # Its names are also those of Grid Engine. It has an mpiexec, too.
        own, others = hosts.environment()["PATH"].split(":", 1)
        self.environment = {"PATH": f"{own}:{PROGRAMS}/bin:{others}"}
        self.of_jobs = {**self.environment, **hosts.tcp_only(remote_shell=""), "COPPER_PROFILE": "off",
                        "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def start(self):
        os.mkdir(self.directory)
        os.chmod(self.directory, 0o1777)  # of all users' output
        variables = [f"{name}={value}\n" for name, value in self.of_jobs.items() if value]
        pathlib.Path(self.directory, "environment").write_text("".join(variables), encoding="utf-8")
        # The profile of the system may set PATH for login shells, such as that of a job.
        for home in ("", "nobody/"):
            self.hosts.write(f"{home}.profile", f"export PATH={self.of_jobs['PATH']}\n")
        if PROGRAMS.exists():
            shutil.copytree(PROGRAMS, self.hosts.directory + str(PROGRAMS), symlinks=True)
        else:
            subprocess.run(["tar", "-xpJf", ARCHIVE, "-C", self.hosts.directory, "./opt/pbs"], check=True)
        first = self.hosts.names[0]
        script = "set -e\n" + PRIVATE.format(directory=self.hosts.directory, first=first)
        for host in self.hosts.names:
            self.hosts.check(host, "bash", "-c", script, "bash", "1" if host == first else "0", **self.environment)
        # Where `cmake --install` has them, relative to the hosts' bin.
        shutil.copytree(REPOSITORY / "tools" / "job" / "site", f"{self.hosts.directory}/libexec/copper/site")
        settings = SETTINGS + [f"create node {host}" for host in self.hosts.names[1:]]  # the first one is there
        settings += [f"set node {host} resources_available.ncpus = {CPUS}" for host in self.hosts.names]
        for setting in settings:
            self.check("qmgr", "-c", setting)
        self.check("bash", "-ec", block_with("docs/site.md", "pbs-hook.py"))
        wait_until(self.all_free, SECONDS_MAX, "all hosts")

    def all_free(self):
        time.sleep(LOOK_SECONDS)
        return self.check("pbsnodes", "-a").count("state = free\n") == len(self.hosts.names)

    def submit(self, script, *options, by=()):
        """Starts a job and returns its id. output() returns what the job prints. `by`: words in front of qsub."""
        pathlib.Path(self.directory, "job.sh").write_text(script, encoding="utf-8")
        return self.check(*by, "qsub", "-j", "oe", "-o", self.directory, *options, f"{self.directory}/job.sh").strip()

    def output(self, job):
        path = pathlib.Path(f"{self.directory}/{job}.OU")
        return path.read_text(errors="replace") if path.exists() else ""

    def is_there(self, job):
        """Whether the job waits, runs or is being ended."""
        time.sleep(LOOK_SECONDS)
        return self.hosts.run(self.hosts.names[0], "qstat", job, **self.environment).returncode == 0

    def logs(self):
        """Of the server and of each MoM."""
        return "".join(self.hosts.run(host, "sh", "-c", LOGS, host).stdout for host in self.hosts.names)

    def check(self, *words):
        return self.hosts.check(self.hosts.names[0], *words, **self.environment)
