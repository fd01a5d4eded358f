"""A mirror serves its own batch job. A later job of the same user, with the same mount, never reads the snapshot of another
one: that of a job that is over is ended, and beside that of a live job nothing uses it, and the job is told."""

import pathlib
import unittest

from copper import clean_environment
from mounted import MountTestCase

FIRST = "1.server"
SECOND = "2.server"

class OtherJobTestCase(MountTestCase):
    def setUp(self):
        self.tree = self.make_directory()
        self.value = f"{self.tree}/value"

    def launch_first(self, nodes=1):
        """Job 1 reads the file. Then the file changes."""
        pathlib.Path(self.value).write_text("1\n", encoding="utf-8")
        self.job = self.launch(nodes=nodes, trees=[self.tree], environment={"PBS_JOBID": FIRST})
        for node in range(nodes):
            self.assertEqual("1\n", pathlib.Path(self.job.mirrored(node, self.value)).read_text(encoding="utf-8"))
        pathlib.Path(self.value).write_text("2\n", encoding="utf-8")

    def second(self, *words, code=0):
        """What a command of job 2 prints on standard output and error."""
        done = self.job.command(*words[:1], "--mount", self.job.mount, *words[1:], environment=clean_environment(PBS_JOBID=SECOND))
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def launch_second(self, nodes=1, code=0):
        return self.second("launch", "--local", str(nodes), "--tree", self.tree, code=code)


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

    def test_after_a_refused_launch(self):
        self.launch_first()
        self.assertIn("already served", self.launch_second(code=1)[1])
        self.check_nothing_uses_it()

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

    def test_elements_of_an_array(self):
        self.job = self.launch(nodes=1, trees=[self.tree], environment={"SLURM_JOB_ID": "17", "SLURM_ARRAY_JOB_ID": "17"})
        for job, code in (("17", 0), ("18", 1)):
            done = self.job.command("run", "--mount", self.job.mount, "--", "true",
                                    environment=clean_environment(SLURM_JOB_ID=job, SLURM_ARRAY_JOB_ID="17"))
            self.assertEqual(code, done.returncode, done.stderr)


if __name__ == "__main__":
    unittest.main()
