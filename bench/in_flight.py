#!/usr/bin/python3
"""How a reader best keeps many operations in flight: threads or io_uring, and how many.

    bench/in_flight.py [--model lustre] [--files 4000]

Prints, for each number in flight, how long the attributes of all files of a directory take on an emulated parallel
filesystem, and the processor time. Needs liburing (Debian: liburing-dev) when the benchmarks are built.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True

from import_storm import print_table
from copper import CopperError, build_directory, handle_termination
from slow_filesystem import SlowFilesystem


def measure(source, model, way, number):
    """(seconds, processor seconds) through a client that knows nothing yet."""
    with SlowFilesystem(source, model) as slow:
        done = subprocess.run([build_directory() / "bench" / "copper_in_flight", slow.mount(), way, str(number)],
                              capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CopperError(done.stderr.strip())
    return map(float, done.stdout.split())


def main():
    handle_termination()
    parser = argparse.ArgumentParser(prog="bench/in_flight.py", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--model", default="lustre", help="a preset, or a TOML file (%(default)s)")
    parser.add_argument("--files", type=int, default=4000, metavar="N")
    options = parser.parse_args()
    if not (build_directory() / "bench" / "copper_in_flight").exists():
        print("bench/in_flight.py: copper_in_flight is not built: install liburing-dev, and configure again", file=sys.stderr)
        return 3
    rows = [("in flight", "threads", "processor time", "io_uring", "processor time")]
    with tempfile.TemporaryDirectory(prefix="copper-bench-", dir="/tmp") as source:
        for number in range(options.files):
            pathlib.Path(source, f"file-{number}").touch()
        for number in (1, 8, 16, 32, 64):
            rows.append((number, *(f"{seconds:.3f} s" for way in ("threads", "ring")
                                   for seconds in measure(source, options.model, way, number))))
    print_table(rows)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CopperError as error:
        sys.exit(f"bench/in_flight.py: {error}")
