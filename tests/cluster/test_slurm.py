"""Copper in jobs of a real Slurm over four hosts: started by srun, cleaned up by the epilogue."""

import json
import os
import random
import shlex
import signal
import time
import unittest

from copper import CopperError, command_lines, key_of_job, wait_until
from import_storm import Workload
from slurm import Slurm as Batch, why_no_slurm
from slurm_kills import PARTS, Kills
from test_mpirun import MOUNT, ClusterTestCase

JOB_SECONDS_MAX = 180
SUSPENSION_SECONDS = 10

# The import runs twice on each node. After `stopped`, the job stays, so that the test can look before the epilogue cleans up.
IMPORT = """set -eux
cd {directory}
copper launch --launcher srun --tree {tree}
copper status >status
export PYTHONPATH={tree} PYTHONDONTWRITEBYTECODE=1
eval "$(copper env)"
srun {command}
copper stats --json >stats
copper stop
touch stopped
sleep 600
"""

# The mount is in use when the job is cancelled.
USE = """set -eux
copper launch --tree {tree}
srun sh -c 'cd {mount}{tree} && exec 3<numpy/__init__.py && touch {directory}/used-$SLURM_PROCID && exec sleep 600'
"""

# The job does nothing of its own for Copper.
ASKING = """set -eux
cd {directory}
export PYTHONPATH={tree} PYTHONDONTWRITEBYTECODE=1
srun --nodes=4 --ntasks-per-node=1 python3 -c 'import numpy, os; print(os.uname().nodename, numpy.__file__)' >imported
copper stats --json >stats || true
touch stopped
sleep 600
"""

KILLS = 6


class SlurmTestCase(ClusterTestCase):
    @classmethod
    def setUpClass(cls):
        reason = why_no_slurm()
        if reason:
            raise unittest.SkipTest(reason)
        super().setUpClass()
        cls.slurm = Batch(cls.hosts, cpus=8)
        cls.slurm.start()


class Slurm(SlurmTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.slurm.end_jobs)
        self.forget_files()

    def forget_files(self):
        """Removes the files of an earlier job."""
        for name in os.listdir(self.slurm.directory):
            if name in ("status", "stats", "stopped", "imported") or name.startswith("used-"):
                os.unlink(f"{self.slurm.directory}/{name}")

    def check_nothing_left(self):
        super().check_nothing_left()
        self.assertEqual({}, self.hosts.processes("srun"))

    def read(self, name):
        with open(f"{self.slurm.directory}/{name}", encoding="utf-8") as file:
            return file.read()

    def run_until(self, names, script, nodes, *options, **variables):
        """Submits the job and waits until it has made these files."""
        job = self.slurm.submit(script, nodes, *options, **variables)

        def is_over():
            return names <= set(os.listdir(self.slurm.directory)) or not self.slurm.is_there(job)
        try:
            wait_until(is_over, JOB_SECONDS_MAX, str(names))
        except CopperError as error:
            self.fail(f"{error}\n{self.slurm.output(job)}\n{self.slurm.logs()}")
        if not names <= set(os.listdir(self.slurm.directory)):
            self.fail(f"the job ended\n{self.slurm.output(job)}")

    def import_and_count(self, nodes):
        load = Workload(packages=["numpy"], trees=[self.tree])
        self.run_until({"stopped"}, IMPORT.format(directory=self.slurm.directory, tree=self.tree,
                                                  command=shlex.join(load.command(MOUNT))), nodes)
        self.check_nothing_left()
        self.slurm.end_jobs()
        self.assertIn(f"{nodes} of {nodes} nodes serve", self.read("status"))
        stats = json.loads(self.read("stats"))
        self.assertEqual(self.hosts.names[:nodes], [node["host"] for node in stats["per_node"]])
        self.assertEqual(0, sum(stats["totals"]["fallbacks"].values()), stats["totals"]["fallbacks"])
        self.forget_files()
        return stats["totals"]["backing"]["listings"], stats["totals"]["backing"]["file_opens"]

    def test_each_file_is_read_once_by_all(self):
        alone = self.import_and_count(1)
        self.assertGreater(min(alone), 0)
        self.assertEqual(alone, self.import_and_count(4))

    def use(self):
        names = {f"used-{rank}" for rank in range(8)}
        self.run_until(names, USE.format(directory=self.slurm.directory, tree=self.tree, mount=MOUNT), 4)
        self.assertEqual(sorted(self.hosts.names), sorted(self.hosts.processes("copperd").values()))

    def test_key_shows_nowhere(self):
        self.use()
        key = key_of_job(self.hosts.processes("srun"))
        for line in command_lines():
            self.assertNotIn(key, line)
        for words in (["show", "job", "--details"], ["show", "step"]):
            self.assertNotIn(key.decode(), self.hosts.check("cn0", "scontrol", *words, **self.slurm.environment))
        self.assertNotIn(key.decode(), self.slurm.logs())
        self.slurm.end_jobs()

    def test_cancelled_job(self):
        self.use()
        self.slurm.end_jobs()
        self.check_nothing_left()

    def test_cancelled_job_with_daemons_that_cannot_end_themselves(self):
        """One was killed and left its mount, one hangs."""
        self.use()
        daemons = {host: pid for pid, host in self.hosts.processes("copperd").items()}
        os.kill(daemons["cn1"], signal.SIGSTOP)
        os.kill(daemons["cn2"], signal.SIGKILL)
        self.slurm.end_jobs()
        self.check_nothing_left()

    def ask(self, *options, **variables):
        """Runs a job that may ask for a mirror. Returns what its tasks imported, by host."""
        self.run_until({"stopped"}, ASKING.format(directory=self.slurm.directory, tree=self.tree), 4, *options,
                       COPPER_TREE=self.tree, **variables)
        return dict(line.split() for line in self.read("imported").splitlines())

    def test_mirror_by_asking(self):
        for options, variables in ((["--comment=copper"], {}), ([], {"COPPER_MIRROR": "1"})):
            with self.subTest(options=options, variables=variables):
                imported = self.ask(*options, **variables)
                self.assertEqual({host: f"{MOUNT}{self.tree}/numpy/__init__.py" for host in self.hosts.names}, imported)
                self.assertEqual(4, json.loads(self.read("stats"))["alive"])
                self.slurm.end_jobs()
                self.check_nothing_left()
                self.assertEqual("", "".join(self.hosts.check(host, "sh", "-c", "ls /run/copper-asked 2>/dev/null; true")
                                             for host in self.hosts.names))
                self.forget_files()

    def test_no_mirror_without_asking(self):
        imported = self.ask("--comment=copperfield")
        self.assertEqual({host: f"{self.tree}/numpy/__init__.py" for host in self.hosts.names}, imported)

    def test_suspended_job(self):
        """Its daemons stand still for a while. Then they go on, and serve."""
        self.use()
        daemons = self.hosts.processes("copperd")
        job = self.hosts.check("cn0", "squeue", "-h", "-o", "%A", **self.slurm.environment).strip()
        self.hosts.check("cn0", "scontrol", "suspend", job, **self.slurm.environment)
        wait_until(lambda: all(self.state(pid) == "T" for pid in daemons), 20, "the suspension of all daemons")
        time.sleep(SUSPENSION_SECONDS)
        self.hosts.check("cn0", "scontrol", "resume", job, **self.slurm.environment)
        wait_until(lambda: json.loads(self.hosts.run("cn0", "copper", "stats", "--json").stdout or "{}").get("alive") == 4,
                   30, "the return of all nodes")
        self.assertEqual(daemons, self.hosts.processes("copperd"))
        self.storm("numpy", self.hosts.names, processes=1)

    @staticmethod
    def state(pid):
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0]

    def test_killed_at_random_moments(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", end=" ", flush=True)
        kills = Kills(self.slurm, random.Random(seed))
        for number in range(KILLS):
            how, left, _ = kills.kill(PARTS[number % len(PARTS)])
            self.assertEqual([], left, f"{how} (seed {seed})")
