#!/usr/bin/python3
"""Measures `copper refresh` on this machine, and what readers see meanwhile.

    bench/refresh.py [--rounds N] [--files N] [--readers N] [--seed S] [--pairs N]

First, rounds: all files of a tree get a new version, half of them in place; then a refresh of the tree. Readers, all the time,
open files at random on all nodes: what they read is of one version, and none that was out of date when they opened it. In every
tenth round, a daemon is killed during the refresh. When it has returned, every file is new on every node.

Then a refresh of one file on eight nodes, beside one that changes nothing: time and messages.
"""

import argparse
import errno
import multiprocessing
import os
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))

from copper import Copper, handle_termination, wait_until, why_no_mount

NODES = 4
NODES_OF_ONE_FILE = 8
FILES_OF_A_DIRECTORY = 100
ROUNDS_WITH_A_KILL = 10
SECONDS_MAX = 60


def text_of(version, size):
    return (f"{version:08}." * (size // 9 + 1))[:size].encode()


def version_of(data):
    """Fails if the bytes are of several versions."""
    version = int(data[:8])
    if data != text_of(version, len(data)):
        raise ValueError(f"bytes of several versions, the first of {version}: {data[:64]!r}")
    return version


class Tree:
    def __init__(self, directory, files):
        self.directory = directory
        self.names = [f"{number // FILES_OF_A_DIRECTORY:03}/{number:05}" for number in range(files)]
        for name in self.names:
            os.makedirs(f"{directory}/{os.path.dirname(name)}", exist_ok=True)
        self.write(1)

    def write(self, version):
        """A new and longer version of each file: one half in place, at once, one half under the name of the old one."""
        for number, name in enumerate(self.names):
            path = pathlib.Path(f"{self.directory}/{name}")
            data = text_of(version, 1000 + 7 * version + number % 3000)
            if version > 1 and (number + version) % 2 == 0:
                with open(path, "r+b", buffering=0) as file:
                    file.write(data)
            else:
                new = pathlib.Path(f"{path}.new")
                new.write_bytes(data)
                new.replace(path)


def read_on(roots, names, refreshed, end, seed, results):
    """Until it is told to end. `refreshed`: the version that everybody sees."""
    chance = random.Random(seed)
    reads = stale = 0
    problems = []
    while not end.value and len(problems) < 5:
        path = f"{chance.choice(roots)}/{chance.choice(names)}"
        least = refreshed.value
        try:
            with open(path, "rb") as file:
                version = version_of(file.read())
            if version < least:
                problems.append(f"{path}: version {version} after the refresh to {least}")
            reads += 1
        except OSError as error:
            if error.errno == errno.ESTALE:
                stale += 1
            else:
                problems.append(str(error))
        except ValueError as error:
            problems.append(f"{path}: {error}")
    results.put((reads, stale, problems))


def refresh(job, path):
    began = time.monotonic()
    done = job.command("refresh", "--mount", job.mount, path)
    if done.returncode != 0:
        raise RuntimeError(f"copper refresh: {done.stderr}")
    return time.monotonic() - began


def kill_one(job, chance):
    time.sleep(chance.uniform(0, 0.2))
    os.kill(job.daemons()[chance.randrange(NODES)], signal.SIGKILL)


def check_all(job, tree, version):
    """Every file on every node."""
    wrong = []
    for node in range(NODES):
        for name in tree.names:
            found = version_of(pathlib.Path(job.mirrored(node, f"{tree.directory}/{name}")).read_bytes())
            if found != version:
                wrong.append(f"{name} on node {node}: version {found} after the refresh to {version}")
    return wrong


def rounds_of_a_job(tree, version, rounds, options, chance):
    """Returns (reads, ESTALE, seconds of each refresh, problems)."""
    refreshed, end = multiprocessing.Value("Q", version), multiprocessing.Value("B", 0)
    problems, seconds = [], []
    with Copper(nodes=NODES, trees=[tree.directory]) as job:
        roots = [job.mirrored(node, tree.directory) for node in range(NODES)]
        results = multiprocessing.SimpleQueue()
        processes = [multiprocessing.Process(target=read_on, args=(roots, tree.names, refreshed, end, chance.random(), results))
                     for _ in range(options.readers)]
        for process in processes:
            process.start()
        for number in range(rounds):
            version += 1
            tree.write(version)
            killer = threading.Thread(target=kill_one, args=(job, chance)) if number + 1 == ROUNDS_WITH_A_KILL else None
            if killer:
                killer.start()
            seconds.append(refresh(job, tree.directory))
            refreshed.value = version
            if killer:
                killer.join()
            problems += check_all(job, tree, version)
        end.value = 1
        found = [results.get() for _ in processes]
        for process in processes:
            process.join()
    for _, _, more in found:
        problems += more
    return sum(one[0] for one in found), sum(one[1] for one in found), seconds, problems


def measure_rounds(options, chance):
    reads = stale = 0
    seconds, problems = [], []
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        tree = Tree(directory, options.files)
        version = 1
        while len(seconds) < options.rounds and not problems:
            rounds = min(ROUNDS_WITH_A_KILL, options.rounds - len(seconds))
            more = rounds_of_a_job(tree, version, rounds, options, chance)
            version += rounds
            reads, stale, problems = reads + more[0], stale + more[1], problems + more[3]
            seconds += more[2]
            print(f"{len(seconds)} of {options.rounds} refreshes: {reads} reads, {len(problems)} wrong", file=sys.stderr, flush=True)
    print(f"{len(seconds)} refreshes of {options.files} files on {NODES} nodes, {len(seconds) // ROUNDS_WITH_A_KILL} with a killed daemon, "
          f"{options.readers} readers: {reads} reads, {stale} of them ESTALE, {len(problems)} wrong; "
          f"a refresh takes {statistics.median(seconds):.2f} s, at most {max(seconds):.2f} s")
    for problem in problems[:20]:
        print(f"  {problem}")
    return not problems


def messages(job):
    return sum(node["fabric"]["messages_sent"] for node in job.stats()["per_node"])


def measure_one_file(pairs):
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        file = pathlib.Path(f"{directory}/file")
        file.write_bytes(text_of(1, 1000))
        with Copper(nodes=NODES_OF_ONE_FILE, trees=[directory]) as job:
            beside, seconds, sent = [], [], []
            for version in range(2, 2 + pairs):
                for node in range(NODES_OF_ONE_FILE):
                    version_of(pathlib.Path(job.mirrored(node, file)).read_bytes())
                file.write_bytes(text_of(version, 1000))
                began = time.monotonic()
                job.command("path", "--mount", job.mount, file)
                beside.append(time.monotonic() - began)
                first, second = messages(job), messages(job)
                seconds.append(refresh(job, file))
                sent.append(messages(job) - second - (second - first))
                for node in range(NODES_OF_ONE_FILE):
                    if version_of(pathlib.Path(job.mirrored(node, file)).read_bytes()) != version:
                        raise RuntimeError(f"node {node} sees the old file")
    print(f"a refresh of one file on {NODES_OF_ONE_FILE} nodes: {1000 * statistics.median(seconds):.0f} ms "
          f"({1000 * statistics.median(beside):.0f} ms: a command of copper that asks nobody), "
          f"{statistics.median(sent) / NODES_OF_ONE_FILE:.2f} messages a node")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--files", type=int, default=10000)
    parser.add_argument("--readers", type=int, default=16)
    parser.add_argument("--pairs", type=int, default=21)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    reason = why_no_mount()
    if reason:
        sys.exit(f"refresh.py: {reason}")
    handle_termination()
    print(f"seed {options.seed}", flush=True)
    measure_one_file(options.pairs)
    sys.exit(0 if measure_rounds(options, random.Random(options.seed)) else 1)


if __name__ == "__main__":
    main()
