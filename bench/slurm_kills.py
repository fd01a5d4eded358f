#!/usr/bin/python3
"""Kills jobs of a real Slurm at random moments, and prints what they left on their nodes.

    bench/slurm_kills.py [--times N] [--seed S] [--proctrack cgroup|pgid] [--plugin]

Each job runs on four hosts (tests/support/hosts.py): it launches a mirror, imports numpy through it with two processes
per node, and stops it. With --plugin, the SPANK plugin launches it, and the epilogue stops it. A first job runs
undisturbed, so that we know how long each part takes. Then every job is killed in one of the three parts: by scancel,
which first asks; by SIGKILL to its steps; by SIGKILL to its script alone; by SIGKILL to everything that it has on any
host, supervisors included; or, with the plugin, by its time limit. (The epilogue is Slurm's. It drains a node if that
is killed.) When the epilogue has run, nothing that was not there before the first job may be left on any host: no
process, mount, file or open port. What Slurm itself leaves is counted apart. Needs root.
"""

import argparse
import os
import pathlib
import random
import shlex
import sys
import time

from import_storm import Workload, package_tree, print_table
from copper import CopperError, handle_termination, kill_all, stat_of, wait_until
from hosts import Hosts, why_no_hosts
from must_hold import Row
from slurm import Slurm, best_proctrack, why_no_slurm

MOUNT = "/tmp/root/copper"
PARTS = ("start", "middle", "stop")
# The options of scancel.
WAYS = {"scancel": [], "SIGKILL to its steps": ["--signal=KILL", "--full"],
        "SIGKILL to its script": ["--signal=KILL", "--batch"], "SIGKILL to everything": []}
# With the plugin only, whose mirror still runs then. Slurm looks every 30 s.
TIME_OUT = "its time limit"
PART_SECONDS_MAX = 40
# The last processes end a moment after Slurm calls the nodes idle.
END_SECONDS_MAX = 10

# In what Slurm itself leaves: with PMIx 4.2, a slurmstepd may wait for itself in PMIx_server_finalize() for ever.
OF_SLURM = ("slurmstepd", "/run/slurmd/", "/tmp/spmix_appdir")

# The file of a part is made when it begins. scancel takes a moment to act, and a stop takes hardly longer.
JOB = """set -eu
cd {directory}
touch start
copper launch --tree {tree}
touch middle
export PYTHONPATH={mount}{tree} PYTHONDONTWRITEBYTECODE=1
srun --overlap {command}
touch stop
sleep 0.2
copper stop
touch end
"""


# The plugin starts the mirror before the script, and the epilogue stops it.
JOB_OF_PLUGIN = """set -eu
cd {directory}
touch middle
srun --overlap {command}
touch stop
sleep 0.2
! [ -e linger ] || sleep 120
touch end
"""


def first_of(pid, ancestors):
    """The closest of these ancestors, or None. Slurm's epilogue runs below slurmd, and a job below slurmstepd."""
    while pid > 1 and pid not in ancestors:
        try:
            pid = int(stat_of(pid)[1])
        except OSError:
            return None
    return pid if pid in ancestors else None


class Kills:
    def __init__(self, slurm, dice):
        self.slurm = slurm
        self.hosts = slurm.hosts
        self.dice = dice
        tree = package_tree("numpy")
        load = Workload(packages=["numpy"], trees=[tree])
        with_plugin = slurm.plugin_trees is not None
        self.options = [f"--copper={tree}"] if with_plugin else []
        self.script = (JOB_OF_PLUGIN if with_plugin else JOB).format(
            directory=slurm.directory, tree=tree, mount=MOUNT, command=shlex.join(load.command("" if with_plugin else MOUNT)))
        self.before = self.hosts.traces()
        self.slurms = self.hosts.processes()
        self.hung_steps = 0
        self.seconds = self.durations()

    def mark(self, part):
        return f"{self.slurm.directory}/{part}"

    def submit(self):
        for part in (*PARTS, "end"):
            if os.path.exists(self.mark(part)):
                os.unlink(self.mark(part))
        if self.options:
            pathlib.Path(self.mark("start")).touch()
        return self.slurm.submit(self.script, len(self.hosts.names), *self.options)

    def reaches(self, part):
        """Waits for the part. It never comes if the launch fails."""
        try:
            wait_until(lambda: os.path.exists(self.mark(part)), PART_SECONDS_MAX, part)
        except CopperError:
            return False
        return True

    def durations(self):
        """Of each part of a job that nobody kills."""
        job = self.submit()
        if not self.reaches("end"):
            raise CopperError(f"a job that nobody kills does not end: {self.slurm.output(job)}\n{self.slurm.logs()}")
        self.slurm.wait_until_idle()
        times = [os.stat(self.mark(part)).st_mtime for part in (*PARTS, "end")]
        if left := self.left():
            raise CopperError(f"left by a job that nobody killed: {left}")
        return {part: after - before for part, before, after in zip(PARTS, times, times[1:])}

    def left(self):
        """What jobs have left on the hosts, in words."""
        deadline = time.monotonic() + END_SECONDS_MAX
        while (found := self.hosts.traces() - self.before) and time.monotonic() < deadline:
            time.sleep(0.2)
        of_slurm = {line for line in found if any(name in line for name in OF_SLURM)}
        self.hung_steps += bool(of_slurm)
        self.before |= of_slurm
        return sorted(found - of_slurm)

    @staticmethod
    def end(way, job):
        return ["scontrol", "update", f"JobId={job}", "EndTime=now"] if way == TIME_OUT else ["scancel", *WAYS[way], job]

    def is_over(self, job):
        self.slurm.ask(*self.end(TIME_OUT, job))  # again, for a job that still waited
        return not self.slurm.is_there(job)

    def kill(self, part):
        """Kills a job during this part. Returns how, what the job left, and how long its end took."""
        job = self.submit()
        moment = self.dice.uniform(0, self.seconds[part])
        way = self.dice.choice([*WAYS, TIME_OUT] if self.options else list(WAYS))
        if way == TIME_OUT:
            pathlib.Path(self.mark("linger")).touch()
        how = f"{way} {moment:.2f} s after the beginning of '{part}'"
        if self.reaches(part):
            time.sleep(moment)  # the moment is what is random here
        else:
            how += ", which did not begin"
        began = time.monotonic()
        if way == "SIGKILL to everything":
            found = self.hosts.processes()
            # Asked last: what was a slurmd a moment ago may be a slurmstepd now.
            steps = self.hosts.processes("slurmstepd").keys()
            slurmds = self.hosts.processes("slurmd").keys()
            spared = self.slurms.keys() | steps | slurmds
            kill_all([pid for pid in found.keys() - spared if first_of(pid, steps | slurmds) not in slurmds])
        # Fails if the job has just ended.
        self.hosts.run(self.hosts.names[0], *self.end(way, job), **self.slurm.environment)
        if way == TIME_OUT:
            wait_until(lambda: self.is_over(job), 150, "the time limit")
            os.unlink(self.mark("linger"))
        self.slurm.wait_until_idle()
        took = time.monotonic() - began
        return how, self.left(), took


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--proctrack", choices=("cgroup", "pgid"), default=best_proctrack(),
                        help="how Slurm knows a step's processes (default: cgroup if the machine can)")
    parser.add_argument("--plugin", action="store_true", help="the SPANK plugin starts the mirror")
    options = parser.parse_args()
    if reason := why_no_hosts() or why_no_slurm():
        sys.exit(f"slurm_kills.py: {reason}")
    handle_termination()
    print(f"seed {options.seed}, proctrack/{options.proctrack}", flush=True)
    problems = 0
    longest = 0
    with Hosts(4) as hosts:
        slurm = Slurm(hosts, proctrack=options.proctrack, plugin_trees=[package_tree("numpy")] if options.plugin else None)
        slurm.start()
        kills = Kills(slurm, random.Random(options.seed))
        print("undisturbed:", ", ".join(f"{part} {seconds:.1f} s" for part, seconds in kills.seconds.items()), flush=True)
        for number in range(options.times):
            how, left, took = kills.kill(PARTS[number % len(PARTS)])
            print(f"{number}: {how}: {took:.1f} s", *left, sep="\n  " if left else "", flush=True)
            problems += bool(left)
            longest = max(longest, took)
            if left:
                kills.before |= set(left)
    print_table([("what", "goal", "measured", ""), *(row.cells() for row in (
        Row(f"jobs that left a process, mount, file or port on a host, of {options.times} killed", "0", str(problems),
            problems == 0),
        Row("jobs after which a slurmstepd stayed, or its files (Slurm's own)", "", str(kills.hung_steps), True),
        Row("longest time from the kill until Slurm calls all nodes idle", "", f"{longest:.1f} s", True)))])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
