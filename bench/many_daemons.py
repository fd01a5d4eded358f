#!/usr/bin/python3
"""Many real daemons on this machine, beside few: what they take, and that the filesystem is asked no more.

    bench/many_daemons.py [--nodes "4 64"] [--packages "numpy"]

For each number of nodes: a launch; an import on every node, all at once; a daemon is killed, until another node says so, and the
import again on every node; a stop. All share the cores of this machine, so seconds grow with the nodes, and counts must not.
Memory is that of daemons and supervisors after the first import (Pss, which adds up, of smaps_rollup).
"""

import argparse
import os
import pathlib
import re
import signal
import sys
import time

from import_storm import Workload, package_tree, print_table, storm
from copper import Copper, handle_termination, nodes_of, wait_until, why_no_mount

LOSS_SECONDS_MAX = 120


def timed(action):
    began = time.monotonic()
    action()
    return time.monotonic() - began


def memory_bytes(job):
    """Of all the job's processes together."""
    return sum(1024 * int(re.search(r"^Pss: +(\d+) kB", pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[1])
               for pid in job.own_processes())


def measure(nodes, packages):
    load = Workload(packages=packages, trees=[package_tree(packages[0].partition(".")[0])])
    began = time.monotonic()
    with Copper(nodes=nodes, trees=load.trees, options=["--ready-timeout", "600"]) as job:
        launch = time.monotonic() - began
        roots = [job.root(node) for node in range(nodes)]
        first = storm(load, roots)
        second = storm(load, roots)
        backing, lone_reads = job.totals()["backing"], job.lone_reads()
        memory = memory_bytes(job) / nodes
        os.kill(job.daemons()[-1], signal.SIGKILL)

        def is_known():
            return any(node["STATE"] != "serving" for node in nodes_of(job.status()))
        loss = timed(lambda: wait_until(is_known, LOSS_SECONDS_MAX, "the loss is known"))
        after = storm(load, roots)
        stop = timed(lambda: job.stop())
        left = job.leftovers()
    return [str(nodes), *(f"{seconds:.1f} s" for seconds in (launch, first, second, loss, after, stop)),
            f"{backing['listings']}; {backing['file_opens']}; {lone_reads}", f"{memory / 1e6:.0f} MB", str(len(left))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="4 64", metavar="NUMBERS", help="(%(default)s)")
    parser.add_argument("--packages", default="numpy", metavar="NAMES", help="what is imported, together (%(default)s)")
    options = parser.parse_args()
    if reason := why_no_mount():
        sys.exit(f"many_daemons.py: {reason}")
    handle_termination()
    print_table([("nodes", "launch", "first import", "second", "loss is known", "import after it", "stop",
                  "listings; opens; lone reads", "memory a node", "left"),
                 *(measure(nodes, options.packages.split()) for nodes in map(int, options.nodes.split()))])


if __name__ == "__main__":
    main()
