"""More requests than Copper has room for: slower, but right."""

import hashlib
import os
import pathlib
import resource
import signal
import subprocess

from copper import REPOSITORY, build_directory, mounts_below, wait_until
from import_storm import Workload, package_tree, storm
from mounted import MountTestCase

FLOOD = str(REPOSITORY / "tests" / "support" / "flood.py")
TREE = "/usr/share/perl5"


class Overload(MountTestCase):
    def flood(self, count, *words):
        """Processes that wait for a line."""
        limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        if limit not in (resource.RLIM_INFINITY, -1) and limit < 2 * count:
            self.skipTest(f"only {limit} processes are allowed")
        flood = subprocess.Popen(["/usr/bin/python3", "-SE", FLOOD, str(count), *words], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(flood.stdout.close)
        self.addCleanup(flood.wait)
        self.addCleanup(flood.kill)
        self.assertEqual("ready\n", flood.stdout.readline())
        return flood

    def serve_file(self, size):
        """A backing filesystem that can be stopped."""
        place = self.make_directory()
        backing = subprocess.Popen([str(build_directory() / "bench" / "bare_file"), place, str(size)])
        self.addCleanup(backing.wait)
        self.addCleanup(backing.kill)
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        wait_until(lambda: mounts_below(place), 20, "the backing mount")
        return place, backing

    def test_more_requests_than_a_daemon_takes(self):
        """While the backing filesystem hangs, requests wait in the kernel, and the daemon does not hang."""
        place, backing = self.serve_file(1 << 20)
        job = self.launch(nodes=1, trees=[place, TREE])
        file = job.mirrored(0, f"{place}/file")
        os.stat(file)
        count = 5000  # more than RequestSlots has
        flood = self.flood(count, "getxattr", file)
        os.kill(backing.pid, signal.SIGSTOP)
        flood.stdin.write("\n")
        flood.stdin.flush()
        wait_until(lambda: job.totals()["fuse"]["requests"] >= 4096, 60, "the flood")
        self.assertIn("serving", job.status())
        os.kill(backing.pid, signal.SIGCONT)
        self.assertEqual(f"{count}\n", flood.stdout.readline())

    def test_processes_that_open_at_once(self):
        job = self.launch(nodes=2, trees=[TREE])
        path = max((path for path in pathlib.Path(TREE).rglob("*.pm") if path.is_file()),
                   key=lambda path: path.stat().st_size)
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        count = 10_000
        flood = self.flood(count, "read", checksum, job.mirrored(0, path), job.mirrored(1, path))
        flood.stdin.write("\n")
        flood.stdin.flush()
        self.assertEqual(f"{count}\n", flood.stdout.readline())
        totals = job.totals()
        self.assertIn(totals["backing"]["file_opens"], (1, 2) if job.lone_reads() else (1,), totals)

    def test_few_descriptors(self):
        tree = package_tree("numpy")
        job = self.launch(nodes=2, trees=[tree], prefix=["prlimit", "--nofile=64:64"])
        storm(Workload(packages=["scipy.stats"], trees=[tree]), [job.root(node) for node in (0, 1, 0, 1)])
        self.assertEqual(0, job.totals()["fallbacks"]["corrupt"])


class FullTmp(MountTestCase):
    alone = True  # has a /tmp of its own

    def setUp(self):
        self.need_root()
        self.run_program("mount", "-o", "remount,size=64m", "/tmp")

    def fill(self):
        """Leaves no byte of /tmp free."""
        self.addCleanup(pathlib.Path("/tmp/full").unlink, missing_ok=True)
        with open("/tmp/full", "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass

    def test_launch_says_so(self):
        job = self.prepare(nodes=2, trees=[TREE])
        self.fill()
        done = job.command(*job.launch_words())
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "(?i)no space left")
        done = job.command("doctor", "--tree", TREE, "--launcher", "none")
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stdout, "PROBLEM  tmp: /tmp: no space left .*: remove what is not needed there\n")
        os.unlink("/tmp/full")
        job.launch()

    def test_launch_says_that_no_files_are_left(self):
        used = os.statvfs("/tmp").f_files - os.statvfs("/tmp").f_favail
        self.run_program("mount", "-o", f"remount,nr_inodes={used + 150}", "/tmp")
        self.addCleanup(self.run_program, "mount", "-o", "remount,nr_inodes=1000000", "/tmp")
        job = self.prepare(nodes=2, trees=[TREE])
        done = job.command("doctor", "--tree", TREE, "--launcher", "none")
        self.assertRegex(done.stdout, r"PROBLEM  tmp: /tmp: no space left \(\d+ files; .*: remove what is not needed there\n")
        done = job.command(*job.launch_words())
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"no space left \(\d+ files; ")

    def test_programs_notice_nothing(self):
        job = self.launch(nodes=2, trees=[TREE])
        self.fill()
        for path in pathlib.Path(TREE).rglob("*.pm"):
            self.assertEqual(path.read_bytes(), pathlib.Path(job.mirrored(1, path)).read_bytes())
        self.assertIn("serving", job.status())
        os.kill(job.daemons()[1], signal.SIGKILL)
        self.assertEqual(sorted(os.listdir(TREE)), sorted(os.listdir(job.mirrored(1, TREE))))
        done = job.stop()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual([], job.leftovers())
