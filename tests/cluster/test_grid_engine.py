"""Copper in jobs of a real Grid Engine over four hosts, which reach each other by qrsh alone."""

import os
import pathlib
import unittest

from copper import wait_until
from grid_engine import GridEngine as Batch, why_no_grid_engine
from pages import PROGRAM, in_place, make_software, script_of, write
from test_mpirun import MPIRUN, ClusterTestCase

JOB_SECONDS_MAX = 120

# One host has no copperd.
LACKING = """other=$(awk '{{print $1}}' "$PE_HOSTFILE" | grep -vx "$(hostname)" | head -n 1)
echo "without: $other"
qrsh -inherit -nostdin "$other" mount -t tmpfs tmpfs {bin}
copper launch --tree {tree}
echo "code: $?"
qrsh -inherit -nostdin "$other" umount {bin}
"""


class GridEngine(ClusterTestCase):
    @classmethod
    def setUpClass(cls):
        reason = why_no_grid_engine()
        if reason:
            raise unittest.SkipTest(reason)
        super().setUpClass()
        cls.engine = Batch(cls.hosts)
        cls.engine.start()
        make_software(cls.engine.directory)
        write(pathlib.Path(cls.engine.directory) / "train.py", PROGRAM)

    def run_job(self, script, *options):
        """Returns what the job says until it ends."""
        job = self.engine.submit(script, 4, *options)
        wait_until(lambda: not self.engine.is_there(job), JOB_SECONDS_MAX, "the end of the job")
        return self.engine.output(job)

    def script(self):
        """Of the documentation, in this place. The options in it are for another Grid Engine."""
        text = script_of("docs/use/grid-engine.md").replace("#$ ", "# ").replace("mpirun copper", f"{MPIRUN} copper")
        return in_place(text, self.engine.directory)

    def test_script_of_the_documentation(self):
        said = self.run_job(f"set -e\n{self.script()}")
        self.assertEqual(8, said.count("trained\n"), said)
        self.assertIn("4 of 4 serve", said)
        self.assertNotIn("hardly any program used the mirror", said)

    def test_deleted_job(self):
        started = f"{self.engine.directory}/started"
        script = self.script().replace(f"{MPIRUN} copper", f"touch {started}; sleep 600; {MPIRUN} copper")
        job = self.engine.submit(script, 4, "-notify")
        wait_until(lambda: os.path.exists(started), JOB_SECONDS_MAX, "the launch")
        self.assertEqual(sorted(self.hosts.names), sorted(self.hosts.processes("copperd").values()))
        self.engine.check("qdel", job)
        wait_until(lambda: not self.engine.is_there(job), JOB_SECONDS_MAX, "the end of the job")
        self.assertIn("removed", self.engine.output(job))

    def test_node_without_copperd(self):
        said = self.run_job(LACKING.format(bin=f"{self.hosts.directory}/bin", tree=self.tree))
        other = said.split()[1]
        self.assertRegex(said, f"(?m)^copper: (copper: )?{other}: copperd cannot be started there: .*(No such file|not found)")
        self.assertIn("code: 1\n", said)
