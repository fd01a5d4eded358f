#!/usr/bin/python3
"""Measures what Copper promises (docs, "Must hold") on this machine, and prints it beside the goals.

    bench/must_hold.py [ROW ...]      all rows, or those named; --list names them

Direct and mirrored runs both find the backing tree in this machine's page cache. Times are medians of interleaved runs.
"""

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import import_storm
from copper import Copper, CopperError, build_directory, clean_environment, handle_termination, processes_of, wait_until, why_no_mount
from import_storm import PYTHON, Workload, package_tree, print_table, spread, start_python, storm

import reading
import tree as test_tree

FIND_ENTRIES = 17_000
ABSENT_NAMES = 10_000


class Row:
    def __init__(self, what, goal, measured, holds):
        self.what, self.goal, self.measured, self.holds = what, goal, measured, holds

    def cells(self):
        return (self.what, self.goal, self.measured, ("holds" if self.holds else "MISSED") if self.goal else "")


def workload(package):
    return Workload(packages=[package], trees=[package_tree("numpy")])


def difference(after, before, group):
    return {key: after[group][key] - before[group][key] for key in after[group]}


def counts():
    """Each directory and each file is read once, however many nodes and processes ask."""
    for package in ("numpy", "scipy.stats"):
        found = {}
        for nodes in (1, 2, 4, 8):
            for processes in (1, 4):
                made = import_storm.measure_cold(workload(package), nodes, processes)
                found[nodes, processes] = (made["listings"], made["file_opens"])
        values = sorted(set(found.values()))
        text = "; ".join(f"{listings} listings, {opens} opens" + (
            "" if len(values) == 1 else f" at {[f'{n}x{p}' for (n, p), v in found.items() if v == (listings, opens)]}")
            for listings, opens in values)
        yield Row(f"backing.listings, file_opens: cold {package}, 1-8 nodes x 1, 4 processes", "the same for all",
                  text, len(values) == 1)


PROBE = f"""
import os, sys, time
directory, prefix = sys.argv[1:]
names = [f"{{directory}}/{{prefix}}-{{n}}" for n in range({ABSENT_NAMES})]
started = time.perf_counter()
for name in names:
    try:
        os.stat(name)
        sys.exit(f"{{name}} is there")
    except FileNotFoundError:
        pass
print(time.perf_counter() - started)
"""


def probe(directories, prefix):
    """The seconds of the slowest of one process for each directory, all at once."""
    running = [subprocess.Popen([PYTHON, "-I", "-c", PROBE, directory, prefix], env=clean_environment(),
                                stdout=subprocess.PIPE, text=True) for directory in directories]
    times = [process.communicate(timeout=120)[0] for process in running]
    if any(process.returncode for process in running):
        raise CopperError("a probe failed")
    return max(map(float, times))


@contextlib.contextmanager
def bare(program, *words):
    """The least that FUSE takes: bench/bare_fuse.cpp or bare_file.cpp, mounted."""
    directory = tempfile.mkdtemp(prefix="copper-bench-", dir="/tmp")
    # A session of its own, as a daemon has: the scheduler may treat each session as one (sched_autogroup).
    server = subprocess.Popen([str(build_directory() / "bench" / program), directory, *map(str, words)],
                              start_new_session=True)
    try:
        wait_until(lambda: os.path.ismount(directory) or server.poll() is not None, 10, f"the mount of {program}")
        yield directory
    finally:
        subprocess.run(["umount", "-l", directory], check=False)
        server.wait(timeout=10)
        os.rmdir(directory)


def absent():
    """Absent names in a listed directory cost the backing filesystem nothing, on any node."""
    directory = package_tree("numpy")
    rounds = 5
    times = {what: [] for what in ("direct", "alone", "direct again", "again", "4 direct", "together", "bare")}
    with Copper(nodes=4, trees=[directory]) as job, bare("bare_fuse") as nothing_else:
        mirrors = [job.mirrored(node, directory) for node in range(4)]
        for mirror in mirrors:
            os.listdir(mirror)
        before = job.totals()
        for turn in range(rounds):
            # Names that nobody has asked for yet: the kernel remembers, of any filesystem, what is absent.
            name, mirror = f"absent-{time.time_ns()}", mirrors[turn % 4]
            for what, places, prefix in (("direct", [directory], name), ("alone", [mirror], name),
                                         ("direct again", [directory], name), ("again", [mirror], name),
                                         ("4 direct", [directory] * 4, f"{name}-4"),
                                         ("together", mirrors, f"{name}-4"), ("bare", [nothing_else], name)):
                times[what].append(probe(places, prefix))
        made = sum(difference(job.totals(), before, "backing").values())
    yield Row(f"backing operations of {ABSENT_NAMES:,} absent names on each of 4 nodes", "0", made, made == 0)

    def against(what, direct):
        ours, theirs = statistics.median(times[what]), statistics.median(times[direct])
        return ours / theirs, f"{ours / theirs:.1f} x ({ours:.3f} s, {theirs:.3f} s)"

    ratio, text = against("alone", "direct")
    yield Row(f"their time on a node against direct (median of {rounds}, interleaved)", "at most 10 x", text, ratio <= 10)
    for what, direct, words in (("again", "direct again", "the same when asked again"),
                                ("together", "4 direct", "the same on 4 nodes at once, against 4 direct"),
                                ("bare", "direct", "the same against direct of a FUSE filesystem that does nothing else")):
        yield Row(words, "", against(what, direct)[1], True)


def requests():
    """The kernel answers what it was told once."""
    load = workload("scipy.stats")
    with Copper(nodes=1, trees=load.trees) as job:
        seen = []
        for act in (storm, storm, start_python):
            before = job.totals()
            act(load, [job.root(0)] if act is storm else job.root(0))
            seen.append(difference(job.totals(), before, "fuse")["requests"])
    first, second_time, start = seen
    yield Row("FUSE requests, first import of scipy.stats on one node", "below 2,500", f"{first:,}", first < 2500)
    # What a *.pth file of the interpreter imports from the mirror comes before tools/python/sitecustomize.py.
    yield Row("FUSE requests, second import", "0",
              f"{second_time - start} (and {start} of an interpreter's start)", second_time == start)


def second():
    """Once imported, it is as if Copper were not there."""
    load = workload("scipy.stats")
    with Copper(nodes=1, trees=load.trees) as job:
        storm(load, [job.root(0)])
        storm(load, [""])
        direct, mirrored = [], []
        for turn in range(10):
            for root in ((job.root(0), "") if turn % 2 else ("", job.root(0))):
                (mirrored if root else direct).append(storm(load, [root]))
    ratio = statistics.median(mirrored) / statistics.median(direct)
    yield Row("second import of scipy.stats against direct (median of 10, interleaved)", "at most 1.05 x",
              f"{ratio:.3f} x: {spread(mirrored)} s, {spread(direct)} s", ratio <= 1.05)


def cold():
    """The first import by all at once, which includes reading, sending and caching everything."""
    load = workload("scipy.stats")
    storm(load, [""] * 8)
    measured = [import_storm.measure(load, 4, 2) for _ in range(5)]
    mirrored, direct = ([getattr(one, name) for one in measured] for name in ("cold", "direct"))
    ratio = statistics.median(mirrored) / statistics.median(direct)
    yield Row("cold import of scipy.stats, 4 nodes x 2 processes at once, against 8 direct (median of 5)",
              "at most 1.5 x", f"{ratio:.2f} x: {spread(mirrored)} s, {spread(direct)} s", ratio <= 1.5)


def grow_tree(root, entries):
    """Copies of real package directories, with the front of each file, until there are so many entries."""
    made = 0
    for source in (package_tree("numpy"), os.path.dirname(os.__file__)):
        for directory, names, files in os.walk(source):
            names.sort()
            place = os.path.join(root, os.path.basename(source), os.path.relpath(directory, source))
            os.makedirs(place, exist_ok=True)
            made += 1
            for name in files:
                if made == entries:
                    return made
                try:
                    with open(os.path.join(directory, name), "rb") as original, \
                            open(os.path.join(place, name), "xb") as copy:
                        copy.write(original.read(1024))
                    made += 1
                except OSError:
                    continue
    number = 0
    while made < entries:  # a machine with few packages
        open(os.path.join(root, f"file-{number}"), "xb").close()
        number, made = number + 1, made + 1
    return made


def timed(words):
    started = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=clean_environment(), cwd="/")
    return time.perf_counter() - started


def find():
    """A walk over a tree that other nodes read."""
    directory = tempfile.mkdtemp(prefix="copper-bench-", dir="/tmp")
    try:
        entries = grow_tree(directory, FIND_ENTRIES)
        for what, action in (("find", ["-name", "no such name"]), ("find with stat", ["-size", "+1000G"])):
            direct, mirrored = [], []
            for _ in range(5):
                direct.append(timed(["find", directory, *action]))
                with Copper(nodes=4, trees=[directory], options=["--readers", "1"]) as job:
                    mirrored.append(timed(["find", job.mirrored(job.other_than_reader(), directory), *action]))
            ratio = statistics.median(mirrored) / statistics.median(direct)
            yield Row(f"{what} over {entries:,} entries, cold, not on the reader, against direct (median of 5)",
                      "at most 20 x",
                      f"{ratio:.1f} x ({statistics.median(mirrored):.3f} s, {statistics.median(direct):.3f} s)",
                      ratio <= 20)
    finally:
        shutil.rmtree(directory)


def huge():
    """A directory that is too large for one message, while other programs want the processors."""
    entries, inodes = 1_000_000, 100  # the others are hard links, which are made much faster
    directory = tempfile.mkdtemp(prefix="copper-bench-", dir="/tmp")
    loops = []
    try:
        for number in range(entries):
            path = f"{directory}/file-{number}"
            if number < inodes:
                open(path, "xb").close()
            else:
                os.link(f"{directory}/file-{number % inodes}", path)
        time.sleep(0.3)  # until the timestamps have settled
        with Copper(nodes=4, trees=[directory], options=["--readers", "1"]) as job:
            mirrored = job.mirrored(job.other_than_reader(), directory)
            loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2)]
            started = time.perf_counter()
            os.stat(f"{mirrored}/file-{entries // 2}")
            seconds = time.perf_counter() - started
            for loop in loops:
                loop.kill()
            totals = job.totals()
            sent, lost = totals["fabric"]["bytes_sent"], totals["fallbacks"]["peer_lost"]
            yield Row(f"first stat in a directory of {entries:,} entries, 4 nodes, beside two busy loops; nodes suspected",
                      "below 4 s; 0", f"{seconds:.1f} s; {lost} ({sent / 1e6:,.1f} MB sent)", seconds < 4 and lost == 0)
            started = time.perf_counter()
            listed = len(os.listdir(mirrored))
            seconds = time.perf_counter() - started
            totals = job.totals()
            sent, lost = totals["fabric"]["bytes_sent"] - sent, totals["fallbacks"]["peer_lost"]
            yield Row("its names on that node after that; nodes suspected", "all; 0",
                      f"{listed:,}, {seconds:.1f} s; {lost} ({sent / 1e6:,.1f} MB sent, "
                      f"{totals['backing']['listings']} listings)", listed == entries and lost == 0)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
        shutil.rmtree(directory)


def sent_by(job, act):
    """What all nodes send to each other while `act` runs, without what it costs to ask them for it."""
    before = job.totals()
    empty = job.totals()
    act()
    after = job.totals()
    asking, all_of_it = difference(empty, before, "fabric"), difference(after, empty, "fabric")
    return {key: all_of_it[key] - asking[key] for key in all_of_it}


@contextlib.contextmanager
def small_files(count, size):
    """A directory with files of random bytes."""
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        for number in range(count):
            pathlib.Path(directory, f"file-{number:05}").write_bytes(os.urandom(size))
        time.sleep(0.3)  # until their time stamps have settled
        yield directory


def ls():
    """`ls -l` takes objects of many files each."""
    files, runs = 10_000, 5
    direct, mirrored, sent = [], [], []
    with small_files(files, 0) as directory:
        for _ in range(runs):
            direct.append(timed(["ls", "-l", directory]))
            with Copper(nodes=8, trees=[directory], options=["--readers", "1"]) as job:
                place = job.mirrored(job.other_than_reader(), directory)
                sent.append(sent_by(job, lambda: mirrored.append(timed(["ls", "-l", place]))))
    messages = statistics.median(one["messages_sent"] for one in sent)
    yield Row(f"`ls -l` of {files:,} files, cold, on one node of 8: messages of all nodes (median of {runs})", "below 200",
              f"{messages:g} ({min(one['messages_sent'] for one in sent)} to {max(one['messages_sent'] for one in sent)}; "
              f"{statistics.median(one['bytes_sent'] for one in sent) / 1e6:.1f} MB)", messages < 200)
    ratio = statistics.median(mirrored) / statistics.median(direct)
    yield Row(f"its time against direct (median of {runs}, interleaved)", "at most 10 x",
              f"{ratio:.1f} x ({statistics.median(mirrored):.3f} s, {statistics.median(direct):.3f} s)", ratio <= 10)


def cats():
    """Small files travel to the nodes that read them, and once."""
    files, size = 2_000, 5_000
    with small_files(files, size) as directory:
        def cat(job, nodes):
            running = [subprocess.Popen(["bash", "-c", "cat file-* | cmp -s - <(cd \"$0\" && cat file-*)", directory],
                                        cwd=job.mirrored(node, directory)) for node in nodes]
            if any([one.wait(timeout=300) for one in running]):
                raise CopperError("cat failed, or gave other bytes")

        for nodes, goal, what in (([None], 25e6, "on one node of 8"),
                                  (range(8), 1.1 * 7 * files * size, "on all 8 nodes at once")):
            with Copper(nodes=8, trees=[directory], options=["--readers", "1"]) as job:
                readers = [job.other_than_reader() if node is None else node for node in nodes]
                sent = sent_by(job, lambda: cat(job, readers))
                opens = job.totals()["backing"]["file_opens"]
            yield Row(f"`cat` of {files:,} files of 5 kB, cold, {what}: bytes sent by all; files opened below",
                      f"{'below' if nodes == [None] else 'at most'} {goal / 1e6:g} MB; {files:,}",
                      f"{sent['bytes_sent'] / 1e6:.1f} MB ({sent['messages_sent']:,} messages); {opens:,}",
                      sent["bytes_sent"] <= goal and opens == files)


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmRSS:"))


def idle():
    """What a daemon costs that nobody asks anything."""
    seconds = 10
    with Copper(nodes=4, trees=[package_tree("numpy")]) as job:
        daemons = job.daemons()
        before = [processor_seconds(pid) for pid in daemons]
        time.sleep(seconds)
        used = [processor_seconds(pid) - start for pid, start in zip(daemons, before)]
        resident = max(resident_bytes(pid) for pid in daemons)
    yield Row("resident memory of an idle daemon, 4 nodes (largest)", "below 60 MB", f"{resident / 1e6:.1f} MB",
              len(daemons) == 4 and resident < 60e6)
    yield Row(f"processor time of an idle daemon over {seconds} s (largest)", "below 2%",
              f"{max(used) / seconds:.2%}", max(used) < 0.02 * seconds)


def known():
    """What a daemon holds of each entry that a program has listed with its attributes."""
    directories, files = 5000, 100
    entries = directories * (files + 1)
    directory = tempfile.mkdtemp(prefix="copper-bench-", dir="/tmp")
    try:
        for number in range(directories):
            place = f"{directory}/package_{number:04}"
            os.mkdir(place)
            for member in range(files):
                os.close(os.open(f"{place}/some_module_{member:02}.py", os.O_CREAT | os.O_WRONLY))
        with Copper(nodes=1, trees=[directory]) as job:
            daemon, = job.daemons()
            os.listdir(job.root(0))
            idle_bytes = resident_bytes(daemon)
            timed(["find", job.mirrored(0, directory), "-size", "+1000G"])
            held = resident_bytes(daemon) - idle_bytes
            cached = job.totals()["cache"]["bytes"]
    finally:
        shutil.rmtree(directory)
    yield Row(f"resident memory per known entry, {directories * files:,} files in {directories:,} directories", "below 400 bytes",
              f"{held / entries:.0f} bytes ({cached / entries:.0f} of the cache)", held < 400 * entries)


def same():
    """The mirror is the original."""
    directory = tempfile.mkdtemp(prefix="copper-bench-", dir="/tmp")
    try:
        test_tree.build(f"{directory}/tree")
        differences, entries, size = [], 0, 0
        with Copper(nodes=4, trees=[f"{directory}/tree"]) as job:
            for node in range(4):
                comparison = test_tree.Comparison(job.root(node), f"{directory}/tree", rewritten_links=True)
                differences += comparison.run()
                entries, size = comparison.entries, comparison.bytes
        yield Row("the tree through each of 4 mounts against the original", "identical",
                  f"identical ({entries:,} entries, {size >> 20} MiB)" if not differences else
                  f"{len(differences)} differences: {differences[0]}", not differences)
    finally:
        shutil.rmtree(directory)


def sizes():
    """A file that was listed with another size is read right, or not at all."""
    files, short, long = 15, 4, 3000
    ways = (("rename", long, short), ("truncate", long, short), ("rename", short, long))
    versions = {}
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        for how, before, after in ways:
            for number in range(files):
                path = f"{directory}/{how}-{before}-{number}"
                versions[path] = (how, reading.content("a", before), reading.content("b", after))
                pathlib.Path(path).write_bytes(versions[path][1])
        time.sleep(0.3)  # until the time stamps have settled
        with Copper(nodes=4, trees=[directory]) as job:
            for node in range(4):
                timed(["ls", "-l", job.mirrored(node, directory)])
            for path, (how, _, new) in versions.items():
                reading.change(path, new, how)
            found = [reading.verdict(reading.read("read", job.mirrored(node, path)), old, new)
                     for path, (_, old, new) in versions.items() for node in range(4)]
            again = [reading.verdict(reading.read("read", job.mirrored(node, path)), old, new)
                     for path, (_, old, new) in versions.items() for node in range(4)]
    wrong = sum(one not in ("old", "new", "ESTALE") for one in found)
    failed = sum(one == "ESTALE" for one in found)
    yield Row(f"reads of files that shrank or grew since they were listed, 4 nodes x {files} files, rename and truncate: wrong "
              "bytes", "0", f"{wrong} of {len(found)} (ESTALE: {failed}; new version for the next opening: "
              f"{again.count('new')})", wrong == 0 and set(again) == {"new"})


def stop():
    """However a daemon ended, stop leaves nothing."""
    left = []
    for victim in (None, 0, 1, 2, 3):
        job = Copper(nodes=4, trees=[package_tree("numpy")]).open()
        try:
            job.launch()
            if victim is not None:
                pid = job.daemons()[victim]
                os.kill(pid, signal.SIGKILL)
                wait_until(lambda: pid not in processes_of(job.directory), 10, "the daemon's end")
        finally:
            left += [f"kill of {victim}: {item}" for item in job.close()]
    yield Row("left by copper stop, plain and after kill -9 of each of 4 daemons", "nothing",
              "nothing" if not left else f"{left}", not left)


ROWS = {row.__name__: row for row in (counts, absent, requests, second, cold, find, ls, cats, huge, idle, known, same, sizes, stop)}


def longest_turn():
    """No progress loop keeps others waiting, whatever was measured."""
    longest = Copper.longest_turn_ms
    return Row("longest turn of the progress loop of any of these daemons", "below 50 ms", f"{longest:.1f} ms", longest < 50)


def run(rows, description):
    """A program that prints the rows that its command line names, of those given by name."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--build", default=os.environ.get("COPPER_BUILD_DIR"), metavar="DIR")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("rows", nargs="*", metavar="ROW")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{name:10} {row.__doc__}" for name, row in rows.items()))
        return 0
    unknown = [name for name in options.rows if name not in rows]
    if unknown:
        parser.error(f"unknown rows {unknown}; they are {', '.join(rows)}")
    if options.build:
        os.environ["COPPER_BUILD_DIR"] = os.path.abspath(options.build)
    handle_termination()
    reason = why_no_mount()
    if reason:
        print(f"{parser.prog}: cannot mount a FUSE filesystem: {reason}", file=sys.stderr)
        return 3

    measured = []
    for name in options.rows or rows:
        try:
            for row in rows[name]():
                print("  " + " | ".join(map(str, row.cells())), file=sys.stderr, flush=True)
                measured.append(row)
        except (CopperError, subprocess.SubprocessError) as error:
            measured.append(Row(name, "", f"failed: {error}", False))
            print(f"{name}: {error}", file=sys.stderr)
    measured.append(longest_turn())
    print_table([("what", "goal", "measured", ""), *(row.cells() for row in measured)])
    return 0 if all(row.holds for row in measured) else 1


if __name__ == "__main__":
    sys.exit(run(ROWS, __doc__.splitlines()[0]))
