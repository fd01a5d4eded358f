"""Programs that use the mirrors of a job while parts of the job fail, and what they saw."""

import json
import pathlib
import subprocess

WITNESS = str(pathlib.Path(__file__).resolve().parent / "witness.py")


class Witnesses:
    """A context: the programs run from its beginning to its end, and `seen` has their results. Each program prints a line when
    it begins, and one with its result."""

    def __init__(self, commands):
        self.commands = commands
        self.running = []
        self.seen = []

    def __enter__(self):
        for command in self.commands:
            self.running.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                                 cwd="/"))
        for process in self.running:  # a busy machine is slow to start them
            process.stdout.readline()
        return self

    def __exit__(self, kind, error, trace):
        for process in self.running:
            process.stdin.close()
        for process in self.running:
            text = process.stdout.read()
            process.stdout.close()
            if process.wait(timeout=60) == 0 and text:
                self.seen.append(json.loads(text))

    def problems(self):
        """Failed calls and wrong bytes, in words."""
        found = [text for one in self.seen for text in one["failed"] + one["wrong"]]
        if len(self.seen) != len(self.commands):
            found.append(f"{len(self.commands) - len(self.seen)} witnesses did not live to tell")
        return found

    def calls(self):
        return sum(one["calls"] for one in self.seen)

    def longest(self):
        return max((one["longest"] for one in self.seen), default=0.0)


def again_and_again(command):
    """A witness that runs this command over and over, and gives up when it fails."""
    script = ('echo begins; until read -t 0 line && [ "$n" ]; do "$@" || exit 1; n=$((n + 1)); done; '
              'echo "{\\"calls\\": $n, \\"failed\\": [], \\"wrong\\": [], \\"longest\\": 0}"')
    return ["bash", "-c", script, "again", *command]


def witness(root, tree):
    return ["/usr/bin/python3", WITNESS, root, tree]
