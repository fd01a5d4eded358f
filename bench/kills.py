#!/usr/bin/python3
"""Kills daemons at random while programs on all nodes import and compare files, and prints what they noticed.

    bench/kills.py [--kills N] [--seed S]

Each round is a job of 4 nodes with one reader. On each node two programs read through the mirror and compare with the
original (tests/support/witness.py), and two import again and again. Then each node's daemon is killed, in random order
and at random times; after that `copper stop`. What is left behind counts as a failure, too.
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
from copper import Copper, CopperError, handle_termination, wait_until, why_no_mount
from must_hold import Row
from witnesses import Witnesses, witness

NODES = 4
PACKAGE = "numpy"
IMPORTS = ('while ! read -t 0 line; do "$@" || exit 1; n=$((n + 1)); done; '
           'echo "{\\"calls\\": $n, \\"failed\\": [], \\"wrong\\": [], \\"longest\\": 0}"')


def programs(job, load, tree):
    for node in range(NODES):
        root = job.root(node)
        variables = [f"{key}={value}" for key, value in load.environment(root).items()]
        for _ in range(2):
            yield witness(root, tree)
            yield ["env", "-i", *variables, "bash", "-c", IMPORTS, "imports", *load.command(root)]


def lost_by(job, rank, daemon):
    """Whether another daemon serves this node by now."""
    now = job.daemons()
    return len(now) == NODES and now[rank] != daemon


def round_of_kills(dice, load, tree):
    """One job. Returns the witnesses, and how many daemons were killed."""
    with Copper(nodes=NODES, trees=[*load.trees, tree], options=["--readers", "1", "--deadline", "2"]) as job:
        with Witnesses(list(programs(job, load, tree))) as witnesses:
            for rank in dice.sample(range(NODES), NODES):
                time.sleep(dice.uniform(0, 0.5))  # the moment is what is random here
                daemon = job.daemons()[rank]
                os.kill(daemon, signal.SIGKILL)
                wait_until(lambda rank=rank, daemon=daemon: lost_by(job, rank, daemon), 20, "a successor")
    return witnesses, NODES


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--tree", default="/usr/share/perl5", help="what is read and compared (default %(default)s)")
    options = parser.parse_args()
    if reason := why_no_mount():
        sys.exit(f"kills.py: {reason}")
    handle_termination()
    print(f"seed {options.seed}")
    dice = random.Random(options.seed)
    load = Workload(packages=[PACKAGE], trees=[package_tree("numpy")])
    kills = calls = 0
    problems, longest = [], []
    while kills < options.kills:
        try:
            witnesses, killed = round_of_kills(dice, load, options.tree)
        except CopperError as error:
            problems.append(str(error))
            break
        kills += killed
        calls += witnesses.calls()
        problems += witnesses.problems()
        longest.append(witnesses.longest())
    rows = (
        Row(f"calls of programs that fail, bytes that are wrong, things left behind, in {kills} kills", "0",
            f"{len(problems)} (of {calls} calls and imports)", not problems),
        Row("longest pause of one call while a daemon, reader or not, is lost (median and longest of the rounds)",
            "below 2 s", f"{statistics.median(longest):.2f} s, {max(longest):.2f} s", max(longest) < 2))
    print_table([("what", "goal", "measured", ""), *(row.cells() for row in rows)])
    if problems:
        print(json.dumps(problems[:20], indent=1), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
