"""A mirror serves its own batch job. A later job of the same user, with the same mount, never reads the snapshot of another
one: that of a job that is over is ended, and beside that of a live job nothing uses it, and the job is told."""

import json
import os
import pathlib
import signal
import unittest

from copper import LAUNCHERS, clean_environment, kill_all, mounts_below, wait_until
from mounted import MountTestCase

FIRST = "1.server"
SECOND = "2.server"
LEASE_SECONDS_MAX = 120  # twice the interval of daemon/lease.cpp

# Stands in for the batch system: says of a job what the file of its name holds.
QSTAT = """#!/bin/sh
case $(cat "{directory}/$2" 2>/dev/null) in
    alive) printf 'Job Id: %s\\n    job_state = R\\n' "$2" ;;
    over) echo "qstat: Unknown Job Id $2" >&2; exit 153 ;;
    *) echo 'qstat: cannot connect to server' >&2; exit 255 ;;
esac
"""


class OtherJobTestCase(MountTestCase):
    def setUp(self):
        self.tree = self.make_directory()
        self.batch = self.make_directory()
        program = pathlib.Path(self.batch, "bin/qstat")
        program.parent.mkdir()
        program.write_text(QSTAT.format(directory=self.batch), encoding="utf-8")
        program.chmod(0o755)
        self.value = f"{self.tree}/value"

    def environment_of(self, job, **more):
        environment = clean_environment(PBS_CONF_FILE="/dev/null", **({"PBS_JOBID": job} if job else {}), **more)
        environment["PATH"] = f"{self.batch}/bin:{environment['PATH']}"
        return environment

    def launch_first(self, nodes=1, **environment):
        """Job 1 reads the file. Then the file changes."""
        pathlib.Path(self.value).write_text("1\n", encoding="utf-8")
        self.job = self.launch(nodes=nodes, trees=[self.tree], environment=environment or {"PBS_JOBID": FIRST})
        for node in range(nodes):
            self.assertEqual("1\n", pathlib.Path(self.job.mirrored(node, self.value)).read_text(encoding="utf-8"))
        pathlib.Path(self.value).write_text("2\n", encoding="utf-8")

    def says_of_first(self, life):
        pathlib.Path(self.batch, FIRST).write_text(life, encoding="utf-8")

    def second(self, *words, code=0, environment=None):
        """What a command of job 2 prints on standard output and error."""
        done = self.job.command(*words[:1], "--mount", self.job.mount, *words[1:],
                                environment=environment or self.environment_of(SECOND))
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def launch_second(self, nodes=1, code=0, environment=None):
        return self.second("launch", "--local", str(nodes), "--tree", self.tree, code=code, environment=environment)

    def processes_of_first(self):
        return {pid for pid, words in self.job.own_processes().items() if f"--batch-job={FIRST}" in words}

    def check_first_serves(self):
        with open(self.job.mirrored(0, self.value), encoding="utf-8") as file:
            self.assertEqual("1\n", file.read())

    def check_second_serves(self, nodes=1):
        for node in range(nodes):
            self.assertEqual("2\n", self.second("run", "--node", str(node), "--", "cat", self.job.mirrored(node, self.value))[0])
        self.assertEqual(set(), self.processes_of_first())
        self.second("stop")


class OtherJob(OtherJobTestCase):
    def check_nothing_uses_it(self):
        """Each command that would use the mirror, in a job whose launch was refused and whose script goes on."""
        for words in (["env"], ["env", "--shell", "csh"], ["env", "--shell", "slurm"], ["run", "--", "cat", self.value],
                      ["check", "--", "cat", self.value], ["path", self.value], ["prefetch", self.tree]):
            with self.subTest(words):
                said, wrong = self.second(*words, code=1)
                self.assertEqual("false\n" if words[0] == "env" else "", said)  # which makes eval fail
                self.assertRegex(wrong, f"^copper: {self.job.root(0)} is the mirror of job {FIRST}, not of this job "
                                        rf"\({SECOND}\)")

    def test_beside_a_live_job(self):
        self.launch_first()
        daemons = self.job.daemons()
        for life, says in (("alive", f"job {FIRST} still runs"), ("mute", "cannot connect to server")):
            with self.subTest(life):
                self.says_of_first(life)
                said, wrong = self.launch_second(code=1)
                self.assertEqual("", said)
                self.assertRegex(wrong, f"already served, by process [0-9]+, for job {FIRST}; give this job another place "
                                        "with --mount DIR ")
                self.assertIn(says, wrong)
                self.check_nothing_uses_it()
                self.assertIn(f"is the mirror of job {FIRST}: end it there", self.second("stop", code=1)[1])
                self.assertIn(f"spared {self.job.root(0)}, the mirror of job {FIRST}", self.second("stop", "--local")[0])
                self.check_first_serves()
        self.assertEqual(daemons, self.job.daemons())

    def test_filters_of_the_user_hide_no_live_job(self):
        """squeue(1) takes what it shows from variables, and SLURM_CLUSTERS sends it to another cluster."""
        program = pathlib.Path(self.batch, "bin/squeue")
        program.write_text('#!/bin/sh\n[ -n "$SQUEUE_STATES$SLURM_CLUSTERS" ] || echo "1 RUNNING"\n', encoding="utf-8")
        program.chmod(0o755)
        pathlib.Path(self.value).touch()
        self.job = self.launch(trees=[self.tree], environment={"SLURM_JOB_ID": "1"})
        daemons = self.job.daemons()
        for variables in ({}, {"SQUEUE_STATES": "PD"}, {"SLURM_CLUSTERS": "other"}):
            environment = clean_environment(SLURM_JOB_ID="2", PATH=f"{self.batch}/bin:{os.environ['PATH']}", **variables)
            done = self.job.command("launch", "--mount", self.job.mount, "--local", "1", "--tree", self.tree,
                                    environment=environment)
            self.assertEqual(1, done.returncode, done.stdout + done.stderr)
            self.assertIn("job 1 still runs", done.stderr)
        self.assertEqual(daemons, self.job.daemons())

    def test_whoever_looks_is_told(self):
        self.launch_first()
        for words in (["status"], ["status", "--nodes"], ["stats"], ["stats", "--json"], ["report", "-o", "-"]):
            with self.subTest(words):
                self.assertRegex(self.second(*words)[1], f"^copper: warning: .* is the mirror of job {FIRST}, not of this")
                # A shell that came by ssh has no variables of the job.
                self.assertEqual("", self.job.command(*words, "--mount", self.job.mount, environment=clean_environment()).stderr)
        for job in ("", FIRST):
            environment = clean_environment(**({"PBS_JOBID": job} if job else {}))
            done = self.job.command("run", "--mount", self.job.mount, "--", "cat", self.job.mirrored(0, self.value),
                                    environment=environment)
            self.assertEqual((0, "1\n"), (done.returncode, done.stdout), done.stderr)

    def test_a_place_of_its_own(self):
        """As the message says."""
        self.launch_first()
        self.launch_second(code=1)
        mount = f"{self.job.directory}/second"
        environment = {**self.environment_of(SECOND), "COPPER_MOUNT": mount}
        for words in (["launch", "--launcher", "none", "--tree", self.tree], ["run", "--", "cat", mount + self.value],
                      ["stop"]):
            done = self.job.command(*words, environment=environment)
            self.assertEqual(0, done.returncode, done.stderr)
            if words[0] == "run":
                self.assertEqual("2\n", done.stdout)
        self.check_first_serves()

    def test_launch_after_a_job_that_is_over(self):
        """It was deleted by force: its daemons know nothing of it."""
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                self.launch_first(nodes)
                self.says_of_first("over")
                self.assertIn(f"job {FIRST} is over: ending its mirror", self.launch_second(nodes)[1])
                self.check_second_serves(nodes)

    def test_launch_after_a_daemon_that_comes_back(self):
        """A supervisor starts a successor, unless it is ended, too."""
        self.launch_first(2)
        self.says_of_first("over")
        os.kill(self.job.daemons()[1], signal.SIGKILL)
        self.launch_second(2)
        self.check_second_serves(2)

    def test_launch_after_a_job_whose_processes_were_killed(self):
        """The batch system need not know: nothing alive is ended."""
        self.launch_first()
        kill_all(self.job.own_processes())
        wait_until(lambda: not self.job.own_processes(), 20, "their end")
        self.assertIn(f"clearing what job {FIRST} has left", self.launch_second()[1])
        self.check_second_serves()

    def test_stop_after_a_job_that_is_over(self):
        for words in (["stop"], ["stop", "--local"]):
            with self.subTest(words):
                self.launch_first(2)
                self.says_of_first("over")
                self.assertIn(f"job {FIRST} is over", self.second(*words)[0])
                self.assertEqual([], mounts_below(self.job.directory))
                self.assertEqual([], self.job.leftovers())

    def test_stop_of_a_job_that_is_named(self):
        """As the message says if the batch system cannot be asked."""
        self.launch_first(2)
        self.assertIn(f"'copper stop --batch-job {FIRST} --mount {self.job.mount}'", self.second("stop", code=1)[1])
        self.second("stop", "--batch-job", "3.server", code=1)
        self.check_first_serves()
        self.second("stop", "--batch-job", FIRST)
        self.assertEqual([], self.job.leftovers())

    def test_mirror_of_no_job(self):
        """It was launched outside all batch jobs, or this process is outside: whose it is cannot be known."""
        for first, job, says in (("", SECOND, "^copper: warning: {mount} belongs to no batch job, so its files may be older than "
                                              "this job"),
                                 (FIRST, "", f"^copper: {{mount}} is the mirror of job {FIRST}, and this process is in no job")):
            with self.subTest(first=first):
                self.launch_first(**({"PBS_JOBID": first} if first else {"COPPER_PROFILE": "off"}))
                says = says.format(mount=self.job.root(0))
                for words in (["run", "--", "cat", self.job.mirrored(0, self.value)], ["env"]):
                    said, wrong = self.second(*words, environment=self.environment_of(job))
                    self.assertRegex(wrong, says)
                    if words[0] == "run":
                        self.assertEqual(("1\n", 1), (said, wrong.count("\n")), wrong)
                # One process of a step tells it, not each.
                for variable, rank in (("OMPI_COMM_WORLD_RANK", 1), ("SLURM_PROCID", 7), ("PMI_RANK", 0)):
                    _, wrong = self.second("run", "--", "true", environment=self.environment_of(job, **{variable: rank}))
                    self.assertEqual(rank == 0, bool(wrong), wrong)

    def check_next_run(self, first, second):
        """A job that is put back into the queue keeps its id."""
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                self.launch_first(nodes, **first)
                daemons = self.job.daemons()
                again = self.environment_of("", **second)
                job = second.get("SLURM_JOB_ID", FIRST)
                for words in (["env"], ["run", "--", "cat", self.value]):
                    self.assertRegex(self.second(*words, code=1, environment=again)[1],
                                     f"^copper: {self.job.root(0)} is the mirror of an earlier run of job {job}, ")
                self.assertIn(f"an earlier run of job {job} is over: ending its mirror",
                              self.launch_second(nodes, environment=again)[1])
                for node in range(nodes):
                    self.assertEqual("2\n", self.second("run", "--node", str(node), "--", "cat",
                                                        self.job.mirrored(node, self.value), environment=again)[0])
                self.assertEqual(set(), set(daemons) & self.job.own_processes().keys())
                self.assertIn("already served", self.launch_second(nodes, code=1, environment=again)[1])
                self.second("stop", environment=again)

    def test_next_run_of_the_job_in_slurm(self):
        self.check_next_run({"SLURM_JOB_ID": "17"}, {"SLURM_JOB_ID": "17", "SLURM_RESTART_COUNT": "1"})

    def test_next_run_of_the_job_in_pbs(self):
        self.check_next_run({"PBS_JOBID": FIRST, "PBS_JOBCOOKIE": "one"}, {"PBS_JOBID": FIRST, "PBS_JOBCOOKIE": "two"})

    def test_job_with_the_mount_and_job_with_its_nodes(self):
        """Job 1 has DIR here, launched from another node; job 2 has DIR.0."""
        self.job = self.prepare(trees=[self.tree])
        pathlib.Path(self.value).write_text("1\n", encoding="utf-8")
        self.second("launch", "--launcher", "none", "--tree", self.tree, environment=self.environment_of(FIRST))
        first = pathlib.Path(self.job.mount + self.value)
        self.assertEqual("1\n", first.read_text(encoding="utf-8"))
        for record in pathlib.Path("/tmp").glob("copper-[0-9]*/launch-*.json"):
            if json.loads(record.read_text(encoding="utf-8"))["mount"] == self.job.mount:
                record.unlink()
        pathlib.Path(self.value).write_text("2\n", encoding="utf-8")
        self.says_of_first("alive")
        self.launch_second()
        self.assertEqual("2\n", self.second("run", "--", "cat", self.job.mirrored(0, self.value))[0])
        self.second("prefetch", self.tree)
        self.assertEqual(SECOND, json.loads(self.second("status", "--json")[0])["job"])
        self.assertIn("1 of 1 nodes served 1 files", self.second("stop")[0])
        self.assertEqual([self.job.mount], mounts_below(self.job.directory))
        self.assertEqual("1\n", first.read_text(encoding="utf-8"))
        self.second("stop", environment=self.environment_of(FIRST))

    def test_stop_does_not_need_the_launcher_of_a_job_that_is_over(self):
        for words in (["stop"], ["stop", "--batch-job", FIRST]):
            with self.subTest(words):
                self.launch_first()
                self.check_stop_without_launcher(words)

    def check_stop_without_launcher(self, words):
        for record in pathlib.Path("/tmp").glob("copper-[0-9]*/*.json"):
            if json.loads(record.read_text(encoding="utf-8"))["mount"] == self.job.mount:
                record.unlink()  # of the launch
        for record in pathlib.Path("/tmp").glob("copper-[0-9]*/*/record.json"):
            content = json.loads(record.read_text(encoding="utf-8"))
            if content["mount"] == self.job.root(0):
                record.write_text(json.dumps({**content, "run_everywhere": ["false"]}), encoding="utf-8")
        self.says_of_first("over")
        self.assertIn("could not clean up on all other nodes", self.second(*words)[1])

    def test_elements_of_an_array(self):
        self.job = self.launch(nodes=1, trees=[self.tree], environment={"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "17"})
        for job, code in (("17", 0), ("18", 1)):
            done = self.job.command("run", "--mount", self.job.mount, "--", "true",
                                    environment=clean_environment(SLURM_JOB_ID=job, SLURM_ARRAY_JOB_ID="17"))
            self.assertEqual(code, done.returncode, done.stderr)


if __name__ == "__main__":
    unittest.main()


class JobIsOver(OtherJobTestCase):
    def test_its_mirror_ends_without_anybody(self):
        """It was deleted by force, and so its launcher was killed."""
        self.launch_first(nodes=2, **self.environment_of(FIRST))
        self.says_of_first("alive")
        kill_all(pid for pid, words in self.job.own_processes().items() if os.path.basename(words[0]) in LAUNCHERS)
        self.check_first_serves()
        self.says_of_first("over")
        wait_until(lambda: not self.processes_of_first(), LEASE_SECONDS_MAX, "the end of the mirror")
        self.assertEqual([], mounts_below(self.job.mount))
        self.assertEqual("nothing of Copper was left on this node\n", self.second("stop", "--local")[0])
