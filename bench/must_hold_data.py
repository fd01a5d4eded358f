#!/usr/bin/python3
"""Measures how fast the mirror hands out bytes, on this machine, and prints it beside the goals.

    bench/must_hold_data.py [ROW ...]      all rows, or those named; --list names them

Times are medians of interleaved pairs of reads of one large file.
"""

import contextlib
import itertools
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import must_hold
import bulk
from copper import Copper, build_directory, nodes_of, wait_until
from hosts import Hosts, why_no_hosts
from import_storm import package_tree, storm
from must_hold import Row, bare, difference, resident_bytes
from own_clients import OwnClients
from slow_filesystem import SlowFilesystem

FILE_BYTES = 256 << 20
PAIRS = 21
GOAL = 0.95  # of the throughput of the filesystem that does nothing else


@contextlib.contextmanager
def large_files(count):
    """Files of FILE_BYTES that are not zero, alone in a tree."""
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        paths = [f"{directory}/file{number}" for number in range(count)]
        for path in paths:
            with open(path, "wb") as file:
                piece = os.urandom(1 << 20)
                for _ in range(FILE_BYTES // len(piece)):
                    file.write(piece)
        time.sleep(0.3)  # until its timestamps have settled
        yield paths


@contextlib.contextmanager
def large_file():
    with large_files(1) as paths:
        yield paths[0]


def read_whole(path, size=FILE_BYTES):
    """The seconds that it takes to open and read the file."""
    buffer = bytearray(1 << 20)
    started = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        done = 0
        while got := file.readinto(buffer):
            done += got
    seconds = time.perf_counter() - started
    assert done == size, done
    return seconds


def drop_pages(path):
    """Makes the kernel forget the file's bytes."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_ahead(directory):
    """Names the file that holds the read-ahead window, in KiB, of the mount there."""
    device = os.stat(directory).st_dev
    return f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"


def window_of(directory):
    with open(read_ahead(directory), encoding="utf-8") as file:
        return int(file.read())


def set_window(directory, window):
    """Does nothing without the rights for it."""
    with contextlib.suppress(PermissionError), open(read_ahead(directory), "w", encoding="utf-8") as file:
        file.write(str(window))


@contextlib.contextmanager
def both_mounts():
    """A job of one node whose daemon holds the file, and the file's path in its mirror and in the bare filesystem."""
    with large_file() as path, Copper(trees=[os.path.dirname(path)]) as job, bare("bare_file", FILE_BYTES) as least:
        set_window(least, window_of(job.root(0)))
        read_whole(job.mirrored(0, path))
        yield job, job.mirrored(0, path), f"{least}/file"


def throughput(what, ours, theirs, is_second, goal=GOAL):
    """Of two files, read by turns. What memory the kernel has for their bytes matters, so it takes new one each turn."""
    times = {ours: [], theirs: []}
    readings = 5 if is_second else 1
    for turn in range(PAIRS):
        drop_pages(ours)
        drop_pages(theirs)
        order = (ours, theirs) if turn % 2 else (theirs, ours)
        if is_second:
            for path in order:
                read_whole(path)
        for path in order:
            times[path] += [read_whole(path) for _ in range(readings)]
    ours, theirs = (FILE_BYTES / statistics.median(times[path]) / 1e9 for path in (ours, theirs))
    return Row(f"{what} (median of {PAIRS * readings}, interleaved)", f"at least {goal} x",
               f"{ours / theirs:.2f} x ({ours:.1f} GB/s, {theirs:.1f} GB/s)", ours / theirs >= goal)


def reads_of(job, path):
    """The READ requests of one reading of the file."""
    before = job.totals()
    read_whole(path)
    return difference(job.totals(), before, "fuse")["read"]


def second():
    """What the kernel has, it hands out as from any FUSE filesystem."""
    with both_mounts() as (job, ours, theirs):
        yield throughput("second read of 256 MiB against that from a FUSE filesystem that does nothing else", ours, theirs,
                         is_second=True)
        reads = reads_of(job, ours)
    yield Row("READ requests of a second read", "0", reads, reads == 0)


def first():
    """What the daemon has and the kernel has not."""
    with both_mounts() as (job, ours, theirs):
        yield throughput("first read of 256 MiB that the daemon holds against that from a FUSE filesystem that does "
                         "nothing else", ours, theirs, is_second=False)
        drop_pages(ours)
        reads, window = reads_of(job, ours), window_of(job.root(0))
    yield Row("READ requests of such a first read, and their size", "",
              f"{reads:,} ({FILE_BYTES / reads / 1024:,.0f} KiB; read-ahead {window:,} KiB)", True)


def splice():
    """What a read is worth whose bytes reach the kernel by splice(2) instead of writev(2)."""
    with bare("bare_file", FILE_BYTES, "splice") as spliced, bare("bare_file", FILE_BYTES) as written:
        row = throughput("first read of 256 MiB from a FUSE filesystem that does nothing else, spliced against written", f"{spliced}/file",
                         f"{written}/file", is_second=False)
        yield Row(row.what, "", row.measured, True)


def page_cache():
    """What a repeated read costs without passthrough: the kernel keeps a FUSE filesystem's bytes in its smallest pages."""
    with large_file() as path, Copper(trees=[os.path.dirname(path)]) as job:
        yield throughput("second read of 256 MiB against the original in the page cache", job.mirrored(0, path), path,
                         is_second=True, goal=0.9)


def passthrough():
    """Where the kernel reads a large file itself, from the daemon's memory, it costs what a local file's costs."""
    what = "second read of 256 MiB with --passthrough auto against the original in the page cache"
    with large_file() as path, Copper(trees=[os.path.dirname(path)], options=["--passthrough", "auto"]) as job:
        mirrored = job.mirrored(0, path)
        read_whole(mirrored)
        if "passthrough" not in job.status():
            yield Row(what, "", "not available here (Linux 6.9, libfuse 3.17, root)", True)
            return

        def is_passed_through():
            drop_pages(mirrored)
            return reads_of(job, mirrored) == 0
        wait_until(is_passed_through, 20, "the collection of the file")
        yield throughput(what, mirrored, path, is_second=True, goal=0.9)
    load = must_hold.workload("scipy.stats")
    for when in ("off", "auto"):
        with Copper(nodes=1, trees=load.trees, options=["--passthrough", when]) as job:
            storm(load, [job.root(0)])
            before = job.totals()
            seconds = [storm(load, [job.root(0)]) for _ in range(5)]
            requests = difference(job.totals(), before, "fuse")["requests"] / len(seconds)
        yield Row(f"second import of scipy.stats with --passthrough {when} (median of 5)", "",
                  f"{statistics.median(seconds):.3f} s, {requests:,.0f} requests", True)


def window():
    """What a larger read-ahead window is worth."""
    if os.geteuid() != 0:
        yield Row("read-ahead windows", "", "only root may set them", True)
        return
    windows = (128, 1024, 4096)

    def row(what, times):
        speeds = {window: FILE_BYTES / statistics.median(seconds) / 1e9 for window, seconds in times.items()}
        return Row(what, "", "; ".join(f"{window:,} KiB {speed:.2f} GB/s" for window, speed in speeds.items()), True)

    held, cold = ({window: [] for window in windows} for _ in range(2))
    with both_mounts() as (job, ours, _):
        chosen = window_of(job.root(0))
        for _ in range(PAIRS):
            for window, seconds in held.items():
                set_window(job.root(0), window)
                drop_pages(ours)
                seconds.append(read_whole(ours))
    yield row(f"first read of 256 MiB that the daemon holds, by read-ahead window (chosen: {chosen:,} KiB)", held)
    with large_file() as path:
        for _ in range(5):
            for window, seconds in cold.items():
                with Copper(nodes=2, trees=[os.path.dirname(path)], options=["--readers", "1"]) as job:
                    node = job.other_than_reader()
                    set_window(job.root(node), window)
                    seconds.append(read_whole(job.mirrored(node, path)))
    yield row("the same of what another node still has to read and send", cold)


def mpi_bcast_seconds(ranks):
    """Of MPI_Bcast of FILE_BYTES, in memory, between as many ranks on this machine."""
    done = subprocess.run(
        ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), build_directory() / "bench" / "copper_bcast",
         "--mpi-only", "--runs", "3", str(FILE_BYTES)], capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout)


def cold():
    """What nobody has read yet, where it arrives last; into memory that has been used before, like MPI_Bcast's."""
    pairs = 7
    ours, theirs = [], []
    with large_files(pairs + 2) as paths, \
            Copper(nodes=4, trees=[os.path.dirname(paths[0])],
                   options=["--readers", "1", "--arity", "2", "--cache-bytes", FILE_BYTES]) as job:
        node = job.other_than_reader()
        os.listdir(job.mirrored(node, os.path.dirname(paths[0])))
        for path in paths:
            ours.append(read_whole(job.mirrored(node, path)))
            drop_pages(job.mirrored(node, path))
            theirs.append(mpi_bcast_seconds(4))
    new, ours, theirs = ours[0], ours[2:], theirs[2:]
    ratio = statistics.median(ours) / statistics.median(theirs)
    yield Row(f"cold read of 256 MiB on a node other than the reader, of 4, against MPI_Bcast (median of {pairs}, interleaved)",
              "at most 1.5 x", f"{ratio:.2f} x ({statistics.median(ours):.3f} s, {statistics.median(theirs):.3f} s)",
              ratio <= 1.5)
    yield Row("the first one, into memory that is new to the daemons", "", f"{new:.3f} s", True)


def once():
    """However many nodes read a large file at once, the filesystem serves its bytes once."""
    with large_file() as path, Copper(nodes=4, trees=[os.path.dirname(path)]) as job:
        readings = [subprocess.Popen(["dd", f"if={job.mirrored(node, path)}", "of=/dev/null", "bs=1M", "status=none"])
                    for node in range(4)]
        codes = [reading.wait(timeout=120) for reading in readings]
        backing = job.totals()["backing"]
    mebibytes = backing["bytes"] / (1 << 20)
    yield Row("backing bytes of a cold dd of 256 MiB on each of 4 nodes at once", "256 MiB", f"{mebibytes:g} MiB",
              backing["bytes"] == FILE_BYTES and not any(codes))


def resident(job):
    """The resident memory of the daemon that has most, in bytes."""
    return max(map(resident_bytes, job.daemons()))


def memory():
    """What is cached is all that a daemon holds."""
    in_flight = 64 << 20
    with large_files(3) as paths, Copper(nodes=2, trees=[os.path.dirname(paths[0])]) as job:
        empty = resident(job)
        for path in paths:
            read_whole(job.mirrored(0, path))
        cached = max(node["cache"]["bytes"] for node in job.stats()["per_node"])
        held = resident(job) - empty
    most = 1.1 * cached + in_flight
    yield Row("resident memory after caching 768 MiB, beside that of an idle daemon", "at most 1.1 x + 64 MiB",
              f"{held / cached:.2f} x", held <= most)
    budget = 128 << 20
    for files, at_a_time in ((3, 1), (8, 8)):
        with large_files(files) as paths, Copper(nodes=4, trees=[os.path.dirname(paths[0])],
                                                 options=["--cache-bytes", budget]) as job:
            mirrored = [[job.mirrored(node, path) for path in paths] for node in range(4)]
            readings = [subprocess.Popen(["cat", *some], stdout=subprocess.DEVNULL)
                        for of_node in mirrored for some in (of_node[i::at_a_time] for i in range(at_a_time))]
            peak = 0
            while any(reading.poll() is None for reading in readings):
                peak = max(peak, resident(job))
                time.sleep(0.02)
            codes = [reading.wait() for reading in readings]
        yield Row(f"largest resident memory of 4 daemons with a budget of 128 MiB while each node reads {files} files of 256 MiB, "
                  f"{at_a_time} at a time", "at most the budget + 64 MiB in flight", f"{peak / (1 << 20):.0f} MiB",
                  peak - empty <= 1.1 * budget + in_flight and not any(codes))


def change():
    """What large files leave is there for small ones."""
    budget, count, small, small_bytes = 128 << 20, 200, 1500, 150_000
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        paths = [f"{directory}/file{number}" for number in range(count + small)]
        for number, path in enumerate(paths):
            pathlib.Path(path).write_bytes(os.urandom(1 << 20 if number < count else small_bytes))
        time.sleep(0.3)  # until their timestamps have settled
        with Copper(nodes=2, trees=[directory], options=["--cache-bytes", budget]) as job:
            empty, peak = resident(job), 0
            for path in paths:
                for node in range(2):
                    pathlib.Path(job.mirrored(node, path)).read_bytes()
                peak = max(peak, resident(job))
    yield Row(f"largest resident memory of 2 daemons with a budget of 128 MiB: {count} files of 1 MiB, then {small:,} of 150 kB, "
              "read on both", "at most the budget + 64 MiB + that of an idle daemon",
              f"{peak / (1 << 20):.0f} MiB (idle: {empty / (1 << 20):.0f} MiB)", peak - empty <= budget + (64 << 20))


def twice():
    """A working set of twice the budget."""
    files, passes = 4, 3
    with large_files(files) as paths, Copper(nodes=4, trees=[os.path.dirname(paths[0])],
                                             options=["--cache-bytes", files * FILE_BYTES // 2]) as job:
        same = True
        for _ in range(passes):
            comparisons = [subprocess.Popen(["cmp", path, job.mirrored(node, path)]) for path in paths for node in range(4)]
            same = not any([comparison.wait(timeout=300) for comparison in comparisons]) and same
            for path in paths:
                for node in range(4):
                    drop_pages(job.mirrored(node, path))
        totals = job.totals()
    times = totals["backing"]["bytes"] / (files * FILE_BYTES)
    yield Row(f"backing bytes of {files * 256} MiB read {passes} times on 4 nodes with a budget of half of it (no pages kept)",
              f"below {passes} x", f"{times:.2f} x ({totals['cache']['evictions']:,} evictions, "
              f"{totals['fallbacks']['direct_reads']} direct reads)", same and times < passes)


def shards():
    """Nodes that read different files do not send them to each other."""
    noticed = 16 << 20
    with large_files(4) as paths, Copper(nodes=4, trees=[os.path.dirname(paths[0])]) as job:
        def read_shards(begin, end):
            step = 1 << 20
            files = [open(job.mirrored(node, path), "rb", buffering=0) for node, path in enumerate(paths)]
            for offset in range(begin, end, step):
                for file in files:
                    file.seek(offset)
                    assert len(file.read(step)) == step
            for file in files:
                file.close()
        read_shards(0, noticed)
        before = job.totals()["fabric"]["bytes_sent"]
        read_shards(noticed, FILE_BYTES)
        totals = job.totals()
    sent = totals["fabric"]["bytes_sent"] - before
    read = 4 * (FILE_BYTES - noticed)
    yield Row("fabric bytes of 4 nodes that each read another 256 MiB, once 16 MiB of each were read, against all of them on "
              "all nodes", "below 0.1 x", f"{sent / (4 * read):.4f} x ({sent / (1 << 20):.1f} MiB; before: "
              f"{before / (1 << 20):.0f} MiB; {totals['fallbacks']['direct_reads']} direct reads)", sent < 0.1 * read)


def small_shards():
    """The same where they read small files of one directory, by turns."""
    size, noticed, files = 16 << 10, 200, 1200
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        names = [f"file{number}" for number in range(4 * files)]
        for name in names:
            pathlib.Path(directory, name).write_bytes(os.urandom(size))
        time.sleep(0.3)  # until their timestamps have settled
        with Copper(nodes=4, trees=[directory]) as job:
            def read_shards(begin, end):
                for number in range(4 * begin, 4 * end):
                    path = pathlib.Path(job.mirrored(number % 4, directory), names[number])
                    assert len(path.read_bytes()) == size
            read_shards(0, noticed)
            before = job.totals()["fabric"]["bytes_sent"]
            read_shards(noticed, files)
            totals = job.totals()
    sent = totals["fabric"]["bytes_sent"] - before
    read = 4 * (files - noticed) * size
    yield Row(f"fabric bytes of 4 nodes that each read other 1,000 files of 16 KiB of a directory, once {noticed} of each were "
              "read, against all of them on all nodes", "below 0.1 x",
              f"{sent / (4 * read):.4f} x ({sent / (1 << 20):.1f} MiB; before: {before / (1 << 20):.0f} MiB; "
              f"{totals['fallbacks']['direct_reads']} direct reads)", sent < 0.1 * read)


@contextlib.contextmanager
def file_of_libraries():
    """As many bytes of the shared libraries of a package tree."""
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        path = f"{directory}/libraries"
        libraries = sorted(pathlib.Path(package_tree("scipy")).rglob("*.so"))
        with open(path, "wb") as file:
            for library in itertools.cycle(libraries):
                file.write(library.read_bytes())
                if file.tell() >= FILE_BYTES:
                    break
            file.truncate(FILE_BYTES)
        time.sleep(0.3)  # until its timestamps have settled
        yield path


def compress():
    """What coding keeps off the network, and what it costs, for shared libraries."""
    runs = 5
    choices = ("off", "auto", "lz4")
    cold_seconds, held_seconds = ({choice: [] for choice in choices} for _ in range(2))
    fabric = {}
    with file_of_libraries() as path:
        for choice in choices * runs:
            with Copper(nodes=2, trees=[os.path.dirname(path)],
                        options=["--readers", "1", "--compress", choice]) as job:
                mirrored = job.mirrored(job.other_than_reader(), path)
                cold_seconds[choice].append(read_whole(mirrored))
                drop_pages(mirrored)
                held_seconds[choice].append(read_whole(mirrored))
                fabric[choice] = job.totals()["fabric"]
    for choice in choices:
        cold_speed, held_speed = (FILE_BYTES / statistics.median(seconds[choice]) / 1e9
                                  for seconds in (cold_seconds, held_seconds))
        sent, saved = (fabric[choice][key] / (1 << 20) for key in ("bytes_sent", "bytes_saved_by_compression"))
        yield Row(f"--compress {choice}, 256 MiB of shared libraries on the other of 2 nodes of this machine "
                  f"(median of {runs}, interleaved)", "",
                  f"{sent:.0f} MiB sent, {saved:.0f} saved; cold {cold_speed:.2f} GB/s, held {held_speed:.2f} GB/s", True)


def of_slow_link(rate):
    runs = 3
    choices = ("off", "auto", "lz4")
    contents = ("libraries", "random")
    speeds, fabric = {}, {}
    with Hosts(2, rate=rate) as hosts, file_of_libraries() as libraries, large_file() as random:
        for content, path in zip(contents, (libraries, random)):
            shutil.move(path, f"{hosts.directory}/{content}")  # each host has a /tmp of its own
        hosts.write("nodes", "cn0\ncn1\n")
        time.sleep(0.3)  # until their timestamps have settled
        for content, choice in itertools.product(contents, choices * runs):
            hosts.check("cn0", "copper", "launch", "--nodes-from", f"{hosts.directory}/nodes", "--launcher", "mpirun",
                        "--tree", hosts.directory, "--readers", "1", "--compress", choice)
            try:
                nodes = nodes_of(hosts.check("cn0", "copper", "status", "--nodes"))
                host = next(node["HOST"] for node in nodes if node["READER"] == "no")
                mirrored = f"/tmp/root/copper{hosts.directory}/{content}"
                started = time.perf_counter()
                hosts.check(host, "dd", f"if={mirrored}", "of=/dev/null", "bs=1M")
                speeds.setdefault((content, choice), []).append(FILE_BYTES / (time.perf_counter() - started) / 1e9)
                fabric[content, choice] = json.loads(hosts.check(host, "copper", "stats", "--json"))["totals"]["fabric"]
            finally:
                hosts.check("cn0", "copper", "stop")
    for content, choice in itertools.product(contents, choices):
        sent, saved = (fabric[content, choice][key] / (1 << 20) for key in ("bytes_sent", "bytes_saved_by_compression"))
        yield Row(f"--compress {choice}, cold read of 256 MiB ({content}) on the other of 2 hosts that send at {rate} "
                  f"(median of {runs}, interleaved)", "",
                  f"{sent:.0f} MiB sent, {saved:.0f} saved; {statistics.median(speeds[content, choice]):.3f} GB/s", True)


def compress_slow():
    """What coding gains where hosts send slowly; for what does not shrink, nothing."""
    reason = why_no_hosts()
    if reason:
        yield Row("--compress over a slow link", "", reason, True)
        return
    for rate in ("1gbit", "200mbit"):
        yield from of_slow_link(rate)


def holes():
    """What a file of holes costs when two nodes read all of it."""
    size = 5 << 30
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as directory:
        path = f"{directory}/hole"
        with open(path, "wb") as file:
            file.truncate(size)
        time.sleep(0.3)  # until its timestamps have settled
        with Copper(nodes=2, trees=[directory]) as job:
            before = job.totals()
            seconds = max(read_whole(job.mirrored(node, path), size) for node in range(2))
            after = job.totals()
    read, sent, kept = (after[group][key] - before[group][key] for group, key in (
        ("backing", "bytes"), ("fabric", "bytes_sent"), ("cache", "bytes")))
    yield Row("a file of 5 GiB of holes, read whole on 2 nodes: bytes from the filesystem, sent, kept", "below 1 MB each",
              f"{read:,}; {sent:,}; {kept:,} ({seconds:.1f} s)", max(read, sent, kept) < 1_000_000)


# For one client, and for all together.
BULK_MODEL = "client_bytes_per_second = {client}\ntotal_bytes_per_second = {total}\n"


class Bulk:
    """A context manager: a filesystem with a large file, for nodes that have a client each. `slower`: than 200 MB/s for one client
    and 1 GB/s for all, and the file is so much smaller than 2 GiB."""

    def __init__(self, slower=1):
        self.slower = slower
        self.mebibytes = 2048 // slower
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/var/tmp"))
            pathlib.Path(self.directory, "weights").mkdir()
            for name in ("before", "model"):
                bulk.write(f"{self.directory}/weights/{name}", self.mebibytes, version=1)
            with open(f"{self.directory}/model.toml", "w", encoding="utf-8") as file:
                file.write(BULK_MODEL.format(client=200e6 / self.slower, total=1e9 / self.slower))
            self.filesystem = stack.enter_context(SlowFilesystem(f"{self.directory}/weights", f"{self.directory}/model.toml"))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, kind, error, trace):
        self.stack.close()

    @contextlib.contextmanager
    def job(self, *options):
        """Its clients have not read the file yet. Its daemons have memory for it, from another one."""
        with OwnClients(self.filesystem, nodes=4, options=["--cache-bytes", self.mebibytes << 20, *options]) as job:
            self.read_on_all(job, "before")
            yield job

    def read(self, paths, prefix=()):
        """Reads them at once: the seconds until the last one is read."""
        started = time.perf_counter()
        found = bulk.results([bulk.start_reading(path, self.mebibytes, prefix) for path in paths])
        assert set(found) == {"1"}, found
        return time.perf_counter() - started

    def read_on_all(self, job, name="model"):
        return self.read([job.mirrored(node, f"{job.tree}/{name}") for node in range(job.nodes)], job.prefix)


def stripes():
    """A large file has several readers."""
    runs = 3
    for slower in (1, 8):
        alone, ours, one_reader, bytes_read = [], [], [], set()
        with Bulk(slower) as files:
            def served():
                return files.filesystem.counters()["bytes_read"]
            for _ in range(runs):
                alone.append(files.read([f"{files.filesystem.mount()}/model"]))
                for times, readers in ((ours, 4), (one_reader, 1)):
                    with files.job("--readers", readers) as job:
                        before = served(), job.totals()["backing"]["bytes"]
                        times.append(files.read_on_all(job))
                        after = served(), job.totals()["backing"]["bytes"]
                        bytes_read.add(tuple((b - a) / (files.mebibytes << 20) for a, b in zip(before, after)))
        ratio, of_one = (statistics.median(times) / statistics.median(alone) for times in (ours, one_reader))
        where = f"of {200 / slower:g} MB/s for one client and {1000 / slower:g} MB/s for all"
        yield Row(f"{files.mebibytes} MiB read on all 4 nodes, on a filesystem {where}: time against one client that reads them alone "
                  f"(median of {runs}, interleaved)", "at most 0.35 x",
                  f"{ratio:.2f} x ({statistics.median(ours):.1f} s, {statistics.median(alone):.1f} s; with one reader {of_one:.2f} x)",
                  ratio <= 0.35)
        yield Row("the same: bytes that the filesystem handed out, and that Copper read, against the file's", "1 x",
                  ", ".join(f"{served:.3f} x and {read:.3f} x" for served, read in sorted(bytes_read)), bytes_read == {(1.0, 1.0)})


def tensors():
    """The parts of a large file in any order, by several programs."""
    runs, programs = 5, 4
    in_order, by_parts = [], []
    with Bulk(slower=8) as files:
        for _ in range(runs):
            with files.job() as job:
                in_order.append(files.read([job.mirrored(0, f"{job.tree}/model")], job.prefix))
            with files.job() as job:
                started = time.perf_counter()
                found = bulk.results([bulk.start_reading(job.mirrored(0, f"{job.tree}/model"), files.mebibytes, job.prefix, bulk.TENSORS,
                                                         (share, programs)) for share in range(programs)])
                by_parts.append(time.perf_counter() - started)
                assert set(found) == {"1"}, found
    ratio = statistics.median(by_parts) / statistics.median(in_order)
    yield Row(f"1,000 parts of a file of {files.mebibytes} MiB in random order, mapped by {programs} programs of one node of 4: time "
              f"against reading in order (median of {runs}, interleaved)", "at most 1.2 x",
              f"{ratio:.2f} x ({statistics.median(by_parts):.1f} s, {statistics.median(in_order):.1f} s)", ratio <= 1.2)


def apart():
    """A file that is larger than a cache, read by nodes that are not at the same place."""
    runs, longest = 3, 5
    with Bulk(slower=8) as files:
        for slowest in (longest, longest / 5):
            read, whole = [], files.mebibytes << 20
            for _ in range(runs):
                with OwnClients(files.filesystem, nodes=4, options=["--cache-bytes", whole // 4]) as job:
                    readings = []
                    for node in range(job.nodes):
                        time.sleep(slowest / (job.nodes - 1) if node else 0)
                        readings.append(bulk.start_reading(job.mirrored(node, f"{job.tree}/model"), files.mebibytes, job.prefix))
                    assert set(bulk.results(readings)) == {"1"}
                    read.append(job.totals()["backing"]["bytes"] / whole)
            yield Row(f"{files.mebibytes} MiB read by 4 nodes that begin within {slowest:g} s, each with a budget of a quarter of it: bytes "
                      f"read from the filesystem, against the file's (median of {runs})", "at most 1.2 x",
                      f"{statistics.median(read):.2f} x ({min(read):.2f} to {max(read):.2f})", statistics.median(read) <= 1.2)


ROWS = {row.__name__: row for row in (
    cold, once, memory, change, twice, shards, small_shards, second, first, splice, window, page_cache, passthrough, compress,
    compress_slow, holes, stripes, tensors, apart)}


if __name__ == "__main__":
    sys.exit(must_hold.run(ROWS, __doc__.splitlines()[0]))
