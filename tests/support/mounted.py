"""The base of tests that mount: skips them if mounting is impossible, and fails tests that leave something behind."""

import os
import shutil
import subprocess
import tempfile
import unittest

from copper import Copper, CopperError, device_for_everybody, why_no_mount


class MountTestCase(unittest.TestCase):
    maxDiff = 4000

    @classmethod
    def setUpClass(cls):
        reason = why_no_mount()
        if reason:
            raise unittest.SkipTest(reason)

    @classmethod
    def make_directory(cls, owner=None):
        """A private directory, removed after the class (or after the test, if made through an instance)."""
        directory = tempfile.mkdtemp(prefix="copper-test-", dir="/tmp")
        os.chmod(directory, 0o755)
        if owner is not None:
            os.chown(directory, owner, owner)
        cls.addClassCleanup(shutil.rmtree, directory, ignore_errors=True)
        return directory

    @classmethod
    def launch_for_class(cls, **options):
        job = Copper(**options)
        job.open()
        cls.addClassCleanup(cls.check_closed, job)
        job.launch()
        return job

    @staticmethod
    def check_closed(job):
        leftovers = job.close()
        if leftovers:
            raise CopperError("; ".join(leftovers))

    def prepare(self, **options):
        """A job, not launched yet. Stops at the end of the test, which fails if the job left something."""
        job = Copper(**options).open()
        self.addCleanup(self.check_closed, job)
        return job

    def launch(self, **options):
        job = self.prepare(**options)
        job.launch()
        return job

    def need_root(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")

    def device_for_everybody(self):
        return self.enterContext(device_for_everybody())

    def run_program(self, *words, **options):
        """Runs a program and returns its output; `expected` is its exit code (0)."""
        expected = options.pop("expected", 0)
        done = subprocess.run([os.fspath(word) for word in words], capture_output=True, timeout=120,
                              stdin=subprocess.DEVNULL, check=False, **options)
        self.assertEqual(expected, done.returncode, f"{words}: {done.stdout[-2000:]} {done.stderr[-2000:]}")
        return done
