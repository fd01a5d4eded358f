"""One host's client of the filesystem hangs, or is gone: programs there get everything through the other hosts."""

import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from copper import wait_until
from slow_filesystem import program
from test_mpirun import MPIRUN, ClusterTestCase

# Longer than a reader is given to answer (half a deadline), with what a loaded machine adds.
SECONDS_MAX = 60
MOUNTED = "/mnt/pfs"
SHOWN = "/tmp/root/copper" + MOUNTED


class HungClient(ClusterTestCase):
    count = 3

    @classmethod
    def setUpClass(cls):
        if not os.path.exists(program()):
            raise unittest.SkipTest("needs libfuse 3.14 or later")
        super().setUpClass()
        cls.tree = f"{MOUNTED}/software/py"
        cls.source = f"{cls.hosts.directory}/source"
        os.makedirs(f"{cls.source}/software/py")
        for number in range(40):
            pathlib.Path(cls.source, "software", "py", f"file-{number}").write_text(f"{number}\n", encoding="ascii")
        cls.hosts.write("model.toml", "forgets_names = 1\n")  # no kernel's cache helps
        shutil.copy2(program(), f"{cls.hosts.directory}/bin")

    def setUp(self):
        super().setUp()
        self.entered = {}  # nsenter, which stops and goes on with its child
        self.clients = {host: self.mount(host) for host in self.hosts.names}

    def mount(self, host):
        """A client of its own."""
        self.hosts.check(host, "sh", "-ec", f"mount -t tmpfs tmpfs /mnt; mkdir {MOUNTED}")
        directory = self.hosts.directory
        name = os.path.basename(program())
        client = subprocess.Popen(self.hosts.inside(host, f"{directory}/bin/{name}", self.source, MOUNTED, "--shared",
                                                    f"{directory}/shared", "--model", f"{directory}/model.toml"),
                                  stdin=subprocess.DEVNULL)
        self.addCleanup(self.unmount, host, client)
        self.entered[host] = client.pid
        wait_until(lambda: MOUNTED in self.hosts.check(host, "cat", "/proc/self/mountinfo"), SECONDS_MAX, f"the mount on {host}")
        return self.hosts.processes_on(host, name[:15])[0]  # as the kernel names it

    def unmount(self, host, client):
        if client.poll() is None:  # not unmounted
            self.go_on(host)
            os.kill(self.clients[host], signal.SIGTERM)
        client.wait(SECONDS_MAX)
        self.hosts.check(host, "sh", "-c", f"umount -l {MOUNTED} 2>/dev/null; umount /mnt")

    def hang(self, host):
        os.kill(self.clients[host], signal.SIGSTOP)

    def go_on(self, host):
        for pid in (self.clients[host], self.entered[host]):
            os.kill(pid, signal.SIGCONT)

    def read_all(self, host):
        """Finds and reads every file through the mirror."""
        script = f"cd {SHOWN}/software/py && ls -l >/dev/null && cat $(seq -f file-%g 0 39)"
        reading = self.hosts.start(host, "sh", "-ec", script)
        try:
            output, _ = reading.communicate(timeout=SECONDS_MAX)
        finally:
            reading.kill()
        self.assertEqual((0, list(range(40))), (reading.returncode, [int(line) for line in output.split()]), output)

    def test_a_node_that_never_gets_ready(self):
        """Its daemon waits for /dev/fuse."""
        self.hosts.check("cn1", "mount", "-i", "-o", "remount,rw", MOUNTED)
        self.hosts.check("cn1", "mount", "--bind", f"{self.tree}/file-0", "/dev/fuse")
        self.addCleanup(self.hosts.check, "cn1", "umount", "-l", "/dev/fuse")
        self.hang("cn1")
        done = self.launch(None, "--allow-missing", "1", "--ready-timeout", "10")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("copper: cn1 has no mirror: it never answered", done.stderr)
        self.read_all("cn0")
        self.read_all("cn2")
        done = self.hosts.run("cn1", "copper", "run", "true")
        self.assertEqual((0, "copper: this node has no mirror (--allow-missing): true reads the filesystem itself\n"),
                         (done.returncode, done.stderr))
        self.stop_well()

    def test_a_client_that_hangs_before_the_launch(self):
        self.hang("cn1")
        done = self.launch()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.read_all("cn1")
        self.stop_well()
        self.go_on("cn1")

    def test_a_client_that_hangs_later(self):
        self.launch_well()
        link = f"{self.hosts.directory}/link"
        os.symlink(self.tree, link)
        self.hang("cn1")
        self.read_all("cn1")
        # One that is interrupted while it makes the view keeps nobody waiting.
        self.hosts.run("cn1", "timeout", "--signal=INT", "3", "copper", "run", "--view", "bind", "true")
        self.assertEqual("7\n", self.hosts.check("cn1", "timeout", "--signal=KILL", str(SECONDS_MAX), "copper", "run", "sh", "-c",
                                                 "cat ${PYTHONPATH#*:}/file-7", PYTHONPATH=link))
        # The view would lie on the client's directories.
        self.assertIn("'copper run' changes paths on 1 node: the filesystem of a tree does not answer on this node",
                      self.hosts.check("cn0", "copper", "status"))
        self.go_on("cn1")
        self.stop_well()

    def test_a_client_that_is_unmounted(self):
        self.launch_well()
        self.hosts.check("cn1", "umount", "-l", MOUNTED)
        self.read_all("cn1")
        self.stop_well()

    def test_the_client_where_the_launch_is(self):
        self.hang("cn0")
        for command, exit_code in (("launch", 2), ("doctor", 1)):
            self.hosts.write("nodes", "cn0\ncn1\n")
            done = self.hosts.run("cn0", "copper", command, "--nodes-from", f"{self.hosts.directory}/nodes", "--launcher", MPIRUN,
                                  "--tree", self.tree)
            self.assertEqual(exit_code, done.returncode, done.stdout + done.stderr)
            self.assertRegex(done.stdout + done.stderr, f"--tree: {self.tree}: its filesystem does not answer on this node")
        self.go_on("cn0")
