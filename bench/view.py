#!/usr/bin/python3
"""Measures the view of `copper run`: a warm import in it, and MPI between the ranks of a node.

    bench/view.py [--runs N]

Prints medians of interleaved runs. As root, the MPI part runs as another user, because only users' views have a user
namespace, in which alone ranks may read each other's memory.
"""

import argparse
import contextlib
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))

from copper import (NOBODY, Copper, as_nobody, build_directory, clean_environment, copper_program, device_for_everybody,
                    handle_termination, is_built_with_mpich)
from import_storm import PYTHON, package_tree, print_table, spread

BYTES = 1 << 20
IMPORTS = """
import statistics, subprocess, sys, time
def seconds():
    start = time.perf_counter()
    subprocess.run([sys.executable, '-c', 'import scipy.stats'], check=True)
    return time.perf_counter() - start
print(statistics.median(seconds() for _ in range(5)))
"""


def in_view(job):
    return [copper_program(), "run", "--mount", job.root(0), "--view", "bind", "--"]


def warm_import(runs):
    """Programs in the view import once more, beside some outside. (The requests are of an interpreter's start.)"""
    tree = package_tree("numpy")
    environment = clean_environment(PYTHONPATH=tree, PYTHONDONTWRITEBYTECODE=1)
    with Copper(nodes=1, trees=[tree]) as job:
        def timed(prefix):
            return float(subprocess.run([*prefix, PYTHON, "-c", IMPORTS], check=True, capture_output=True, env=environment,
                                        cwd="/").stdout)
        direct, viewed = [], []
        timed(in_view(job)), timed([])
        before = job.totals()["fuse"]["requests"]
        for _ in range(runs):
            viewed.append(timed(in_view(job)))
            direct.append(timed([]))
        requests = job.totals()["fuse"]["requests"] - before
    return ("warm import of scipy.stats, in the view against direct",
            f"{statistics.median(viewed) / statistics.median(direct):.3f} x: {spread(viewed)} s, {spread(direct)} s; "
            f"{requests} requests of {6 * runs} interpreters")


@contextlib.contextmanager
def user_job(tree):
    """A job of a user other than root, and the prefix of its commands."""
    if os.geteuid() != 0:
        with Copper(nodes=1, trees=[tree]) as job:
            yield job, []
        return
    with device_for_everybody() as keeper:
        home = tempfile.mkdtemp(prefix="copper-bench-", dir="/tmp")
        os.chown(home, NOBODY, NOBODY)
        try:
            prefix = ["nsenter", "-t", str(keeper), "-m", "--", *as_nobody()]
            with Copper(nodes=1, trees=[tree], prefix=prefix, directory=home, mounted_for=keeper,
                        environment={"HOME": home, "USER": "nobody", "TMPDIR": home}) as job:
                yield job, prefix
        finally:
            shutil.rmtree(home, ignore_errors=True)


def copies(words, environment, trace):
    """How often the ranks copied from each other's memory."""
    subprocess.run(words, check=True, capture_output=True, env=environment, cwd="/")
    lines = "".join(file.read_text(encoding="utf-8") for file in pathlib.Path(trace).parent.glob(f"{os.path.basename(trace)}.*"))
    return len(re.findall(r"^process_vm_\w+\(.*= \d+$", lines, re.MULTILINE))


def mpi(runs):
    """MPI_Bcast of 1 MiB between two ranks of a node: both in the view, both outside, each in a user namespace of its own."""
    program = [build_directory() / "bench" / "copper_bcast", "--mpi-only", "--runs", "21", str(BYTES)]
    launcher = ["mpiexec.mpich", "-n", "2"] if is_built_with_mpich() else ["mpirun", "--oversubscribe", "-n", "2"]
    with user_job(package_tree("numpy")) as (job, prefix):
        ways = {"view": in_view(job), "outside": [], "apart": ["unshare", "--user", "--map-current-user"]}
        times = {way: [] for way in ways}
        for _ in range(runs):
            for way, words in ways.items():
                done = subprocess.run([*prefix, *launcher, *words, *program], check=True, capture_output=True, text=True,
                                      env=job.environment, cwd="/")
                times[way].append(float(done.stdout) * 1e6)
        copied = {}
        for way, words in ways.items():
            trace = f"{job.directory}/trace-{way}"
            watched = ["strace", "-ff", "-e", "trace=process_vm_readv,process_vm_writev", "-o", trace]
            copied[way] = copies([*prefix, *launcher, *words, *watched, *program], job.environment, trace)
    outside = statistics.median(times["outside"])
    yield "copies from the other rank's memory: in the view; outside; apart", "; ".join(map(str, copied.values()))
    for way, what in (("view", "in the view"), ("apart", "apart (each in a user namespace of its own)")):
        yield (f"MPI_Bcast of 1 MiB between 2 ranks of a node, {what}, against outside",
               f"{statistics.median(times[way]) / outside:.2f} x: {spread(times[way])} us, {spread(times['outside'])} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    arguments = parser.parse_args()
    handle_termination()
    started = time.perf_counter()
    print_table([("what", "measured"), warm_import(arguments.runs), *mpi(arguments.runs)])
    print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
