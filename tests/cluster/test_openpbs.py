"""Copper in jobs of a real OpenPBS over four hosts: started over ssh or by TM, cleaned up by the hook."""

import os
import pathlib
import unittest

from copper import REPOSITORY, CopperError, as_nobody, is_built_with_mpich, wait_until
from openpbs import OpenPbs as Batch, why_no_openpbs
from pages import PROGRAM, block_with, in_place, make_software, script_of, write
from test_mpirun import MOUNT, ClusterTestCase

JOB_SECONDS_MAX = 120
LEASE_SECONDS_MAX = 120  # twice the interval of daemon/lease.cpp
PAGE = "docs/use/pbs.md"
ON_NODES = ("-l", "select=4", "-l", "place=scatter")
MPIRUN = 'mpirun --hostfile "$PBS_NODEFILE" -x PATH'
MPIEXEC = 'mpiexec -f "$PBS_NODEFILE"'  # of MPICH; in the page, too

# The job does nothing of its own for Copper.
ASKING = """#!/bin/bash
export PYTHONPATH={tree}:$PYTHONPATH PYTHONDONTWRITEBYTECODE=1
copper status
copper run -- python3 -c 'import numpy, os; print(os.stat(numpy.__file__).st_dev == os.stat("{mount}").st_dev)'
"""

# Neither does a command of this one.
UNCHANGED = """#!/bin/bash
echo "mirrors at {tree}: $(grep -c ' {tree} .* - fuse.copper ' /proc/self/mountinfo)"
"""

NO_SSH = "#!/bin/sh\necho 'ssh is not allowed here' >&2\nexit 255\n"


class OpenPbs(ClusterTestCase):
    ssh = True

    @classmethod
    def setUpClass(cls):
        reason = why_no_openpbs()
        if reason:
            raise unittest.SkipTest(f"optional: {reason}")
        super().setUpClass()
        cls.pbs = Batch(cls.hosts)
        cls.pbs.start()
        make_software(cls.hosts.directory)
        write(pathlib.Path(cls.hosts.directory) / "train.py", PROGRAM)  # jobs start in the user's home

    def run_job(self, script, *options):
        """Returns what the job says until it ends."""
        return self.end_of(self.pbs.submit(script, *options))

    def end_of(self, job):
        self.wait_for(lambda: not self.pbs.is_there(job), "the end of the job")
        return self.pbs.output(job)

    def wait_for(self, condition, what, seconds=JOB_SECONDS_MAX):
        try:
            wait_until(condition, seconds, what)
        except CopperError as error:
            self.fail(f"{self.pbs.logs()}\n{error}")

    def check_said(self, words, said):
        if words not in said:
            self.fail(f"{self.pbs.logs()}\nno {words!r} in the job's output:\n{said}")

    def script(self):
        """Of the documentation, in this place, for four small nodes."""
        text = script_of(PAGE).replace("512:ncpus=8:mpiprocs=8", "4:ncpus=2:mpiprocs=2")
        self.assertIn(MPIRUN, text)
        return in_place(text.replace(MPIRUN, MPIEXEC) if is_built_with_mpich() else text, self.hosts.directory)

    def without_ssh(self):
        """The lines of the documentation for it. There is no ssh until the test ends."""
        if is_built_with_mpich():
            self.skipTest("optional: for Open MPI")
        place = pathlib.Path(self.hosts.directory, "bin/ssh")
        write(place, NO_SSH, 0o755)
        self.addCleanup(place.unlink)
        return block_with(PAGE, "agent=")

    def check_use(self, said):
        self.assertEqual(8, said.count("trained\n"), said)
        self.check_said("4 of 4 serve", said)
        self.assertNotIn("hardly any program used the mirror", said)

    def test_script_of_the_documentation(self):
        self.check_use(self.run_job(self.script()))

    def test_without_ssh(self):
        self.check_use(self.run_job(self.script().replace("copper launch", f"{self.without_ssh()}copper launch", 1)))

    def ask(self, *variables):
        said = self.run_job(ASKING.format(tree=self.tree, mount=MOUNT), *ON_NODES, "-v",
                            ",".join(["COPPER_MIRROR=1", f"COPPER_TREE={self.tree}", *variables]))
        self.check_said("4 of 4 nodes serve", said)
        self.check_said("\nTrue\n", said)

    def test_mirror_by_asking(self):
        self.ask()

    def test_mirror_at_the_original_paths_by_asking(self):
        for by in ((), as_nobody()):
            with self.subTest(by=by):
                job = self.pbs.submit(UNCHANGED.format(tree=self.tree), *ON_NODES, "-v",
                                      f"COPPER_MIRROR=view,COPPER_TREE={self.tree}", by=by)
                self.check_said(f"mirrors at {self.tree}: 1\n", self.end_of(job))

    def test_mirror_by_asking_without_ssh(self):
        self.without_ssh()
        page = (REPOSITORY / "docs/site.md").read_text(encoding="utf-8")
        self.ask(next(line for line in page.splitlines() if line.startswith("COPPER_LAUNCHER_ARGS=")))

    def delete(self, script, *options, by=()):
        """Deletes a job that has launched its mirror. Returns what the job said."""
        # `exit`: the MoM sends SIGTERM to sleep first. The script must not start a program that the MoM has not seen.
        started = f"{self.pbs.directory}/started"
        job = self.pbs.submit(script.replace("\nmpi", f"\ntouch {started}; sleep 600; exit\nmpi"), by=by)
        self.wait_for(lambda: os.path.exists(started), "the launch")
        os.unlink(started)
        self.assertEqual(sorted(self.hosts.names), sorted(self.hosts.processes("copperd").values()))
        self.pbs.check("qdel", *options, job)
        return self.end_of(job)

    def test_deleted_job(self):
        """Not of root: the MoM overlooks root's processes (mom_get_sample() of OpenPBS). After SIGTERM, it takes such a job for over, and
        the hook cleans up while the script still runs."""
        self.check_said("removed the launch record", self.delete(self.script(), by=as_nobody()))

    def delete_by_force(self, script):
        """The job's end does not wait for the hook."""
        self.delete(script, "-W", "force")
        programs = ("copperd", "copperd-superv", "copper", "pbs_python")
        self.wait_for(lambda: not self.hosts.processes(*programs), "the hook")

    def test_job_deleted_by_force(self):
        self.delete_by_force(self.script())

    def test_job_deleted_by_force_without_ssh(self):
        self.delete_by_force(self.script().replace("copper launch", f"{self.without_ssh()}copper launch", 1))

    def disable_hook(self):
        self.pbs.check("qmgr", "-c", "set hook copper enabled = false")
        self.addCleanup(self.pbs.check, "qmgr", "-c", "set hook copper enabled = true")

    def end_by_lease(self, script):
        """What PBS did not end, ends itself."""
        self.disable_hook()
        self.delete(script, "-W", "force")
        self.assertNotEqual({}, self.hosts.processes("copperd"))
        self.wait_for(lambda: not self.hosts.processes("copperd", "copperd-superv", "copper"), "the end of the mirror", LEASE_SECONDS_MAX)

    def test_lease(self):
        self.end_by_lease(self.script())

    def test_lease_without_ssh(self):
        self.end_by_lease(self.script().replace("copper launch", f"{self.without_ssh()}copper launch", 1))

    def test_job_after_one_deleted_by_force_without_the_hook(self):
        """The daemons of the first one may still be there."""
        self.disable_hook()
        self.delete(self.script(), "-W", "force")
        self.check_use(self.run_job(self.script()))
