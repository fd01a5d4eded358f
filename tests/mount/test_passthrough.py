"""Large files that the kernel reads itself, if it and libfuse can."""

import hashlib
import mmap
import os
import subprocess
import unittest

from copper import NOBODY, as_nobody, wait_until
from mounted import MountTestCase

MIB = 1 << 20
SIZES = {"small": 5000, "threshold": MIB, "odd": 3 * MIB + 777, "big": 64 * MIB}


def reads(job):
    """How the nodes read large files, according to `copper status --nodes`."""
    header, *nodes = [line.split() for line in job.status().splitlines()[1:]]
    return {node[header.index("READS")] for node in nodes}


class Passthrough(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.original = cls.make_directory() + "/tree"
        os.makedirs(cls.original)
        cls.contents = {name: os.urandom(size) for name, size in SIZES.items()}
        cls.contents |= {"several": cls.contents["odd"], "replaced": cls.contents["odd"]}
        for name, content in cls.contents.items():
            with open(f"{cls.original}/{name}", "wb") as file:
                file.write(content)
        cls.job = cls.launch_for_class(nodes=2, trees=[cls.original], options=["--passthrough", "auto"])
        for node in (0, 1):
            os.stat(cls.job.mirrored(node, cls.original))  # it serves, so it knows
        if reads(cls.job) != {"passthrough"}:
            raise unittest.SkipTest("no passthrough here: it takes Linux 6.9, libfuse 3.17 and root")

    def path(self, name, node=0):
        return self.job.mirrored(node, f"{self.original}/{name}")

    def read(self, name, node=0):
        with open(self.path(name, node), "rb") as file:
            return file.read()

    def asked(self, act):
        """The READ requests of an action."""
        before = self.job.totals()["fuse"]["read"]
        act()
        return self.job.totals()["fuse"]["read"] - before

    def drop_pages(self, name):
        with open(self.path(name), "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def collect(self, name):
        """Reads until no read reaches the daemon any more, although the kernel's pages are dropped."""
        def is_collected():
            self.read(name)
            self.drop_pages(name)
            return self.asked(lambda: self.read(name)) == 0
        wait_until(is_collected, 20, f"the collection of {name}")

    def test_bytes(self):
        for name, content in self.contents.items():
            for node in (0, 1):
                for _ in range(3):
                    self.assertEqual(content, self.read(name, node), name)
        for name in ("threshold", "odd", "big"):
            self.collect(name)
            self.assertEqual(self.contents[name], self.read(name), name)
            self.assertEqual(len(self.contents[name]), os.stat(self.path(name)).st_size)

    def test_small_files_go_through_the_daemon(self):
        self.read("small")
        self.drop_pages("small")
        self.assertEqual(1, self.asked(lambda: self.read("small")))

    def test_mapped(self):
        self.collect("odd")
        with open(self.path("odd"), "rb") as file, \
                mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as shared, \
                mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as private:
            file.close()
            self.assertEqual(self.contents["odd"], shared[:])
            self.assertEqual(self.contents["odd"], private[:])

    def test_several_openings(self):
        """Some handles date from before the file was collected, which decides for all of them."""
        path = self.path("several", node=1)
        digest = hashlib.sha256(self.contents["odd"]).hexdigest().encode()
        for _ in range(4):
            with open(path, "rb") as first:
                first.read(10)
                readers = [subprocess.Popen(["sha256sum", path], stdout=subprocess.PIPE) for _ in range(8)]
                self.assertEqual({digest}, {reader.communicate(timeout=60)[0].split()[0] for reader in readers})
                with open(path, "rb") as second:
                    self.assertEqual(self.contents["odd"], second.read())
                    first.seek(0)
                    self.assertEqual(self.contents["odd"], first.read())

    def test_replaced(self):
        """The snapshot stays."""
        self.collect("replaced")
        name = f"{self.original}/replaced"
        with open(f"{name}.new", "wb") as file:
            file.write(self.contents["threshold"])
        os.rename(f"{name}.new", name)
        for node in (0, 1):
            self.assertEqual(self.contents["replaced"], self.read("replaced", node))

    def test_one_copy(self):
        """Collected files take no extra room in the cache."""
        self.collect("odd")
        before = self.job.totals()["cache"]["bytes"]
        self.collect("big")
        self.collect("odd")
        self.assertEqual(before, self.job.totals()["cache"]["bytes"])

    def test_stop_while_open(self):
        job = self.launch(nodes=1, trees=[self.original], options=["--passthrough", "auto"])
        path = job.mirrored(0, f"{self.original}/big")
        for _ in range(3):
            with open(path, "rb") as file:
                file.read()
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            self.assertEqual(0, job.stop().returncode)
            self.assertEqual(self.contents["big"][:4096], mapped[:4096])


class WithoutPassthrough(MountTestCase):
    """--passthrough auto where it is impossible: programs notice nothing."""

    def test_other_user_reads_through_the_daemon(self):
        self.need_root()
        original, directory = self.make_directory(), self.make_directory(owner=NOBODY)
        content = os.urandom(SIZES["odd"])
        with open(f"{original}/odd", "wb") as file:
            file.write(content)
        keeper = self.device_for_everybody()
        prefix = ["nsenter", "-t", str(keeper), "-m", "-r", "--", *as_nobody()]
        job = self.launch(nodes=1, trees=[original], options=["--passthrough", "auto"], directory=directory,
                          prefix=prefix, mounted_for=keeper, environment={"HOME": directory, "USER": "nobody"})
        for _ in range(3):
            done = self.run_program(*prefix, "cat", job.mirrored(0, f"{original}/odd"))
            self.assertEqual(content, done.stdout)
        self.assertEqual({"daemon"}, reads(job))
        self.assertEqual(1, job.totals()["fuse"]["open"])
