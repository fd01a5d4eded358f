"""Copper in jobs of a real OpenPBS over four hosts."""

import os
import pathlib
import unittest

from copper import wait_until
from openpbs import OpenPbs as Batch, why_no_openpbs
from pages import PROGRAM, in_place, make_software, write
from test_mpirun import MOUNT, ClusterTestCase

JOB_SECONDS_MAX = 120

# The job does nothing of its own for Copper.
ASKING = """#!/bin/bash
export PYTHONPATH={tree}:$PYTHONPATH PYTHONDONTWRITEBYTECODE=1
copper status --nodes
copper run -- python3 -c 'import numpy; print(numpy.__file__)'
"""


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
        write(pathlib.Path(cls.hosts.directory) / "train.py", PROGRAM)

    def run_job(self, script, *options):
        """Returns what the job says until it ends."""
        job = self.pbs.submit(script, "-l", "select=4", "-l", "place=scatter", *options)
        wait_until(lambda: not self.pbs.is_there(job), JOB_SECONDS_MAX, "the end of the job")
        return self.pbs.output(job)

    def test_mirror_by_asking(self):
        said = self.run_job(ASKING.format(tree=self.tree), "-v", f"COPPER_MIRROR=1,COPPER_TREE={self.tree}")
        self.assertIn("4 of 4 nodes serve", said)
        self.assertIn(f"{MOUNT}{self.tree}/numpy/__init__.py\n", said)
