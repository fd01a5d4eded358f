"""Several filesystems with equal inode numbers below one mirror: different files are different, hard links are one file."""

import os
import shutil
import subprocess

from mounted import MountTestCase

PROGRAM = """
import ctypes, sys
print(*(ctypes.CDLL(path).answer() for path in sys.argv[1:]))
"""


class TwoFilesystems(MountTestCase):
    """Two fresh ext2 images, and a third one mounted within the first. Each gives the same numbers to its files."""

    NAMES = ("a", "b", "a/inner")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if os.geteuid() != 0:
            cls.skipTest(cls, "needs root")
        cls.base = cls.make_directory() + "/base"
        for number, name in enumerate(cls.NAMES):
            cls.make_filesystem(f"{cls.base}/{name}", number)
        cls.two_trees = cls.launch_for_class(nodes=2, trees=[f"{cls.base}/a", f"{cls.base}/b"])
        cls.one_tree = cls.launch_for_class(nodes=2, trees=[cls.base])

    @classmethod
    def make_filesystem(cls, place, number):
        image = f"{cls.make_directory()}/image"
        subprocess.run(["mke2fs", "-q", "-t", "ext2", image, "8M"], check=True)
        os.makedirs(place, exist_ok=True)
        subprocess.run(["mount", "-o", "loop", image, place], check=True)
        cls.addClassCleanup(subprocess.run, ["umount", place], check=True)
        os.rmdir(f"{place}/lost+found")
        os.makedirs(f"{place}/directory")
        for name in ("file", "directory/file"):
            with open(f"{place}/{name}", "w", encoding="ascii") as file:
                file.write(f"{name} of {number}\n")
        os.link(f"{place}/file", f"{place}/directory/hard link")
        subprocess.run(["cc", "-shared", "-xc", "-o", f"{place}/library.so", "-"], check=True, text=True,
                       input=f"int answer(void) {{ return {number}; }}")

    def roots(self):
        """Where programs find the filesystems: on both nodes, as two trees and as one."""
        for job in (self.two_trees, self.one_tree):
            for node in range(2):
                yield job.mirrored(node, self.base)

    def test_numbers(self):
        told = []
        for root in self.roots():
            paths = [root + path.removeprefix(self.base) for path in self.all_paths()]
            told.append([os.lstat(path).st_ino for path in paths])
            for path in paths:
                for other in paths:
                    real = [self.base + one.removeprefix(root) for one in (path, other)]
                    self.assertEqual(os.path.samefile(*real), os.path.samefile(path, other), (path, other))
            for path in paths:
                if os.path.isdir(path):
                    self.check_listed_numbers(path)
        self.assertEqual(told[0], told[1], "the two nodes of the job with two trees")
        self.assertEqual(told[2], told[3], "the two nodes of the job with one")

    def all_paths(self):
        found = []
        for name in ("a", "b"):  # the mount point `base` itself is on the same filesystem in all mirrors
            for directory, _, files in os.walk(f"{self.base}/{name}"):
                found += [directory] + [f"{directory}/{file}" for file in files]
        return sorted(found)

    def check_listed_numbers(self, path):
        with os.scandir(path) as entries:
            for entry in entries:
                if not os.path.ismount(entry.path.replace(path, self.original_of(path))):
                    self.assertEqual(os.lstat(entry.path).st_ino, entry.inode(), entry.path)

    def original_of(self, path):
        return self.base + path.partition(self.base)[2]

    def test_the_first_tree_keeps_its_numbers(self):
        real = os.stat(f"{self.base}/a/file").st_ino
        self.assertEqual(real, os.stat(f"{self.base}/b/file").st_ino, "else this test shows nothing")
        path = self.two_trees.mirrored(1, f"{self.base}/a/file")
        self.assertEqual(real, os.stat(path).st_ino)

    def test_libraries(self):
        for root in self.roots():
            paths = [f"{root}/{name}/library.so" for name in self.NAMES]
            done = self.run_program("/usr/bin/python3", "-c", PROGRAM, *paths)
            self.assertEqual(b"0 1 2\n", done.stdout)

    def test_cmp(self):
        for root in self.roots():
            self.run_program("cmp", f"{root}/a/file", f"{root}/b/file", expected=1)

    def test_copies(self):
        for root in self.roots():
            for how in ("cp -a SOURCES TARGET", "tar -c SOURCES | tar -x -C TARGET", "rsync -aH SOURCES TARGET"):
                target = self.make_directory()
                script = how.replace("SOURCES", "a b").replace("TARGET", target)
                self.run_program("bash", "-o", "pipefail", "-ec", script, cwd=root)
                self.run_program("diff", "-r", self.base, target)
                for name in self.NAMES:
                    link = os.stat(f"{target}/{name}/directory/hard link")
                    self.assertTrue(os.path.samestat(os.stat(f"{target}/{name}/file"), link), (how, name))
                    self.assertEqual(2, link.st_nlink, (how, name))
                shutil.rmtree(target)

    def test_walks(self):
        for words in (["find", "a", "b"], ["ls", "-R", "a", "b"], ["grep", "-r", "of", "a", "b"],
                      ["du", "-sk", "a", "b"]):
            expected = self.run_program(*words, cwd=self.base)
            for root in self.roots():
                done = self.run_program(*words, cwd=root)
                self.assertEqual(sorted(expected.stdout.splitlines()), sorted(done.stdout.splitlines()), words)
                self.assertEqual(b"", done.stderr, words)
