"""Real network filesystems between the hosts of hosts.py: a server in a network of its own, behind a link with a delay, and a
client on each host.

    with Hosts(2) as hosts, Sshfs(hosts, "/usr/lib/python3") as remote:
        remote.mount("cn0")                     # a client that knows nothing yet, at remote.point
        remote.counters()                       # what the server was asked, by kind
"""

import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from copper import CopperError, build_directory, wait_until

SERVER, GATEWAY, HOSTS_GATEWAY = "10.78.0.1", "10.78.0.2", "10.77.0.254"
DEVICE = "far"
MTU = 65000
START_SECONDS_MAX = 30
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

    def __init__(self, hosts, microseconds=DELAY_MICROSECONDS):
        self.hosts = hosts
        self.stack = contextlib.ExitStack()
        self.pid = hosts.hold("--net", "--uts", "--mount", "--propagation", "private")
        self.link = subprocess.Popen([delay_link(), str(self.pid), str(hosts.switch), DEVICE, str(microseconds)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.stack.callback(self.end_link)
        if self.link.stdout.readline() != "ready\n":
            raise CopperError("the link to the server does not start")
        for pid, address, peer in ((self.pid, SERVER, GATEWAY), (hosts.switch, GATEWAY, SERVER)):
            hosts.ip(pid, "addr", "add", address, "peer", peer, "dev", DEVICE)
            hosts.ip(pid, "link", "set", DEVICE, "mtu", str(MTU), "up")
        hosts.ip(self.pid, "route", "add", "default", "via", GATEWAY)
        hosts.ip(hosts.switch, "addr", "add", f"{HOSTS_GATEWAY}/24", "dev", "bridge")
        subprocess.run(["nsenter", "-t", str(hosts.switch), "-n", "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        for name in hosts.names:
            hosts.ip(hosts.pids[name], "route", "add", SERVER, "via", HOSTS_GATEWAY)

    def end_link(self):
        self.link.stdin.close()
        self.link.wait()
        self.link.stdout.close()

    def start(self, *words, **more):
        """Starts a program where the server is."""
        return subprocess.Popen(["nsenter", "-t", str(self.pid), "-m", "-u", "-n", "-p", "--", *words], stdin=subprocess.DEVNULL,
                                cwd="/", **more)


class Sshfs:
    """sshfs without ssh: its client and OpenSSH's server of the SFTP protocol."""

    PORT = 5000
    SFTP_PROGRAMS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server")

    def __init__(self, hosts, served, options=("reconnect",), microseconds=DELAY_MICROSECONDS):
        self.hosts, self.served, self.options, self.microseconds = hosts, str(served), options, microseconds
        self.point = f"{hosts.directory}/pfs"
        self.clients = {}
        self.sessions = 0
        self.server = None

    @classmethod
    def why_not(cls):
        """The reason why it cannot run here, or None."""
        if not shutil.which("sshfs"):
            return "sshfs is not installed"
        if cls.program() is None:
            return "OpenSSH's sftp-server is not installed"
        return None if os.path.exists("/dev/net/tun") else "there is no /dev/net/tun"

    @classmethod
    def program(cls):
        return next(filter(os.path.exists, cls.SFTP_PROGRAMS), None)

    def __enter__(self):
        os.mkdir(self.point)
        self.far = FarServer(self.hosts, self.microseconds)
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        self.close()

    def start(self):
        self.sessions += 1
        log = f"{self.hosts.directory}/sftp-{self.sessions}"
        self.server = self.far.start(sys.executable, "-c", SFTP_SERVER, self.program(), log, str(self.PORT),
                                     start_new_session=True)
        wait_until(lambda: self.is_listening() or self.server.poll() is not None, START_SECONDS_MAX, "the server")
        if self.server.poll() is not None:
            raise CopperError("the server does not start")

    def is_listening(self):
        done = subprocess.run(["nsenter", "-t", str(self.far.pid), "-n", "ss", "-Hltn", f"sport = {self.PORT}"],
                              capture_output=True, text=True, check=True)
        return bool(done.stdout)

    def kill(self):
        """The server and its sessions are gone at once."""
        for pid in self.hosts.processes_in({"server": self.far.pid}, os.path.basename(sys.executable)[:15], "sftp-server"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.server.wait()

    def mount(self, host):
        options = ",".join((f"directport={self.PORT}", "ro", *self.options))
        client = self.hosts.start(host, "sshfs", "-f", "-o", options, f"{SERVER}:{self.served}", self.point)
        self.clients[host] = client
        wait_until(lambda: self.is_mounted(host) or client.poll() is not None, START_SECONDS_MAX, f"sshfs on {host}")
        if client.poll() is not None:
            raise CopperError(f"sshfs on {host}: {client.stderr.read()}")

    def is_mounted(self, host):
        return f" {self.point} " in self.hosts.check(host, "cat", "/proc/self/mountinfo")

    def kill_client(self, host):
        for pid in self.hosts.processes_on(host, "sshfs"):
            os.kill(pid, signal.SIGKILL)

    def unmount(self, host):
        self.hosts.run(host, "umount", "-l", self.point)
        self.kill_client(host)  # it stays as long as somebody has a file open
        self.clients.pop(host).communicate(timeout=START_SECONDS_MAX)

    def counters(self):
        """What all sessions have been asked so far, by kind, as a Counter."""
        total = collections.Counter()
        for log in pathlib.Path(self.hosts.directory).glob("sftp-*.*"):
            total.update(re.findall(r"^debug3: request \d+: (\w+)", log.read_text(errors="replace"), re.MULTILINE))
        return total

    def unmount_all(self):
        for host in list(self.clients):
            self.unmount(host)

    def close(self):
        self.unmount_all()
        if self.server is not None and self.server.poll() is None:
            self.kill()
        self.far.stack.close()
