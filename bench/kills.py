#!/usr/bin/python3
"""Kills daemons at random while programs on all nodes import and compare files, and prints what they noticed.

    bench/kills.py [--kills N] [--seed S] [--tree DIR]

Each round is a job of 4 nodes with one reader. On each node two programs read through the mirror and compare with the
original (tests/support/witness.py), and two import again and again. Then daemons are killed at random times: all of
them, in random order, for the first row; one that is not the reader, or the reader, for the others. After that
`copper stop`; what is left behind counts as a failure, too.
"""

import argparse
import json
import os
import random
import signal
import statistics
import sys
import time

from import_storm import Workload, package_tree, print_table
from copper import Copper, CopperError, handle_termination, nodes_of, wait_until, why_no_mount
from must_hold import Row
from witnesses import Witnesses, again_and_again, witness

NODES = 4
PAUSE_ROUNDS = 7


class Rounds:
    def __init__(self, dice, tree):
        self.dice = dice
        self.tree = tree
        self.load = Workload(packages=["numpy"], trees=[package_tree("numpy")])
        self.calls = 0
        self.problems = []

    def programs(self, job):
        for node in range(NODES):
            root = job.root(node)
            variables = [f"{key}={value}" for key, value in self.load.environment(root).items()]
            for _ in range(2):
                yield witness(root, self.tree)
                yield again_and_again(["env", "-i", *variables, *self.load.command(root)])

    def kill(self, job, rank):
        time.sleep(self.dice.uniform(0, 0.5))  # the moment is what is random here
        daemon = job.daemons()[rank]
        os.kill(daemon, signal.SIGKILL)

        def is_succeeded():
            now = job.daemons()
            return len(now) == NODES and now[rank] != daemon
        wait_until(is_succeeded, 20, "a successor")

    def play(self, choose):
        """One job, in which the nodes that choose(job) names lose their daemons. Returns the longest call."""
        try:
            with Copper(nodes=NODES, trees=[*self.load.trees, self.tree],
                        options=["--readers", "1", "--deadline", "2"]) as job:
                with Witnesses(list(self.programs(job))) as witnesses:
                    for rank in choose(job):
                        self.kill(job, rank)
                    time.sleep(1)  # for what a lost reader costs those who find out late
        except CopperError as error:
            self.problems.append(str(error))
            return float("inf")
        self.calls += witnesses.calls()
        self.problems += witnesses.problems()
        return witnesses.longest()

    def all(self, _):
        return self.dice.sample(range(NODES), NODES)

    def reader(self, job):
        return [int(node["RANK"]) for node in nodes_of(job.status()) if node["READER"] == "yes"]

    def another(self, job):
        return [self.dice.choice([rank for rank in range(NODES) if rank not in self.reader(job)])]


def pause_row(rounds, what, choose, goal):
    longest = [rounds.play(choose) for _ in range(PAUSE_ROUNDS)]
    return Row(f"longest call of any program when {what} is lost: median and worst of {PAUSE_ROUNDS} rounds",
               f"below {goal} s", f"{statistics.median(longest):.2f} s, {max(longest):.2f} s", max(longest) < goal)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--tree", default=package_tree("numpy"), help="what is read and compared (default %(default)s)")
    options = parser.parse_args()
    if reason := why_no_mount():
        sys.exit(f"kills.py: {reason}")
    handle_termination()
    print(f"seed {options.seed}")
    rounds = Rounds(random.Random(options.seed), options.tree)
    kills = 0
    while kills < options.kills and not rounds.problems:
        rounds.play(rounds.all)
        kills += NODES
    rows = [Row(f"calls that fail, bytes that are wrong, things left behind, in {kills} kills", "0",
                f"{len(rounds.problems)} (of {rounds.calls} calls and imports)", not rounds.problems),
            pause_row(rounds, "a daemon that is no reader", rounds.another, 1),
            pause_row(rounds, "the reader", rounds.reader, 2)]
    print_table([("what", "goal", "measured", ""), *(row.cells() for row in rows)])
    if rounds.problems:
        print(json.dumps(rounds.problems[:20], indent=1), file=sys.stderr)
    return 1 if rounds.problems else 0


if __name__ == "__main__":
    sys.exit(main())
