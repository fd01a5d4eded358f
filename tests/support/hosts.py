"""Several hosts on this machine, made of namespaces: each with its own network, name and /tmp.

    with Hosts(4) as hosts:
        hosts.run("cn1", "hostname")

The hosts are cn0, cn1, ... on a network of their own, joined by a bridge in another network namespace, so the
machine's network does not change. They share one process namespace. When its first process dies, the kernel ends all its processes,
the network and the mounts, so nothing is left in any case. Needs root.

    Hosts(2, rate="1gbit")

limits the speed of each port of a host (units of tc(8)).

    Hosts(2, ports=2)

gives each host two ports, in networks of their own.

    Hosts(2, ssh=True)

runs an SSH server on each host, which lets in root and nobody. Otherwise a script stands in for ssh.

    Hosts(2, over=unpack)

calls unpack(directory), which fills the directory with files that all hosts shall have: /opt in it comes over this machine's /opt.
What the hosts write there goes to their shared directory.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from copper import NOBODY, CopperError, copper_program, daemon_program, is_built_with_mpich, state_of, wait_until

NETWORK = "10.77"  # then the number of the port, and of the host
COMMAND_SECONDS_MAX = 180

# mpirun and mpiexec call this instead of ssh: AGENT [-x] HOST WORD ... Joins the words for a shell, like ssh.
AGENT = """#!/bin/sh
[ "$1" != -x ] || shift
host=$1
shift
if ! read -r pid <"{directory}/pids/$host"; then
    echo "ssh: connect to host $host port 22: No route to host" >&2
    exit 255
fi
# Like ssh, without the caller's environment, but with the options of sanitizers: copperd may be built with them.
exec env -i $(env | grep SAN_OPTIONS=) HOME="$HOME" PATH="$PATH" USER="$USER" nsenter -t "$pid" -m -u -n -- /bin/sh -c "$*"
"""

# The kernel reaps dead children of the first process, because it ignores SIGCHLD. (dash does not pass on an ignored
# SIGCHLD.)
FIRST_PROCESS = "exec env --ignore-signal=CHLD sleep infinity"

# Otherwise the new mount namespace would keep this machine's mirrors alive.
FORGET_MIRRORS = "awk '/ - fuse.copper /{print $5}' /proc/self/mountinfo | xargs -r umount -l"

# As overlays, which end with the hosts.
COME_OVER = """set -e
cd {directory}/over
for name in *; do
    mkdir -p ../written/$name ../work/$name
    mount -t overlay -o "lowerdir=$PWD/$name:/$name,upperdir=$PWD/../written/$name,workdir=$PWD/../work/$name" overlay /$name
done
"""

# Each host has its own /tmp and /run. -xdev: not into mirrors. Slurm keeps the credentials of past jobs. Copper leaves the
# directories that others could otherwise make, empty and closed.
TRACES = """awk '{print "mount", $5, $9}' /proc/self/mountinfo
find /tmp /run -xdev -mindepth 1 ! -name 'cred_state*' \\
    ! '(' '(' -path /tmp/root -o -path '/tmp/copper-0*' ')' -type d -empty -user 0 -perm 0700 ')' -printf 'file %p\\n'
ss -Hltunp | awk '{print "port", $1, $5, $7}'"""


# How the tests' users find the other hosts' servers: root, whose home is the shared directory, and nobody.
SSH_FILES = """set -e
mkdir -m 700 {directory}/.ssh
cd {directory}/.ssh
ssh-keygen -q -t ed25519 -N '' -f id_ed25519
cp id_ed25519.pub authorized_keys
dropbearkey -t ed25519 -f host_key | awk '/^ssh-/ {{print "{names} " $1, $2}}' >known_hosts
mkdir {directory}/nobody
cp -r . {directory}/nobody/.ssh
chown -R {nobody}:{nobody} {directory}/nobody
sed -e 's,^root:.*,root:x:0:0:root:{directory}:/bin/sh,' -e 's,^nobody:.*,nobody:x:{nobody}:{nobody}:nobody:{directory}/nobody:/bin/sh,' \\
    /etc/passwd >{directory}/passwd
"""
SSH_SERVER = "mount --bind {directory}/passwd /etc/passwd; dropbear -s -r {directory}/.ssh/host_key"


def why_no_hosts(ssh=False):
    """The reason why hosts cannot be made here, or None."""
    if os.geteuid() != 0:
        return "namespaces need root"
    programs = ["ip", "unshare", "nsenter", launcher_program()] + (["ssh", "ssh-keygen", "dropbear"] if ssh else [])
    for program in programs:
        if not shutil.which(program):
            return f"{program} is not installed"
    return None


def launcher_program():
    """Of the MPI that copperd is built with."""
    return "mpiexec.mpich" if is_built_with_mpich() else "mpirun"


class Hosts:
    def __init__(self, count, rate=None, ssh=False, over=None, ports=1):
        self.rate = rate
        self.ports = ports
        self.over = over
        self.ssh = ssh
        self.names = [f"cn{number}" for number in range(count)]
        self.pids = {}  # as this process sees them
        self.switch = None  # a process in the network namespace of the bridge
        self.first = None
        self.first_parent = None
        self.directory = None
        self.after = contextlib.ExitStack()  # what is left to do when all processes have ended

    def __enter__(self):
        try:
            self.make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def make(self):
        # Not in /tmp, because each host has its own. The hosts share this directory and the system.
        self.directory = tempfile.mkdtemp(prefix="copper-hosts-", dir="/var/tmp")
        os.chmod(self.directory, 0o755)
        os.mkdir(f"{self.directory}/pids")
        os.mkdir(f"{self.directory}/bin")
        for program in (copper_program(), daemon_program()):
            shutil.copy2(program, f"{self.directory}/bin")
        if is_built_with_mpich():  # as its module does, in front of another MPI
            os.symlink(shutil.which(launcher_program()), f"{self.directory}/bin/mpiexec")
            os.symlink(shutil.which("hydra_pmi_proxy"), f"{self.directory}/bin/hydra_pmi_proxy")
        self.write("hosts", "127.0.0.1 localhost\n" + "".join(
            f"{NETWORK}.0.{number + 1} {name}\n" for number, name in enumerate([*self.names, "absent"])))
        self.write("agent", AGENT.format(directory=self.directory))
        os.chmod(f"{self.directory}/agent", 0o755)
        self.first_parent = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child=KILL", "--pid", "--mount",
             "--propagation", "private", "--mount-proc", "sh", "-c", f"{FORGET_MIRRORS}; {FIRST_PROCESS}"], stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self.first = self.child_of(self.first_parent.pid, "sleep")
        if self.over:
            self.put_over()
        self.switch = self.hold("--net")
        self.ip(self.switch, "link", "add", "bridge", "type", "bridge")
        self.ip(self.switch, "link", "set", "bridge", "up")
        for number, name in enumerate(self.names):
            self.add_host(number, name)
        if self.ssh:
            files = SSH_FILES.format(directory=self.directory, names=",".join(self.names), nobody=NOBODY)
            subprocess.run(["sh", "-c", files], check=True, stderr=subprocess.DEVNULL)
            for name in self.names:
                self.check(name, "sh", "-ec", SSH_SERVER.format(directory=self.directory))

    def put_over(self):
        over = f"{self.directory}/over"
        os.mkdir(over)
        self.over(over)
        if os.listdir(over):
            script = COME_OVER.format(directory=self.directory)
            subprocess.run(["nsenter", "-t", str(self.first), "-m", "sh", "-c", script], check=True)

    def add_port(self, pid, number, port):
        device, other_end = f"eth{port}", f"port{port}.{number}"
        self.ip(self.switch, "link", "add", other_end, "type", "veth", "peer", "name", device, "netns", str(pid))
        self.ip(self.switch, "link", "set", other_end, "master", "bridge", "up")
        self.ip(pid, "addr", "add", f"{NETWORK}.{port}.{number + 1}/24", "dev", device)
        self.ip(pid, "link", "set", device, "up")
        if self.rate:
            subprocess.run(["nsenter", "-t", str(pid), "-n", "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", self.rate,
                            "burst", "256kb", "latency", "20ms"], check=True)

    def add_host(self, number, name):
        pid = self.hold("--net", "--uts", "--mount", "--propagation", "private")
        self.pids[name] = pid
        self.ip(pid, "link", "set", "lo", "up")
        for port in range(self.ports):
            self.add_port(pid, number, port)
        # The process's id as the other hosts see it, for the agent.
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            inner = next(line.split()[-1] for line in file if line.startswith("NSpid:"))
        self.write(f"pids/{name}", inner + "\n")
        self.check(name, "sh", "-ec", f"hostname {name}; mount --bind {self.directory}/hosts /etc/hosts; "
                                      "mount -t tmpfs -o mode=1777 tmpfs /tmp; mount -t tmpfs tmpfs /run")

    def hold(self, *kinds):
        """A process that keeps new namespaces of these kinds; dies with the first process."""
        keeper = subprocess.Popen(["nsenter", "-t", str(self.first), "-p", "-m", "unshare", *kinds, "--fork", "sh",
                                   "-c", FIRST_PROCESS], stdin=subprocess.DEVNULL)
        unshare = self.child_of(keeper.pid, "unshare")
        return self.child_of(unshare, "sleep")

    @staticmethod
    def child_of(pid, name):
        """Waits until the child of this process runs the program `name`."""
        found = []

        def look():
            children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
            found[:] = [int(child) for child in children
                        if pathlib.Path(f"/proc/{child}/comm").read_text(encoding="utf-8").strip() == name]
            return found
        wait_until(look, 20, f"the start of {name}")
        return found[0]

    @staticmethod
    def ip(pid, *words):
        # Enter only the network: "netns PID" looks into this machine's /proc.
        subprocess.run(["nsenter", "-t", str(pid), "-n", "ip", *words], check=True)

    def write(self, name, text):
        with open(f"{self.directory}/{name}", "w", encoding="utf-8") as file:
            file.write(text)

    def inside(self, host, *words):
        """The command that runs these words in a host."""
        return ["nsenter", "-t", str(self.pids[host]), "-m", "-u", "-n", "-p", "--", *map(str, words)]

    def environment(self):
        environment = {"PATH": f"{self.directory}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                       "HOME": self.directory, "USER": "root", "LC_ALL": "C"}
        environment["COPPER_PROFILE"] = "off"  # what one job uses must not help the next one
        environment |= self.tcp_only("" if self.ssh else f"{self.directory}/agent")
        for key in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "LSAN_OPTIONS"):
            if key in os.environ:
                environment[key] = os.environ[key]
        return environment

    @staticmethod
    def tcp_only(remote_shell):
        """Variables for launchers and MPI: only TCP between the hosts, which this program reaches (empty: the launcher's own).
        They share a kernel, so MPI would take them for one machine: UCX then aborts a daemon that reads the memory of one that
        dies."""
        if is_built_with_mpich():
            agent = f"-launcher ssh -launcher-exec {remote_shell}"
            network = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
        else:
            agent = f"--mca plm_rsh_agent {remote_shell}"
            network = {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "eth0", "OMPI_MCA_oob_tcp_if_include": "eth0"}
        return network | {"COPPER_LAUNCHER_ARGS": agent if remote_shell else "", "COPPER_KEEP_ENV": ":".join(network)}

    def run(self, host, *words, seconds=COMMAND_SECONDS_MAX, **more):
        return subprocess.run(self.inside(host, *words), capture_output=True, text=True, timeout=seconds,
                              stdin=subprocess.DEVNULL, cwd="/", env=self.environment() | more, check=False)

    def check(self, host, *words, **more):
        done = self.run(host, *words, **more)
        if done.returncode != 0:
            raise CopperError(f"{host}: {' '.join(map(str, words))}: exit code {done.returncode}\n"
                              f"{done.stdout}{done.stderr}")
        return done.stdout

    def start(self, host, *words, **more):
        return subprocess.Popen(self.inside(host, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                stdin=subprocess.DEVNULL, cwd="/", env=self.environment() | more)

    def start_imports(self, workload, root, hosts, processes):
        """Of the workload's first tree below `root` (empty: directly), so many on each of these hosts at once."""
        environment = {"PYTHONPATH": root + workload.trees[0], "PYTHONDONTWRITEBYTECODE": "1"}
        return [self.start(host, *workload.command(root), **environment) for host in hosts for _ in range(processes)]

    def processes(self, *programs):
        """The processes of all hosts, or those that run one of these programs, as {pid: host}, with pids as this
        process sees them."""
        return self.processes_in(self.pids, *programs)

    @staticmethod
    def processes_in(holders, *programs):
        """The same for {host: a process in its namespaces}."""
        space = {os.readlink(f"/proc/{pid}/ns/uts"): host for host, pid in holders.items()}
        found = {}
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                comm = pathlib.Path(f"/proc/{entry}/comm").read_text(encoding="utf-8").strip()
                host = space.get(os.readlink(f"/proc/{entry}/ns/uts"))
                state = state_of(entry)
            except OSError:
                continue
            if host and (comm in programs or not programs) and state != "Z":
                found[int(entry)] = host
        return found

    def processes_on(self, host, *programs):
        """Of one host, as a list of pids."""
        return [pid for pid, its_host in self.processes(*programs).items() if its_host == host]

    def traces(self):
        """Everything that programs may leave on a host, in words: processes, mounts, files, open ports."""
        found = set()
        for pid, host in self.processes().items():
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found.add(f"{host}: process {pid} {words}")
        for host in self.names:
            for line in self.check(host, "sh", "-c", TRACES).splitlines():
                found.add(f"{host}: {line}")
        return found

    def close(self):
        if self.first is not None:
            os.kill(self.first, signal.SIGKILL)
        if self.first_parent is not None:
            if self.first is None:
                self.first_parent.kill()
            self.first_parent.wait()
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        self.first = self.first_parent = self.directory = None
        self.after.close()
