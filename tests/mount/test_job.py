"""`copper job`: launch, a command, statistics, stop."""

import os
import pathlib
import signal
import subprocess
import unittest

from copper import copper_program, mounts_below, processes_of, wait_until
from mounted import MountTestCase


class Job(MountTestCase):
    def setUp(self):
        self.tree = self.make_directory()
        pathlib.Path(self.tree, "value").write_text("1\n", encoding="utf-8")
        self.job = self.prepare(nodes=2, trees=[self.tree])

    def words(self, *command):
        return ["job", *self.job.launch_words()[1:], "--", *command]

    def check_nothing_left(self):
        self.assertEqual([], self.job.leftovers())
        self.assertEqual([], mounts_below(self.job.directory))

    def test_command(self):
        """Its output and exit code are those of the job. It sees the mirror at the original path."""
        done = self.job.command(*self.words("sh", "-c", f'cat "{self.tree}/value"; grep -c " {self.tree} " /proc/self/mountinfo; '
                                                        'echo "$@" --tree; exit 7', "sh", "--node", "1"))
        self.assertEqual((7, "1\n1\n--node 1 --tree\n"), (done.returncode, done.stdout), done.stderr)
        for line in ("nodes         2 of 2 serve", "files         1 read by your programs", "direct reads  0"):
            self.assertIn(f"\n{line}", done.stderr)
        self.check_nothing_left()

    def test_node_that_may_lack_a_mirror(self):
        os.makedirs(f"{self.job.root(1)}/precious")
        self.job.options += ["--allow-missing", "1"]
        read = f'{copper_program()} run --mount {self.job.mount} --node'
        done = self.job.command(*self.words("sh", "-c", f'for node in 0 1; do {read} $node cat "{self.tree}/value"; done'))
        self.assertEqual((0, "1\n1\n"), (done.returncode, done.stdout), done.stderr)
        self.assertRegex(done.stderr, "(?m)^copper: .*#1 has no mirror: .*not empty")
        self.assertEqual(1, done.stderr.count("copper: this node has no mirror (--allow-missing): cat reads the filesystem itself\n"))
        self.assertIn("\nnodes         1 of 2 serve", done.stderr)
        os.rmdir(f"{self.job.root(1)}/precious")
        os.rmdir(self.job.root(1))
        self.check_nothing_left()

    def test_what_it_reads(self):
        done = subprocess.run([copper_program(), *self.words("cat")], input="words\n", capture_output=True, text=True, check=False,
                              env=self.job.environment, timeout=60)
        self.assertEqual((0, "words\n"), (done.returncode, done.stdout), done.stderr)
        self.check_nothing_left()

    def test_without_standard_error(self):
        words = ["sh", "-c", 'exec "$@" 2>&-', "sh", copper_program(), *self.words("echo", "runs")]
        self.assertEqual(b"runs\n", self.run_program(*words, env=self.job.environment).stdout)
        self.check_nothing_left()

    def test_commands_that_start_programs_elsewhere(self):
        """They pass variables on; the programs would not be in this node's view."""
        launcher = pathlib.Path(self.make_directory(), "srun")
        launcher.write_text('#!/bin/sh\necho "$PATH"\n', encoding="utf-8")
        launcher.chmod(0o755)
        os.mkdir(f"{self.tree}/bin")
        self.job.environment["PATH"] = f"{self.tree}/bin:{self.job.environment['PATH']}"
        self.assertTrue(self.job.command(*self.words(launcher)).stdout.startswith(self.job.root(0)))

    def test_what_fails(self):
        for command, code, said in ((("no-such-program",), 127, "no-such-program: not found"), (("sh", "-c", "kill -9 $$"), 137, "")):
            done = self.job.command(*self.words(*command))
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(said, done.stderr)
            self.check_nothing_left()
        done = self.job.command("job", "--local", "2", "--mount", self.job.mount, "--tree", f"{self.tree}/absent", "--", "echo", "runs")
        self.assertEqual((2, ""), (done.returncode, done.stdout), done.stderr)
        self.assertIn(f"--tree: {self.tree}/absent", done.stderr)
        self.assertEqual(2, self.job.command("job", "--tree", self.tree).returncode)

    def test_signals_of_the_command(self):
        """It has them as outside, and words as they are."""
        outside = subprocess.run(["grep", "SigBlk", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
        done = self.job.command(*self.words("sh", "-c", 'grep SigBlk /proc/self/status; echo "$@"', "sh", "[a,b]", "[]"))
        self.assertEqual(f"{outside}[a,b] []\n", done.stdout, done.stderr)
        with subprocess.Popen([copper_program(), *self.words("sh", "-c", "echo ready; exec sleep 60")], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.job.environment) as job:
            self.assertEqual("ready\n", job.stdout.readline())
            job.send_signal(signal.SIGTERM)
            job.communicate(timeout=40)
        self.assertEqual(143, job.returncode)
        self.check_nothing_left()

    def test_signal(self):
        """The command gets it, and the mirror ends in order."""
        script = 'trap "echo caught; exit 3" TERM; echo ready; while :; do sleep 0.1; done'
        with subprocess.Popen([copper_program(), *self.words("sh", "-c", script)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, env=self.job.environment) as job:
            self.assertEqual("ready\n", job.stdout.readline())
            job.send_signal(signal.SIGTERM)
            said, errors = job.communicate(timeout=60)
        self.assertEqual((3, "caught\n"), (job.returncode, said), errors)
        self.check_nothing_left()
        wait_until(lambda: not processes_of(self.job.directory), 20, "the end of all processes")


if __name__ == "__main__":
    unittest.main()
