"""Two MooseFS in one mirror, whose files have the same inode numbers."""

import os
import pathlib
import subprocess

from cases import SECONDS_MAX, skip_unless_installed
from copper import wait_until
from import_storm import Workload, package_tree
from real_filesystems import MooseFs
from test_mpirun import MOUNT, ClusterTestCase

FILES = 200
READERS = 20


class Mirror(ClusterTestCase):
    count = 2

    @classmethod
    def setUpClass(cls):
        skip_unless_installed(MooseFs)
        super().setUpClass()
        cls.remotes = [cls.serve(number) for number in range(2)]
        cls.points = [remote.point for remote in cls.remotes]
        cls.tree = cls.points[0]

    @classmethod
    def serve(cls, number):
        source = f"{cls.hosts.directory}/served-{number}"
        os.mkdir(source)
        for name in range(FILES):
            os.mkdir(f"{source}/directory-{name}")
            pathlib.Path(source, f"directory-{name}", "file").write_text(f"{number} {name}\n", encoding="utf-8")
        subprocess.run(["cp", "-a", f"{package_tree('numpy')}/numpy", source], check=True)
        remote = MooseFs(cls.hosts, source, number).__enter__()
        cls.addClassCleanup(remote.close)
        return remote

    def setUp(self):
        super().setUp()
        for remote in self.remotes:
            self.addCleanup(remote.unmount_all)
            remote.mount_all()
        self.launch_well("--tree", self.points[1])

    def tearDown(self):
        self.stop_well()

    def numbers(self, host, place):
        told = self.hosts.check(host, "find", place, "-type", "f", "-printf", "%i %P\\n").splitlines()
        return {path: int(number) for number, _, path in (line.partition(" ") for line in told)}

    def start_imports(self, number):
        return self.hosts.start_imports(Workload(packages=["numpy"], trees=[self.points[number]]), MOUNT, self.hosts.names, processes=2)

    def check_files(self):
        for remote in self.remotes:
            for host in self.hosts.names:
                self.hosts.check(host, "diff", "-r", remote.served, MOUNT + remote.point)

    def test_files_with_equal_numbers(self):
        direct = [self.numbers("cn0", point) for point in self.points]
        self.assertLess(FILES, len(set(direct[0].values()) & set(direct[1].values())))
        mirrored = {host: [self.numbers(host, MOUNT + point) for point in self.points] for host in self.hosts.names}
        self.assertEqual(mirrored["cn0"], mirrored["cn1"])
        for found, expected in zip(mirrored["cn0"], direct):
            self.assertEqual(expected.keys(), found.keys())
        all_numbers = [number for found in mirrored["cn0"] for number in found.values()]
        self.assertEqual(len(all_numbers), len(set(all_numbers)))
        names = [os.path.basename(point) for point in self.points]
        for copy in ("rsync -aH $* /tmp/copies", "cp -a $* /tmp/copies", "tar -cf - $* | tar -xf - -C /tmp/copies"):
            script = f"mkdir /tmp/copies; cd {MOUNT}{self.hosts.directory}; {copy}"  # /tmp is the host's own
            self.hosts.check("cn1", "sh", "-ec", script, "sh", *names)
            for name, remote in zip(names, self.remotes):
                self.hosts.check("cn1", "diff", "-r", remote.served, f"/tmp/copies/{name}")
            self.hosts.check("cn1", "rm", "-r", "/tmp/copies")

    def test_one_whose_clients_stand_still(self):
        """Programs on each host wait for it, and others import from the other one."""
        for host in self.hosts.names:
            self.remotes[1].stop_client(host)
        waiting = [(number, self.hosts.start(host, "cat", f"{MOUNT}{self.points[1]}/directory-{number}/file"))
                   for host in self.hosts.names for number in range(READERS)]
        try:
            self.end_imports(self.start_imports(0))
            self.assertEqual([None] * len(waiting), [process.poll() for _, process in waiting])
        finally:
            for host in self.hosts.names:
                self.remotes[1].continue_client(host)
        for number, process in waiting:
            self.assertEqual((f"1 {number}\n", ""), process.communicate(timeout=SECONDS_MAX))
        self.check_files()

    def test_one_whose_servers_are_killed(self):
        running = [self.start_imports(number) for number in range(2)]
        before = self.remotes[1].counters()
        wait_until(lambda: (self.remotes[1].counters() - before).total() > 100, SECONDS_MAX, "the imports")
        self.remotes[1].kill()
        self.end_imports(running[0])
        self.remotes[1].start()
        self.end_imports(running[1])
        self.check_files()
