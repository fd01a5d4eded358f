"""Breaks processes, hosts and links while programs on all four hosts import and read. No program notices."""

import json
import os
import pathlib
import shutil
import signal
import time

from copper import LAUNCH_DAEMONS, LAUNCHERS, is_built_with_mpich, nodes_of, state_of, wait_until
from import_storm import PYTHON, Workload
from pages import block_with, in_place, write
from test_mpirun import MOUNT, ClusterTestCase
from test_slurm import SlurmTestCase
from witnesses import WITNESS, Witnesses, again_and_again

# The witnesses read this tree. It is small, so that a pass is short.
TREE = "/usr/share/perl5"

# Supervisors wait for 10 s with this deadline.
SUSPENSION_SECONDS = 15
# Longer than Slurm takes to end a step that has lost a PMIx connection.
CANCELLING_SECONDS = 5
# Stopped, or frozen with the cgroup.
STANDING_STILL = ("T", "D")

IN_SLURM = """set -eux
cd {directory}
copper launch --launcher srun --tree {tree} --tree {packages} --deadline 2 --arity 2 --readers 1
touch started
sleep 600
"""


class SurvivalTestCase(ClusterTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.witness = shutil.copy2(WITNESS, cls.hosts.directory)  # this may lie in a /tmp that the hosts do not see

    def records(self):
        """Of the instances of all hosts."""
        found = {}
        for host in self.hosts.names:
            text = self.hosts.check(host, "sh", "-c", "cat /tmp/copper-0/*/record.json 2>/dev/null; true")
            if text:
                found[host] = json.loads(text)
        return found

    def outer(self, host, inner):
        """The process's id as this process sees it."""
        for pid in self.hosts.processes_on(host, "copperd", "copperd-superv"):
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                names = next(line.split() for line in file if line.startswith("NSpid:"))
            if names[-1] == str(inner):
                return pid
        raise self.failureException(f"{host}: no process {inner}")

    def daemon(self, host):
        return self.outer(host, self.records()[host]["pid"])

    def witnesses(self, hosts=None):
        """One per host that reads, and one that imports in a loop."""
        load = Workload(packages=["numpy"], trees=[self.tree])
        importer = ["env", f"PYTHONPATH={MOUNT}{self.tree}", "PYTHONDONTWRITEBYTECODE=1", *load.command(MOUNT)]
        commands = []
        for host in hosts or self.hosts.names:
            commands.append(self.hosts.inside(host, PYTHON, self.witness, MOUNT, TREE))
            commands.append(self.hosts.inside(host, *again_and_again(importer)))
        return Witnesses(commands)

    def pass_by(self, witnesses, hosts=None):
        """Programs that start now work, too."""
        self.storm("numpy", hosts or self.hosts.names, processes=1)
        self.assertTrue(all(process.poll() is None for process in witnesses.running), "a witness has given up")

    def kill(self, pid, number=signal.SIGKILL):
        os.kill(pid, number)

    def until_succeeded(self, host, daemon):
        def is_succeeded():
            record = self.records().get(host)
            return record and record["is_alone"] and self.hosts.processes("copperd").get(daemon) is None
        wait_until(is_succeeded, 30, f"a successor on {host}")

    def check_unnoticed(self, witnesses):
        self.assertEqual([], witnesses.problems())
        self.assertGreater(witnesses.calls(), 0)


class MpiRunSurvival(SurvivalTestCase):
    def setUp(self):
        super().setUp()
        self.launch_well("--tree", TREE, "--deadline", "2", "--arity", "2", "--readers", "1")

    def end(self):
        self.stop_well()
        self.check_nothing_left()

    def is_lost(self, host):
        node = nodes_of(self.hosts.run("cn0", "copper", "status", "--nodes").stdout)[self.hosts.names.index(host)]
        return node["STATE"] == "lost"

    def lose_daemon(self, host):
        with self.witnesses() as witnesses:
            daemon = self.daemon(host)
            self.kill(daemon)
            self.until_succeeded(host, daemon)
            self.pass_by(witnesses)
        self.check_unnoticed(witnesses)
        self.end()

    def test_reader(self):
        self.lose_daemon(self.reader())

    def test_first_of_the_others(self):
        """Each of the four nodes in a binary tree: reader, inner nodes and leaf."""
        self.lose_daemon(next(host for host in self.hosts.names if host != self.reader()))

    def test_last_of_the_others(self):
        self.lose_daemon(next(host for host in reversed(self.hosts.names) if host != self.reader()))

    def test_orted(self):
        """Open MPI ends a process that loses its launcher, MPICH does not."""
        host = next(host for host in self.hosts.names[1:] if host != self.reader())
        with self.witnesses() as witnesses:
            daemon = self.daemon(host)
            self.kill(self.hosts.processes_on(host, *LAUNCH_DAEMONS)[0])
            if not is_built_with_mpich():
                self.until_succeeded(host, daemon)
            self.pass_by(witnesses)
        self.check_unnoticed(witnesses)
        self.end()

    def test_mpirun(self):
        daemons = {host: self.daemon(host) for host in self.hosts.names}
        with self.witnesses() as witnesses:
            self.kill(next(iter(self.hosts.processes(*LAUNCHERS))))
            for host, daemon in daemons.items():
                self.until_succeeded(host, daemon)
            self.pass_by(witnesses)
        self.check_unnoticed(witnesses)
        self.end()

    def test_daemon_that_stands_still(self):
        """A pause longer than the deadline: the job takes the node in again."""
        host = next(host for host in self.hosts.names[1:] if host != self.reader())
        others = [name for name in self.hosts.names if name != host]
        with self.witnesses() as witnesses:
            daemon = self.daemon(host)
            self.kill(daemon, signal.SIGSTOP)
            try:
                self.pass_by(witnesses, others)
                wait_until(lambda: "3 of 4 nodes serve" in self.hosts.run("cn0", "copper", "status").stdout, 20, "its absence")
            finally:
                self.kill(daemon, signal.SIGCONT)
            # Not "serving": what it was waiting for during the pause, it reads itself, and says so for a minute.
            wait_until(lambda: self.stats()["alive"] == 4, 30, "its return")
            self.pass_by(witnesses)
        self.check_unnoticed(witnesses)
        self.end()

    def test_link(self):
        """The link goes down for longer than the deadline, and comes up."""
        host = next(host for host in self.hosts.names[1:] if host != self.reader())
        others = [name for name in self.hosts.names if name != host]
        with self.witnesses() as witnesses:
            self.hosts.ip(self.hosts.pids[host], "link", "set", "eth0", "down")
            try:
                self.pass_by(witnesses, others)
                self.pass_by(witnesses, [host])
                # MPI may also give up other links.
                wait_until(lambda: self.is_lost(host), 20, "its absence")
            finally:
                self.hosts.ip(self.hosts.pids[host], "link", "set", "eth0", "up")
            self.pass_by(witnesses)
        self.check_unnoticed(witnesses)
        self.end()


class Refresh(SurvivalTestCase):
    """On every host, also where a successor serves, which only a program on its host reaches."""

    def setUp(self):
        super().setUp()
        self.file = pathlib.Path(self.hosts.directory, "project/file")
        self.file.parent.mkdir(exist_ok=True)
        self.write("first")
        self.launch_well("--tree", self.file.parent)
        self.check("first")

    def write(self, text):
        write(self.file.with_suffix(".new"), text)
        self.file.with_suffix(".new").replace(self.file)

    def check(self, text):
        self.assertEqual({host: text for host in self.hosts.names},
                         {host: self.hosts.check(host, "cat", f"{MOUNT}{self.file}") for host in self.hosts.names})

    def refresh(self, host, text):
        self.write(text)
        done = self.hosts.run(host, "copper", "refresh", self.file)
        self.assertEqual((0, "", ""), (done.returncode, done.stdout, done.stderr))
        self.check(text)

    def test_from_any_host(self):
        for host in self.hosts.names:
            self.refresh(host, f"from {host}")
        self.stop_well()

    def test_where_a_daemon_was_lost(self):
        lost = self.hosts.names[2]
        self.kill(self.daemon(lost))
        self.refresh("cn0", "meanwhile")  # whether its successor is there already or not
        for host in self.hosts.names:
            self.refresh(host, f"from {host}")
        self.stop_well()

    def test_a_daemon_that_stands_still_is_named(self):
        host = self.hosts.names[2]
        supervisor, daemon = (self.outer(host, self.records()[host][kind]) for kind in ("supervisor", "pid"))
        self.kill(supervisor, signal.SIGSTOP)
        self.kill(daemon, signal.SIGSTOP)
        try:
            done = self.hosts.run("cn0", "copper", "refresh", self.file)
        finally:
            self.kill(daemon, signal.SIGCONT)
            self.kill(supervisor, signal.SIGCONT)
        self.assertEqual(1, done.returncode)
        self.assertIn(f"not refreshed on {host}", done.stderr)
        self.refresh("cn0", "later")
        self.stop_well()
        wait_until(lambda: not self.hosts.processes(*LAUNCH_DAEMONS), 30, "the end of the launcher's daemons")


class SlurmSurvival(SurvivalTestCase, SlurmTestCase):
    def launch_in_job(self):
        self.addCleanup(self.slurm.end_jobs)
        started = f"{self.slurm.directory}/started"
        if os.path.exists(started):
            os.unlink(started)
        self.job = self.slurm.submit(IN_SLURM.format(directory=self.slurm.directory, tree=TREE, packages=self.tree), 4)
        wait_until(lambda: os.path.exists(started) or not self.slurm.is_there(self.job), 120, "the start")
        self.assertTrue(os.path.exists(started), self.slurm.output(self.job))

    def end(self):
        self.hosts.check("cn0", "copper", "stop", SLURM_JOB_ID=self.job, **self.slurm.environment)
        wait_until(lambda: not self.hosts.processes("copperd-task", "srun"), 20, "the end of the step")
        self.slurm.end_jobs()
        self.check_nothing_left()

    def kill_on(self, host, program):
        for pid in self.hosts.processes_on(host, program):
            self.kill(pid)

    def lose(self, host, program, alone):
        """Kills this program of the mirror's step on this host. `alone`: the hosts whose daemon is lost, and has a successor."""
        self.launch_in_job()
        with self.witnesses() as witnesses:
            daemon = self.daemon(host)
            self.kill_on(host, program)
            if host in alone:
                self.until_succeeded(host, daemon)
            self.pass_by(witnesses)
        self.check_unnoticed(witnesses)
        found = {name for name, record in self.records().items() if record["is_alone"]}
        self.assertEqual(alone, found, {name: self.hosts.run(name, "copper", "status").stdout for name in found - alone})
        self.end()

    def test_daemon(self):
        self.lose("cn1", "copperd", {"cn1"})

    def test_signals_for_programs(self):
        """What `#SBATCH --signal` sends to all processes of a job, its programs are to handle."""
        self.launch_in_job()
        processes = self.hosts.processes("copperd", "copperd-superv", "copperd-task")
        for name in ("USR1", "USR2"):
            self.hosts.check("cn0", "scancel", f"--signal={name}", self.job, **self.slurm.environment)
        self.storm("numpy", self.hosts.names, processes=1)
        self.assertEqual(processes, self.hosts.processes("copperd", "copperd-superv", "copperd-task"))
        self.end()

    def test_step_daemon(self):
        self.lose("cn2", "slurmstepd", set() if is_built_with_mpich() else {"cn2"})

    def test_daemon_and_supervisor(self):
        """Programs on this host lose the mirror. (Slurm may then end the step.) Nothing stays after the job."""
        self.launch_in_job()
        self.kill_on("cn1", "copperd-superv")
        self.kill_on("cn1", "copperd")
        wait_until(lambda: self.hosts.run("cn1", "ls", MOUNT).returncode != 0, 20, "the loss of the mount")
        self.slurm.end_jobs()
        self.check_nothing_left()

    def test_node_that_leaves_alone(self):
        """Even if Slurm learns of the end of its connection long before that of its task."""
        self.launch_in_job()
        others = [name for name in self.hosts.names if name != "cn1"]
        daemons = {host: self.daemon(host) for host in others}
        [task] = self.hosts.processes_on("cn1", "copperd-task")
        with self.witnesses(others) as witnesses:
            os.kill(task, signal.SIGSTOP)
            try:
                self.hosts.check("cn1", "copper", "stop", "--local")
                time.sleep(CANCELLING_SECONDS)
                self.pass_by(witnesses, others)
            finally:
                os.kill(task, signal.SIGCONT)
        self.check_unnoticed(witnesses)
        self.assertEqual(daemons, {host: self.daemon(host) for host in others})
        self.end()

    def beside(self, script, until):
        """Runs a job of the same user on two of the mirror's nodes, until this file is there or the job is over."""
        job = self.slurm.submit(script, 2, "--nodelist=cn1,cn2")
        wait_until(lambda: os.path.exists(until) or not self.slurm.is_there(job), 120, "the job")
        return job

    def test_other_jobs_on_its_nodes(self):
        """One fails to launch. Another has a mount of its own, as docs/launchers.md says, and is cancelled."""
        self.launch_in_job()
        file = pathlib.Path(self.hosts.directory, "lustre/sw/conda/file")
        write(file, "text")
        serves = f"{self.slurm.directory}/serves"
        self.addCleanup(lambda: os.path.exists(serves) and os.unlink(serves))
        block = in_place(block_with("docs/launchers.md", "COPPER_MOUNT="), self.hosts.directory)
        reading = [self.hosts.inside("cn0", "env", *(f"{name}={value}" for name, value in self.slurm.environment.items()), "srun",
                                     f"--jobid={self.job}", "-n", "1", "--overlap", f"--nodelist={host}", PYTHON, self.witness,
                                     MOUNT, TREE) for host in ("cn1", "cn2")]
        programs = ("copperd", "copperd-superv", "copperd-task", "srun")
        with Witnesses(reading) as witnesses:
            ours = self.hosts.processes(*programs)
            second = self.beside(f"copper launch --tree {TREE}\ncopper run -- touch {serves}\nsqueue -h -j 4000000", serves)
            said = self.slurm.output(second)
            self.assertIn(f"for job {self.job}; give this job another place", said)
            self.assertIn(f"job {self.job} still runs", said)
            self.assertIn(f"is the mirror of job {self.job}, not of this job ({second})", said)
            self.assertIn("Invalid job id", said, "what batch_jobs.cpp expects of a job that is over")
            self.assertFalse(os.path.exists(serves))
            third = self.beside(f"set -e\n{block}\ncmp $COPPER_MOUNT{file} {file}\ntouch {serves}\nsleep 600", serves)
            self.assertTrue(os.path.exists(serves), self.slurm.output(third))
            self.assertLess(len(ours), len(self.hosts.processes(*programs)))
            self.hosts.check("cn0", "scancel", third, **self.slurm.environment)
            wait_until(lambda: not self.slurm.is_there(third), 60, "the end of the third job")
            wait_until(lambda: self.hosts.processes(*programs) == ours, 20, "the end of its processes, and of no other")
            self.pass_by(witnesses)
        self.check_unnoticed(witnesses)
        self.assertEqual("", "".join(self.hosts.run(host, "sh", "-c", "ls -d /tmp/mirror-*").stdout for host in self.hosts.names))
        self.end()

    def test_suspended_job(self):
        """Its daemons stand still for longer than a supervisor waits for one that hangs. Then they go on, and serve."""
        self.launch_in_job()
        daemons = self.hosts.processes("copperd")
        self.hosts.check("cn0", "scontrol", "suspend", self.job, **self.slurm.environment)
        wait_until(lambda: all(state_of(pid) in STANDING_STILL for pid in daemons), 20, "the suspension of all daemons")
        time.sleep(SUSPENSION_SECONDS)
        self.hosts.check("cn0", "scontrol", "resume", self.job, **self.slurm.environment)
        wait_until(lambda: json.loads(self.hosts.run("cn0", "copper", "stats", "--json").stdout or "{}").get("alive") == 4,
                   30, "the return of all nodes")
        self.assertEqual(daemons, self.hosts.processes("copperd"))
        self.storm("numpy", self.hosts.names, processes=1)
        self.slurm.end_jobs()
        self.check_nothing_left()


class PgidSlurmSurvival(SlurmSurvival):
    """Slurm knows the task's process group only, which supervisors leave."""

    proctrack = "pgid"
    test_step_daemon = test_daemon_and_supervisor = None
