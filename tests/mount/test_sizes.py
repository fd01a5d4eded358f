"""Files whose size changed between listing and read: all bytes of one version or an error, never padded with NULs, never
cut."""

import errno
import os
import time

import reading
from mounted import MountTestCase

NODES = 4
FILES = 15
MIB = 1 << 20
# The listed size and the later one: within a page, over pages, over extents (1 MiB).
SMALL = ((3000, 4), (4, 3000), (3000, 10_000), (10_000, 3000), (8192, 4096), (4096, 8192), (1, 4096), (4097, 4096))
LARGE = ((3 * MIB + 777, MIB + 5), (3 * MIB + 777, 700), (2 * MIB, MIB), (MIB + 5, 3 * MIB + 777), (700, 2 * MIB + 3),
         (MIB, 2 * MIB))


class Sizes(MountTestCase):
    def setUp(self):
        self.original = self.make_directory() + "/tree"
        os.makedirs(self.original)
        self.versions = {}

    def add(self, name, before, after):
        path = f"{self.original}/{name}"
        old, new = reading.content("a", before), reading.content("b", after)
        with open(path, "xb") as file:
            file.write(old)
        self.versions[path] = (old, new)
        return path

    def list_everywhere(self, job):
        """Does the same as `ls -l`, so that each kernel knows the sizes."""
        for node in range(job.nodes):
            with os.scandir(job.mirrored(node, self.original)) as entries:
                self.assertEqual(len(self.versions), sum(entry.stat().st_size > 0 for entry in entries))

    def judge(self, found, path):
        return reading.verdict(found, *self.versions[path])

    def check_reads(self, job, paths, way):
        """Reads each file on each node, and again after an error."""
        verdicts, again = [], []
        for path in paths:
            for node in range(job.nodes):
                mirrored = job.mirrored(node, path)
                found = self.judge(reading.read(way, mirrored), path)
                verdicts.append(found)
                if found in reading.ERRORS:
                    again.append(self.judge(reading.read(way, mirrored), path))
        wrong = [found for found in verdicts if found not in ("old", "new", *reading.ERRORS)]
        self.assertEqual([], wrong, f"{len(wrong)} of {len(verdicts)} reads")
        self.assertEqual({"new"}, set(again) | {"new"}, "not the new version for a new opening")

    def check_changed(self, sizes, files, options=()):
        """All ways to change and to read, in one job. Each file is read in one way."""
        cases = [(how, way) for how in ("rename", "truncate") for way in reading.WAYS]
        paths = {case: [self.add(f"{'-'.join(case)}-{number}", *sizes[number % len(sizes)]) for number in range(files)]
                 for case in cases}
        time.sleep(0.3)  # until the time stamps have settled
        job = self.launch(nodes=NODES, trees=[self.original], options=options)
        self.list_everywhere(job)
        for how, way in cases:
            for path in paths[how, way]:
                reading.change(path, self.versions[path][1], how)
        for how, way in cases:
            with self.subTest(how=how, way=way):
                self.check_reads(job, paths[how, way], way)
        self.assertEqual(0, sum(job.totals()["fallbacks"].values()))

    def test_small_files(self):
        self.check_changed(SMALL, FILES)

    def test_large_files(self):
        self.check_changed(LARGE, len(LARGE))

    def test_for_everyone(self):
        self.need_root()
        self.check_changed(SMALL, len(SMALL), options=["--allow-other"])

    def test_passed_through_if_possible(self):
        sizes = SMALL[:4] + LARGE[::2]
        self.check_changed(sizes, len(sizes), options=["--passthrough", "auto"])

    def test_several_readers_at_once(self):
        """The first reads of a file, by processes that do not wait for each other."""
        paths = [self.add(f"file-{number}", before, after) for number, (before, after) in enumerate(SMALL + LARGE)]
        time.sleep(0.3)
        job = self.launch(nodes=2, trees=[self.original])
        self.list_everywhere(job)
        for path in paths:
            reading.change(path, self.versions[path][1], "rename")
        for path in paths:
            readers = [reading.Reader(way, job.mirrored(node, path)) for _ in range(2) for node in range(2)
                       for way in reading.WAYS]
            found = {self.judge(reader.result(), path) for reader in readers}
            self.assertLessEqual(found, {"old", "new", *reading.ERRORS})
        for way in reading.WAYS:
            for path in paths:
                for node in range(2):
                    self.assertEqual("new", self.judge(reading.read(way, job.mirrored(node, path)), path))

    def test_directory_exchanged_for_an_older_one(self):
        """A roll-back: `mv app app.bad; mv app.old app`. The files have other sizes, and older time stamps."""
        parent = os.path.dirname(self.original)
        older = f"{parent}/older"
        os.mkdir(older)
        for before, after in SMALL + LARGE:
            with open(f"{older}/file-{before}-{after}", "xb") as file:
                file.write(reading.content("b", after))
        time.sleep(1.1)  # also where time stamps are whole seconds
        paths = [self.add(f"file-{before}-{after}", before, after) for before, after in SMALL + LARGE]
        time.sleep(0.3)
        job = self.launch(nodes=2, trees=[parent])
        self.list_everywhere(job)
        os.rename(self.original, f"{parent}/bad")
        os.rename(older, self.original)
        for way in reading.WAYS:
            with self.subTest(way=way):
                self.check_reads(job, paths, way)

    def test_opened_before_it_changed(self):
        """A program with the file open keeps its version, or gets an error."""
        for before, after in SMALL + LARGE:
            self.add(f"file-{before}-{after}", before, after)
        time.sleep(0.3)
        job = self.launch(nodes=2, trees=[self.original])
        for path, (old, new) in self.versions.items():
            mirrored = job.mirrored(1, path)
            file = os.open(mirrored, os.O_RDONLY)
            try:
                self.assertEqual(len(old), os.fstat(file).st_size)
                reading.change(path, new, "rename")
                with self.assertRaises(OSError) as caught:
                    os.pread(file, len(old), 0)
                self.assertEqual(errno.ESTALE, caught.exception.errno)
                self.assertEqual(len(old), os.fstat(file).st_size)
                self.assertEqual("new", self.judge(reading.read("read", mirrored), path))
                self.assertEqual(len(new), os.stat(mirrored).st_size)
                with self.assertRaises(OSError):
                    os.pread(file, 1, 0)
            finally:
                os.close(file)
