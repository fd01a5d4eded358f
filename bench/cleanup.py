#!/usr/bin/python3
"""How long `copper stop` takes to clean up the nodes of a large job when no daemon answers and some nodes are silent.

    bench/cleanup.py [--nodes 8192] [--silent 300]

A program in place of `mpirun` says that all nodes serve. Then it answers at once for most nodes, and never for the silent
ones, which are spread over the job. Exit code 1 if it takes longer than 3 minutes, or names other nodes than the silent ones.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "support"))

from copper import clean_environment, copper_program, is_built_with_mpich, kill_all, processes_of

SECONDS_MAX = 180
LOOK_SECONDS = 0.05

# As `mpirun --version` and `mpiexec --version` begin. The names of silent nodes begin with "mute".
LAUNCHER = """#!/bin/sh
case $* in
    --version) echo "{version}" ;;
    *copperd*) echo '{{"copper":"ready","ready":{nodes},"nodes":{nodes},"done":true}}'; exec sleep 3600 ;;
    *mute*) exec sleep 3600 ;;
esac
"""


def children_of(pid):
    try:
        return sum(len(task.joinpath("children").read_text(encoding="utf-8").split())
                   for task in pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0


def measure(directory, nodes, silent):
    """Returns the seconds, the largest number of nodes asked at once, and the nodes that were named."""
    launcher = pathlib.Path(directory, "mpiexec" if is_built_with_mpich() else "mpirun")
    version = "HYDRA build details:" if is_built_with_mpich() else "mpirun (Open MPI) 4.1.4"
    launcher.write_text(LAUNCHER.format(version=version, nodes=nodes), encoding="utf-8")
    launcher.chmod(0o755)
    every = nodes // silent if silent else nodes + 1
    names = [f"mute{i}" if i % every == 0 and i < every * silent else f"cn{i}" for i in range(nodes)]
    hosts = pathlib.Path(directory, "hosts")
    hosts.write_text("\n".join(names), encoding="utf-8")
    on = ["--mount", f"{directory}/mount"]
    subprocess.run([copper_program(), "launch", *on, "--tree", "/usr/share/doc", "--nodes-from", hosts, "--launcher", launcher],
                   stdout=subprocess.DEVNULL, env=clean_environment(), check=True)
    begin = time.monotonic()
    with subprocess.Popen([copper_program(), "stop", *on], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env=clean_environment()) as stop:
        at_once = 0
        while stop.poll() is None:
            at_once = max(at_once, children_of(stop.pid))
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - begin
        named = re.findall("could not clean up on ([a-z0-9]+)", stop.stderr.read())
    return seconds, at_once, named, [name for name in names if name.startswith("mute")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8192)
    parser.add_argument("--silent", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="copper-cleanup-") as directory:
        try:
            seconds, at_once, named, mute = measure(directory, options.nodes, options.silent)
        finally:
            kill_all(processes_of(directory))
            subprocess.run([copper_program(), "stop", "--local", "--mount", f"{directory}/mount"], env=clean_environment(),
                           stdout=subprocess.DEVNULL, check=False)
    print(f"clean-up of {options.nodes} nodes, {options.silent} of them silent: {seconds:.0f} s; up to {at_once} nodes asked at "
          f"once; {len(named)} named as not cleaned up")
    return 0 if seconds <= SECONDS_MAX and named == mute else 1


if __name__ == "__main__":
    sys.exit(main())
