#!/usr/bin/python3
"""Lets sessions, daemons and filesystems stop, and prints who else notices.

    bench/stalls.py [--times N] [--seconds S]

- A node's ssh session dies, N times, under the launcher of the MPI that copperd is built with.
- One daemon of eight is stopped for S seconds, and then all are.
- One of two trees hangs for S seconds, and 50 programs on each of two nodes wait for it: how long reads of the other take.
"""

import argparse
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from import_storm import package_tree, print_table
from copper import Copper, handle_termination, nodes_of, wait_until, why_no_mount
from hosts import Hosts, launcher_program, why_no_hosts
from must_hold import Row
from slow_filesystem import SlowFilesystem

START_SECONDS_MAX = 11  # start_max of tools/copper/nodes/remote_shell.cpp
SETTLING_SECONDS = 5
STALLED_NODES = 8
WAITERS = 50  # a node
FILES = 500  # of the tree that does not hang, before and meanwhile
WAIT = """
import os, sys, threading
threads = [threading.Thread(target=os.listdir, args=(f"{sys.argv[1]}/{number}",)) for number in range(*map(int, sys.argv[2:]))]
for thread in threads:
    thread.start()
print("begins", flush=True)
"""


def dying_sessions(times):
    """Of daemons on other nodes, how many no longer know each other."""
    lost = 0
    with Hosts(4, ssh=True) as hosts:
        hosts.write("nodes", "".join(f"{name}\n" for name in hosts.names))
        for _ in range(times):
            hosts.check("cn0", "copper", "launch", "--nodes-from", f"{hosts.directory}/nodes", "--launcher",
                        os.path.basename(launcher_program()).removesuffix(".mpich"), "--tree", package_tree("numpy"), "--deadline", "2")
            time.sleep(START_SECONDS_MAX)
            for pid in hosts.processes_on("cn2", "dropbear", "sh", "orted", "hydra_pmi_proxy", "copperd", "copperd-superv"):
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[0] != b"dropbear" or os.path.realpath(f"/proc/{pid}/fd/0") != "/dev/null":
                    os.kill(pid, signal.SIGKILL)
            time.sleep(SETTLING_SECONDS)
            nodes = nodes_of(hosts.run("cn0", "copper", "status", "--nodes").stdout)
            lost += sum(node["STATE"] != "serving" for node in nodes if node["HOST"] != "cn2")
            hosts.run("cn0", "copper", "stop")
            hosts.run("cn2", "copper", "stop", "--local")
    return Row(f"a node dies with its ssh session, {times} times: daemons of other nodes lost", "0", f"{lost} of {3 * times}", lost == 0)


def stopped_daemons(seconds):
    with Copper(nodes=STALLED_NODES, trees=[package_tree("numpy")]) as job:
        daemons = job.daemons()
        counts = []
        for stopped in (daemons[3:4], daemons):
            for daemon in stopped:
                os.kill(daemon, signal.SIGSTOP)
            time.sleep(seconds)
            for daemon in stopped:
                os.kill(daemon, signal.SIGCONT)
            for node in range(STALLED_NODES):
                os.listdir(job.mirrored(node, package_tree("numpy")))
            wait_until(lambda: job.command("status", "--mount", job.mount).returncode == 0, 100, "all nodes to serve")
            counts.append(len(set(daemons) - set(job.daemons())))
    return Row(f"one daemon of {STALLED_NODES} stopped for {seconds} s, then all: daemons lost, and nodes degraded a minute later", "0; 0",
               "; ".join(map(str, counts)), counts == [0, 0])


def percentile(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1]


def read_each(mirrors, numbers):
    """How long each read takes, of a file that no node has."""
    took = []
    for number in numbers:
        begin = time.monotonic()
        pathlib.Path(mirrors[number % len(mirrors)], str(number), "file").read_bytes()
        took.append(time.monotonic() - begin)
    return took


def hung_tree(seconds):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as source, SlowFilesystem(source) as hung, SlowFilesystem(source) as healthy:
        for number in range(2 * FILES):
            os.mkdir(f"{source}/{number}")
            pathlib.Path(source, str(number), "file").write_text(str(number), encoding="ascii")
        trees = [hung.mount(), healthy.mount()]
        with Copper(nodes=2, trees=trees) as job:
            mirrors = [[job.mirrored(node, tree) for node in range(2)] for tree in trees]
            for mirror in mirrors[0]:
                os.listdir(mirror)
            before = read_each(mirrors[1], range(FILES))
            os.kill(hung.clients[0].pid, signal.SIGSTOP)
            end = time.monotonic() + seconds
            try:
                waiting = [subprocess.Popen([sys.executable, "-c", WAIT, mirror, str(node * WAITERS), str((node + 1) * WAITERS)],
                                            stdout=subprocess.PIPE, text=True) for node, mirror in enumerate(mirrors[0])]
                for process in waiting:
                    process.stdout.readline()
                # Over the whole time: what takes threads away may do so late.
                meanwhile = []
                for number in range(FILES, 2 * FILES):
                    meanwhile += read_each(mirrors[1], [number])
                    time.sleep(max(0, end - time.monotonic()) / (2 * FILES - number))
            finally:
                os.kill(hung.clients[0].pid, signal.SIGCONT)
            for process in waiting:
                process.communicate()
    ratio = percentile(meanwhile, 0.99) / percentile(before, 0.99)
    return Row(f"one of two trees hangs for {seconds} s, {WAITERS} programs a node wait: reads of the other, p99 to that before", "below 2",
               f"{ratio:.2f} ({1e3 * percentile(before, 0.99):.1f} ms before; longest {1e3 * max(meanwhile):.0f} ms)", ratio < 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=60)
    options = parser.parse_args()
    if reason := why_no_mount() or why_no_hosts(True):
        sys.exit(f"stalls.py: {reason}")
    handle_termination()
    rows = [hung_tree(options.seconds), stopped_daemons(options.seconds), dying_sessions(options.times)]
    print_table([("what", "goal", "measured", ""), *(row.cells() for row in rows)])
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
