"""Records what an import asks of a filesystem, for the simulator (bench/scale).

A trace is JSON, compressed by gzip:

    {"package": "torch",
     "source": "/usr/lib",       # where the files lay
     "request_us": 35,           # the pace of this machine: a request to a filesystem that answers at once, and its answer
     "seconds": 2.4,             # of the recorded import, from its start to its end: the one of median length of five
     "seconds_local": 1.9,       # of an import without the filesystem in between: the median of five,
     "seconds_local_fast": 1.7,  # and the fastest
     "contention": 1.1,          # an import takes so many times as long if there is one on each core
     "directories": {"a/b": [["name", "d", 0], ["file", "f", 1234], ["link", "l", "target"], ...], ...},
     "requests": [[20410, 31, "lookup", "a/b/name", 1, 0, 0], ...]}

Paths are relative to the place that all of it lies in. `directories` are those that the import asked about, with all names,
types, and sizes or targets. A request has its time since the start, the time until its answer (both in us), kind, path, whether
it was found, offset and bytes.
"""

import gzip
import json
import os
import pathlib
import stat
import statistics
import tempfile
import time

from import_storm import storm_of
from slow_filesystem import SlowFilesystem

ROUNDS = 5
REQUESTS = 1000


def described(path, source, name):
    """One name of a directory."""
    status = os.lstat(f"{path}/{name}")
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(f"{path}/{name}")
        return [name, "l", target.removeprefix(source)]
    if stat.S_ISDIR(status.st_mode):
        return [name, "d", 0]
    return [name, "f", status.st_size]


def requests_of(text, started):
    """`text`: what copper_slow_filesystem --trace wrote; `started`: when the import began, in ns."""
    found = []
    for line in text.splitlines():
        arrived, answered, kind, is_found, offset, count, path = line.split("\t", 6)
        found.append([(int(arrived) - started) // 1000, (int(answered) - int(arrived)) // 1000, kind,
                      path.removeprefix("./"), int(is_found), int(offset), int(count)])
    return sorted(one for one in found if one[0] >= 0)


def by_length(measure):
    """Several, the fastest first. The one in the middle takes as long as what is measured beside it usually does."""
    return sorted((measure() for _ in range(ROUNDS)), key=lambda found: found[0])


def local_seconds(package, imports):
    return [seconds for seconds, in by_length(lambda: (storm_of([(package.workload, "")] * imports).seconds,))]


def request_us(source):
    def look_up(number):
        started = time.perf_counter_ns()
        os.path.lexists(f"{root}/absent{number}")
        return (time.perf_counter_ns() - started) / 1000
    with SlowFilesystem(source, "fast") as slow:
        root = slow.mount()
        return statistics.median(look_up(number) for number in range(REQUESTS))


def recorded(package):
    """(seconds, requests) of one process that imports from a client with an empty cache. The filesystem answers at once."""
    with tempfile.NamedTemporaryFile(prefix="copper-trace-") as raw:
        with SlowFilesystem(package.source, "fast") as slow:
            workload = package.below(slow.mount(raw.name))
            started = time.monotonic_ns()
            seconds = storm_of([(workload, "")]).seconds
        return seconds, requests_of(pathlib.Path(raw.name).read_text(encoding="utf-8"), started)


def record(package, path):
    storm_of([(package.workload, "")])  # the page cache of this machine holds the package from here on
    seconds, requests = by_length(lambda: recorded(package))[ROUNDS // 2]
    locally = local_seconds(package, 1)
    on_all_cores = local_seconds(package, os.cpu_count())
    asked = {os.path.dirname(one[3]) if one[2] == "lookup" else one[3]
             for one in requests if one[2] in ("lookup", "readdir")}
    directories = {}
    for directory in sorted(asked):
        place = os.path.join(package.source, directory)
        directories[directory or "."] = [described(place, package.source, name) for name in sorted(os.listdir(place))]
    trace = {"package": package.name, "source": package.source, "request_us": round(request_us(package.source), 1),
             "seconds": round(seconds, 3), "seconds_local": round(locally[ROUNDS // 2], 3),
             "seconds_local_fast": round(locally[0], 3),
             "contention": round(max(1, on_all_cores[ROUNDS // 2] / locally[ROUNDS // 2]), 3),
             "directories": directories, "requests": requests}
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(json.dumps(trace, separators=(",", ":")).encode())
    return trace
