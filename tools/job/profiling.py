#!/usr/bin/env python3
"""Writes the profiling files of ALCF Copper 1.0 from `copper stats`. launch_copper.sh and stop_copper.sh call it.

    profiling.py --copper PROGRAM --folder DIR [--mount DIR] [--paths N] [--every SECONDS]

Writes DIR/final, or with --every DIR/snapshot-0001, ... until the mirror is gone. The numbers are those of the whole
job. A field that Copper does not count stays empty.
"""

import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

OPERATIONS = ("lookup", "getattr", "readdir", "readlink", "open", "read")
OPERATION_FIELDS = ("operation", "total_calls", "cache_hits", "cache_misses", "negative_results", "avg_latency_us",
                    "total_latency_s")
PATH_FIELDS = ("category", "path", "total_events", "cache_hits", "cache_misses", "negative_results", "ttl_stores",
               "ttl_serves", "ttl_expires", "ttl_clears")
PATHS_MAX = 1000  # of copper stats --top

SUMMARY = """# Profile of job {job}

{alive} of {nodes} nodes served {mount} for {uptime_seconds:.0f} s.

| operation | calls |
|---|---:|
{operations}

{hits} requests were answered from the cache at once; {misses} waited. All counters are in `profiling_aggregate.csv`.

Not counted, so empty in the CSV files: cache hits and misses of one operation or path, and latencies (the aggregate has
quantiles of lookups and reads instead). The names of absent files need no time limit here, so all `ttl` fields are 0.
{about_paths}"""


def ask(options):
    """The statistics of the job, or None if none serves."""
    words = [options.copper, "stats", "--json", *(["--mount", options.mount] if options.mount else []),
             *(["--top", str(options.paths)] if options.paths else [])]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        print(f"profiling files: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout)


def aggregate(stats):
    """Pairs of name and value: all counters, by group."""
    yield "nodes", stats["nodes"]
    yield "nodes_alive", stats["alive"]
    for group, values in {**stats["totals"], "memory": stats["memory"]}.items():
        for name, value in values.items():
            if isinstance(value, dict):
                yield from ((f"{group}_{name}_{part}", number) for part, number in value.items())
            else:
                yield f"{group}_{name}", value


def write_csv(path, fields, rows):
    with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        csv.writer(file, lineterminator="\n").writerows([fields, *rows])


def write(stats, directory, paths):
    directory.mkdir(parents=True, exist_ok=True)
    calls = [(name, stats["totals"]["fuse"].get(name, 0)) for name in OPERATIONS]
    write_csv(directory / "profiling_operations.csv", OPERATION_FIELDS, [(*call, "", "", "", "", "") for call in calls])
    write_csv(directory / "profiling_aggregate.csv", ("metric", "value"), aggregate(stats))
    about_paths = ""
    if paths:
        write_csv(directory / "profiling_top_paths.csv", PATH_FIELDS,
                  [("data" if one["bytes_read"] else "metadata", one["path"], one["requests"], "", "", one["absent"],
                    0, 0, 0, 0) for one in stats.get("top_paths", [])])
        about_paths = f"\n`profiling_top_paths.csv` has the {paths} most requested paths (-A: the first {PATHS_MAX}).\n"
    cache = stats["totals"]["cache"]
    (directory / "profiling_summary.md").write_text(SUMMARY.format(
        **stats, hits=cache["hits"], misses=cache["misses"], about_paths=about_paths,
        operations="\n".join(f"| {name} | {count} |" for name, count in calls)), encoding="utf-8")


def is_mounted(mount):
    """Whether the mirror, or that of a node on this machine, is mounted. Reads the table, never the mirror."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        points = [line.split()[4] for line in table]
    return any(point == mount or point.startswith(f"{mount}.") for point in points)


def write_snapshots(options):
    number = 0
    while True:
        for _ in range(options.every):
            time.sleep(1)
            if not is_mounted(options.mount or f"/tmp/{os.environ.get('USER', '')}/copper"):
                return
        stats = ask(options)
        if stats is None:
            return
        number += 1
        write(stats, options.folder / f"snapshot-{number:04}", options.paths)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copper", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path)
    parser.add_argument("--mount", default="")
    parser.add_argument("--paths", type=int, default=0)
    parser.add_argument("--every", type=int, default=0)
    options = parser.parse_args()
    options.paths = min(options.paths, PATHS_MAX)
    if options.every:
        write_snapshots(options)
    elif stats := ask(options):
        write(stats, options.folder / "final", options.paths)


if __name__ == "__main__":
    main()
