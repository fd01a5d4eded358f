"""Real network filesystems between the hosts of hosts.py: a server in a network of its own, behind a link with a delay, and a
client on each host.

    with Hosts(2) as hosts, MooseFs(hosts, "/usr/lib/python3") as remote:
        remote.mount("cn0")                     # a client that knows nothing yet, at remote.point
        remote.counters()                       # what the server was asked, by kind

A filesystem is a class: RealFilesystem has the life cycle, the class has the servers, the client's command and the counters.
"""

import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import uuid

from copper import CopperError, build_directory, wait_until

HOSTS_GATEWAY = "10.77.0.254"
MTU = 65000
START_SECONDS_MAX = 30
LEAVE_SECONDS_MAX = 3
DELAY_MICROSECONDS = 350  # one way

# For each connection, a server of its own, as sshd does. It says in its log what it is asked.
SFTP_SERVER = """
import os, socket, socketserver, sys
class Server(socketserver.ForkingTCPServer):
    allow_reuse_address = True
class Session(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for fd in (0, 1):
            os.dup2(self.request.fileno(), fd)
        os.dup2(os.open(sys.argv[2] + "." + str(os.getpid()), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        os.execv(sys.argv[1], [sys.argv[1], "-e", "-R", "-l", "DEBUG3"])
with Server(("", int(sys.argv[3])), Session) as server:
    server.serve_forever()
"""


def delay_link():
    return str(build_directory() / "tests" / "realfs" / "copper_delay_link")


class FarServer:
    """The network: a namespace for the server, and the way to it from each host."""

    def __init__(self, hosts, number, microseconds):
        self.hosts = hosts
        self.address, gateway, device = f"10.78.{number}.1", f"10.78.{number}.2", f"far{number}"
        self.stack = contextlib.ExitStack()
        self.pid = hosts.hold("--net", "--uts", "--mount", "--propagation", "private")
        self.link = subprocess.Popen([delay_link(), str(self.pid), str(hosts.switch), device, str(microseconds)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.stack.callback(self.end_link)
        if self.link.stdout.readline() != "ready\n":
            raise CopperError("the link to the server does not start")
        for pid, address, peer in ((self.pid, self.address, gateway), (hosts.switch, gateway, self.address)):
            hosts.ip(pid, "addr", "add", address, "peer", peer, "dev", device)
            hosts.ip(pid, "link", "set", device, "mtu", str(MTU), "up")
        hosts.ip(self.pid, "link", "set", "lo", "up")
        hosts.ip(self.pid, "route", "add", "default", "via", gateway)
        hosts.ip(hosts.switch, "addr", "replace", f"{HOSTS_GATEWAY}/24", "dev", "bridge")
        subprocess.run(["nsenter", "-t", str(hosts.switch), "-n", "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        for name in hosts.names:
            hosts.ip(hosts.pids[name], "route", "add", self.address, "via", HOSTS_GATEWAY)

    def end_link(self):
        self.link.stdin.close()
        self.link.wait()
        self.link.stdout.close()

    def start(self, *words, **more):
        """Starts a program where the server is."""
        return subprocess.Popen(self.inside(*words), stdin=subprocess.DEVNULL, cwd="/", **more)

    def output(self, *words):
        """What a program prints there."""
        done = subprocess.run(self.inside(*words), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CopperError(f"{' '.join(words)}: {done.stderr}")
        return done.stdout

    def inside(self, *words):
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "--", *words]


class RealFilesystem:
    """What all have in common: the servers behind the link, and a client on each host. `number`: of several on the same hosts.
    `microseconds`: to the servers, one way."""

    task = "realfs"  # of tools/setup, which installs it
    client_program = None  # as ps(1) names it
    fails_without_server = False  # at once, instead of waiting for it
    opens_some_files_itself = False
    stamps_whole_seconds = False
    LOOKUP = "lookup"  # how the counters name it

    def __init__(self, hosts, served, number=0, microseconds=DELAY_MICROSECONDS):
        self.hosts, self.served, self.number = hosts, str(served), number
        self.point = f"{hosts.directory}/{self.name()}-{number}"
        self.directory = f"{self.point}.servers"
        self.microseconds = microseconds
        self.clients = {}
        self.servers = []

    @classmethod
    def name(cls):
        return cls.__name__.lower()

    @classmethod
    def why_not(cls):
        """The reason why it cannot run here, or None."""
        for program in cls.programs:
            if not shutil.which(program):
                return f"{program} is not installed (tools/setup {cls.task})"
        return None if os.path.exists("/dev/net/tun") else "there is no /dev/net/tun"

    def __enter__(self):
        os.mkdir(self.point)
        os.mkdir(self.directory)
        self.far = FarServer(self.hosts, self.number, self.microseconds)
        try:
            self.prepare()
            self.start()
            self.fill()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def prepare(self):
        """Before the servers start for the first time."""

    def fill(self):
        """Copies there what is to be served."""
        with self.writable() as place:
            self.far.output("cp", "-a", f"{self.served}/.", place)

    @contextlib.contextmanager
    def writable(self):
        """Where the servers are and nothing is delayed: a place that programs may change."""
        client = self.far.start(*self.client_command(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: f" {self.point} " in self.far.output("cat", "/proc/self/mountinfo"), START_SECONDS_MAX, "the client")
            yield self.point
        finally:
            self.far.start("umount", self.point).wait(START_SECONDS_MAX)
            client.wait(START_SECONDS_MAX)

    def limit(self, directory):
        """Sets a quota that a directory within writable() exceeds at once."""
        raise NotImplementedError

    def start(self):
        """All servers; returns when they serve."""
        raise NotImplementedError

    def client_command(self):
        """Mounts at self.point, stays in the foreground."""
        raise NotImplementedError

    def counters(self):
        """What the servers have been asked so far, by kind, as a Counter."""
        raise NotImplementedError

    def start_server(self, *words):
        log = open(f"{self.directory}/log", "a", encoding="utf-8")
        with log:
            self.servers.append(self.far.start(*words, stdout=log, stderr=log, start_new_session=True))

    def write(self, name, text):
        pathlib.Path(self.directory, name).write_text(text, encoding="utf-8")

    def listens(self, port):
        return bool(self.far.output("ss", "-Hltn", f"sport = {port}"))

    def wait_for(self, is_ready, what):
        """Until the servers have come so far. One that ends is an error."""
        def is_over():
            return is_ready() or any(server.poll() is not None for server in self.servers)
        wait_until(is_over, START_SECONDS_MAX, what)
        if any(server.poll() is not None for server in self.servers):
            log = pathlib.Path(self.directory, "log").read_text(errors="replace")
            raise CopperError(f"{what}: a server has ended\n{log[-2000:]}")

    def server_programs(self):
        return [os.path.basename(server.args[server.args.index("--") + 1])[:15] for server in self.servers]

    def kill(self):
        """The servers are gone at once, with all processes of theirs."""
        for pid in self.hosts.processes_in({"server": self.far.pid}, *self.server_programs()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for server in self.servers:
            server.wait()
        self.servers = []

    def mount(self, host):
        client = self.hosts.start(host, *self.client_command())
        self.clients[host] = client
        wait_until(lambda: self.is_mounted(host) or client.poll() is not None, START_SECONDS_MAX, f"{self.name()} on {host}")
        if client.poll() is not None:
            raise CopperError(f"{self.name()} on {host}: {client.stderr.read()}")

    def mount_all(self):
        for host in self.hosts.names:
            self.mount(host)

    def is_mounted(self, host):
        return f" {self.point} " in self.hosts.check(host, "cat", "/proc/self/mountinfo")

    def signal_client(self, host, number):
        for pid in self.hosts.processes_on(host, self.client_program):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if self.point in pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace"):
                    os.kill(pid, number)

    def stop_client(self, host):
        self.signal_client(host, signal.SIGSTOP)

    def continue_client(self, host):
        self.signal_client(host, signal.SIGCONT)
        self.clients[host].send_signal(signal.SIGCONT)  # nsenter stops with its child

    def kill_client(self, host):
        self.signal_client(host, signal.SIGKILL)

    def unmount(self, host):
        self.hosts.run(host, "umount", "-l", self.point)
        client = self.clients.pop(host)
        # It takes leave of its servers, or others wait for it (CephFS: 60 s). It stays as long as somebody has a file open.
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(LEAVE_SECONDS_MAX)
        self.kill_client(host)
        client.communicate(timeout=START_SECONDS_MAX)

    def unmount_all(self):
        for host in list(self.clients):
            self.unmount(host)

    def close(self):
        self.unmount_all()
        self.kill()
        self.far.stack.close()


class Sshfs(RealFilesystem):
    """sshfs without ssh: its client and OpenSSH's server of the SFTP protocol."""

    PORT = 5000
    SFTP_PROGRAMS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server")
    task = "test"
    programs = ("sshfs",)
    client_program = "sshfs"
    stamps_whole_seconds = True
    LOOKUP = "lstat"
    fails_without_server = True
    sessions = 0

    @classmethod
    def why_not(cls):
        return super().why_not() or (None if cls.program() else "OpenSSH's sftp-server is not installed")

    @classmethod
    def program(cls):
        return next(filter(os.path.exists, cls.SFTP_PROGRAMS), None)

    def fill(self):
        """The server serves the directory itself."""

    def writable(self):
        return contextlib.nullcontext(self.served)

    def start(self):
        self.sessions += 1
        log = f"{self.directory}/sftp-{self.sessions}"
        self.start_server(sys.executable, "-c", SFTP_SERVER, self.program(), log, str(self.PORT))
        self.wait_for(lambda: self.listens(self.PORT), "the server")

    def server_programs(self):
        return [*super().server_programs(), "sftp-server"]

    def client_command(self):
        options = f"directport={self.PORT},ro,reconnect"
        return ["sshfs", "-f", "-o", options, f"{self.far.address}:{self.served}", self.point]

    def counters(self):
        total = collections.Counter()
        for log in pathlib.Path(self.directory).glob("sftp-*.*"):
            total.update(re.findall(r"^debug3: request \d+: (\w+)", log.read_text(errors="replace"), re.MULTILINE))
        return total


class MooseFs(RealFilesystem):
    """A master and a chunk server."""

    CLIENTS, CHUNKS = 9421, 9422  # ports
    # In the order of `mfscli -SMO`.
    KINDS = ("statfs", "getattr", "setattr", "lookup", "mkdir", "rmdir", "symlink", "readlink", "mknod", "unlink", "rename", "link",
             "readdir", "open", "read", "write")
    programs = ("mfsmaster", "mfschunkserver", "mfsmount", "mfscli")
    client_program = "mfsmount"
    stamps_whole_seconds = True

    def prepare(self):
        os.mkdir(f"{self.directory}/chunks")
        shutil.copy("/var/lib/mfs/metadata.mfs.empty", f"{self.directory}/metadata.mfs")
        common = (f"WORKING_USER = root\nWORKING_GROUP = root\nNICE_LEVEL = 0\nDISABLE_OOM_KILLER = 0\n"
                  f"DATA_PATH = {self.directory}\n")
        self.write("exports", "* / rw,alldirs,admin,maproot=0:0\n")
        self.write("topology", "")
        self.write("disks", f"{self.directory}/chunks\n")
        self.write("master", f"{common}EXPORTS_FILENAME = {self.directory}/exports\n"
                             f"TOPOLOGY_FILENAME = {self.directory}/topology\n")
        self.write("chunkserver", f"{common}HDD_CONF_FILENAME = {self.directory}/disks\nMASTER_HOST = {self.far.address}\n"
                                  "MASTER_RECONNECTION_DELAY = 1\n")
        self.write("client", "")

    def start(self):
        # -a: takes over the change logs of a master that was killed
        self.start_server("mfsmaster", "-a", "-f", "-c", f"{self.directory}/master", "start")
        self.wait_for(lambda: self.listens(self.CLIENTS), "the master")
        self.start_server("mfschunkserver", "-f", "-c", f"{self.directory}/chunkserver", "start")
        self.wait_for(lambda: self.listens(self.CHUNKS), "the chunk server")

    def limit(self, directory):
        self.far.output("mfssetquota", "-L", "1", directory)

    def client_command(self):
        return ["mfsmount", "-f", "-c", f"{self.directory}/client", "-H", self.far.address, "-o", "mfsnice=0,mfsallowoomkiller",
                self.point]

    def unmount_all(self):
        for host in self.clients:
            self.kill_client(host)  # the master soon forgets the counts of those that take their leave
        super().unmount_all()

    def counters(self):
        """Of all sessions, without the server's own."""
        total = collections.Counter()
        for mode in ("0", "1"):  # of the last hour, and of this one
            told = self.far.output("mfscli", "-n", "-p", "-s", "|", "-H", self.far.address, "-SMO", "-m", mode)
            for session in filter(None, told.splitlines()):
                _, address, _, *counts, _ = session.split("|")
                if address != self.far.address:
                    total.update(dict(zip(self.KINDS, map(int, counts))))
        return +total


class GlusterFs(RealFilesystem):
    """One brick, which glusterd starts."""

    PORT = 24007
    VOLUME = "mirrored"
    programs = ("glusterd", "gluster", "glusterfs")
    client_program = "glusterfs"
    fails_without_server = True  # with one brick
    opens_some_files_itself = True  # it has what is in small files since it looked them up
    NO_REQUESTS = {"release", "releasedir", "forget"}  # the brick counts them, but no client asks for them

    def prepare(self):
        for name, place in (("state", "/var/lib/glusterd"), ("logs", "/var/log/glusterfs"), ("run", "/run/gluster")):
            directory = f"{self.directory}/{name}"
            os.mkdir(directory)
            os.makedirs(place, exist_ok=True)
            self.far.output("mount", "--bind", directory, place)
        self.brick = f"{self.directory}/brick"

    def command(self, *words):
        return self.far.output("gluster", "--mode=script", "volume", *words)

    def start(self):
        self.start_server("glusterd", "-N")
        self.wait_for(lambda: self.listens(self.PORT), "glusterd")
        if not os.path.exists(self.brick):
            self.command("create", self.VOLUME, f"{self.far.address}:{self.brick}", "force")
            self.command("start", self.VOLUME)
            self.command("profile", self.VOLUME, "start")
        self.wait_for(lambda: re.search(r"Online +: Y", self.command("status", self.VOLUME, "detail")), "the brick")

    def limit(self, directory):
        self.command("quota", self.VOLUME, "enable")
        for option in ("hard-timeout", "soft-timeout"):
            self.command("set", self.VOLUME, f"features.{option}", "0")
        self.command("quota", self.VOLUME, "limit-usage", directory.removeprefix(self.point), "1")

    def server_programs(self):
        return [*super().server_programs(), "glusterfsd", "glusterfs"]

    def client_command(self):
        return ["glusterfs", "-N", "--acl", "-l", f"{self.directory}/client.log", "--volfile-server", self.far.address,
                "--volfile-id", self.VOLUME, self.point]

    def counters(self):
        told = self.command("profile", self.VOLUME, "info", "cumulative")
        counts = re.findall(r"[nu]s +(\d+) +([A-Z]+)$", told, re.MULTILINE)
        return +collections.Counter({kind.lower(): int(count) for count, kind in counts if kind.lower() not in self.NO_REQUESTS})


class CephFs(RealFilesystem):
    """A monitor, one OSD, two MDS, of which one stands by; clients are ceph-fuse."""

    MONITOR = 3300  # port
    OSD_BYTES = 4 << 30  # in a sparse file
    MDS = ("a", "b")
    programs = ("ceph", "ceph-mon", "ceph-osd", "ceph-mds", "ceph-fuse")
    client_program = "ceph-fuse"
    opens_some_files_itself = True  # those for which it has capabilities

    def prepare(self):
        for kind in ("mon", "osd", *(f"mds-{name}" for name in self.MDS)):
            os.mkdir(f"{self.directory}/{kind}")
        identity = str(uuid.uuid4())
        self.configuration = f"{self.directory}/ceph.conf"
        self.write("ceph.conf", f"""[global]
fsid = {identity}
mon host = v2:{self.far.address}:{self.MONITOR}
auth cluster required = none
auth service required = none
auth client required = none
run dir = {self.directory}
admin socket = {self.directory}/$name.socket
log file = {self.directory}/$name.log
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
bluestore block size = {self.OSD_BYTES}
mon allow pool size one = true
# With the monitor's tick (5 s) or less, it never takes an MDS for lost.
mds beacon grace = 10
[mon]
mon data = {self.directory}/mon
[osd]
osd data = {self.directory}/osd
[mds]
mds data = {self.directory}/mds-$id
[client]
client acl type = posix_acl
fuse default permissions = false
admin socket =
log file =
""")
        self.far.output("monmaptool", "--create", "--fsid", identity, "--addv", "a", f"[v2:{self.far.address}:{self.MONITOR}]",
                        f"{self.directory}/monmap")
        self.far.output("ceph-mon", "-c", self.configuration, "--mkfs", "-i", "a", "--monmap", f"{self.directory}/monmap")

    def command(self, *words):
        return self.far.output("ceph", "-c", self.configuration, *words)

    def start_part(self, program, name):
        self.start_server(program, "-c", self.configuration, "-f", "-i", name)

    def start(self):
        self.start_part("ceph-mon", "a")
        self.wait_for(lambda: self.listens(self.MONITOR), "the monitor")
        is_new = not os.path.exists(f"{self.directory}/osd/block")
        if is_new:
            identity = str(uuid.uuid4())
            self.command("osd", "new", identity)
            self.far.output("ceph-osd", "-c", self.configuration, "--mkfs", "-i", "0", "--osd-uuid", identity)
        self.start_part("ceph-osd", "0")
        if is_new:
            for pool in ("metadata", "content"):
                self.command("osd", "pool", "create", pool)
            self.command("fs", "new", "mirrored", "metadata", "content")
        for name in self.MDS:
            self.start_part("ceph-mds", name)
        self.wait_for(lambda: self.active_mds() is not None, "an MDS")

    def active_mds(self):
        infos = json.loads(self.command("fs", "dump", "--format", "json"))["filesystems"][0]["mdsmap"]["info"].values()
        return next((info["name"] for info in infos if info["state"] == "up:active"), None)

    def kill_mds(self, name):
        for pid in self.hosts.processes_in({"server": self.far.pid}, "ceph-mds"):
            if name.encode() in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)

    def limit(self, directory):
        self.far.output("setfattr", "-n", "ceph.quota.max_bytes", "-v", "1", directory)

    def client_command(self):
        return ["ceph-fuse", "-f", "-c", self.configuration, "-n", "client.admin", self.point]

    def counters(self):
        total = collections.Counter()
        for part in ("osd.0", *(f"mds.{name}" for name in self.MDS)):
            path = f"{self.directory}/{part}.socket"
            if os.path.exists(path):
                told = json.loads(self.command("--admin-daemon", path, "perf", "dump"))
                for name, count in told.get("mds_server", {}).items():
                    if kind := re.fullmatch("req_(.*)_latency", name):
                        total[kind[1]] += count["avgcount"]
                total["read"] += told.get("osd", {}).get("op_r", 0)
        return +total
