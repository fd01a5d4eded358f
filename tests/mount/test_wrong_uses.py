"""Each wrong use in wrong_uses.txt ends with the exit code and the first line that stand there."""

import os
import pathlib
import re
import subprocess

from copper import (DOCUMENTS, REPOSITORY, build_directory, clean_environment, copper_program, mounts_below, processes_of,
                    wait_until)
from mounted import MountTestCase

LIST = pathlib.Path(__file__).with_name("wrong_uses.txt")
USES_MIN = 80


def wrong_uses():
    """Line, command, exit code and message of each."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if line.startswith("$ "):
            code, _, message = lines[number].partition(" ")
            yield number, line[2:], int(code), message


class WrongUses(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.job = cls.launch_for_class(nodes=2, trees=[DOCUMENTS])

    def run_in(self, directory, command):
        environment = clean_environment(PWD=directory, HOME=directory, USER=f"copper-test-{os.getpid()}", LC_ALL="C",
                                        JOB=self.job.mount, TREE=DOCUMENTS, SOURCE=REPOSITORY, COPPER=copper_program())
        environment["PATH"] = ":".join([f"{build_directory()}/tools", f"{build_directory()}/daemon", f"{REPOSITORY}/tools/job",
                                        environment["PATH"]])
        return subprocess.run(["bash", "-c", command], cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)

    def check(self, command, code, message):
        directory = self.make_directory()
        done = self.run_in(directory, command)
        first = (done.stderr.splitlines() or [""])[0]
        for name, place in (("$JOB", self.job.mount), ("$TREE", DOCUMENTS), ("$SOURCE", str(REPOSITORY)), ("$PWD", directory)):
            first = first.replace(place, name)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        self.assertRegex(first, "^" + ".*".join(re.escape(part) for part in message.split("...")) + "$")
        # Nobody waits for the supervisor of a daemon that never served: it has no record.
        wait_until(lambda: not processes_of(directory), 2, f"the end of {command}")
        self.assertEqual([], mounts_below(directory))

    def test_each(self):
        for line, command, code, message in wrong_uses():
            with self.subTest(f"{LIST.name}:{line}", command=command):
                self.check(command, code, message)

    def test_there_are_enough(self):
        commands = [command for _, command, _, _ in wrong_uses()]
        self.assertEqual(len(commands), len(set(commands)))
        self.assertGreaterEqual(len(commands), USES_MIN)
