"""`copper launch --allow-missing`: the job goes on although some of the hosts cannot have a mirror."""

import os
import re
import shlex

from copper import wait_until
from test_mpirun import ClusterTestCase
from test_slurm import JOB_SECONDS_MAX, SlurmTestCase

# A file system of the mirror is "fuseblk" (stat(1)).
KIND = ["stat", "-f", "-c", "%T"]

IN_SLURM = """set -eux
cd {directory}
copper launch --launcher srun --tree {tree} --allow-missing 1 --ready-timeout 40 2>launched
copper status >status || true
srun --nodes=4 --ntasks-per-node=1 copper run sh -c 'echo $(uname -n) $({kind})' >kinds 2>said
copper stop
touch stopped
"""


class WithoutMirrorTestCase(ClusterTestCase):
    def without_fuse(self, *hosts):
        """Something else is at the place of /dev/fuse there, until the test is over."""
        for host in hosts:
            self.hosts.check(host, "mount", "--bind", "/dev/null", "/dev/fuse")
            self.addCleanup(self.hosts.check, host, "umount", "/dev/fuse")

    def kind(self, host):
        """Of the filesystem that a program of `copper run` sees at the tree there, and what that says."""
        done = self.hosts.run(host, "copper", "run", *KIND, self.tree)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.strip(), done.stderr

    def check_job(self, missing, others, why, launched):
        """One node lacks a mirror, and all others have one."""
        self.assertEqual(0, launched.returncode, launched.stdout + launched.stderr)
        self.assertIn(f"copper: {len(others)} of {len(others) + 1} nodes ready\n", launched.stderr)
        self.assertRegex(launched.stderr, f"(?m)^copper: {missing} has no mirror: .*{why}")
        self.assertEqual(1, launched.stderr.count(" has no mirror: "), launched.stderr)
        self.assertIn(f"nodes  {len(others)} of {len(others) + 1}\n", launched.stdout)
        for host in others:
            self.assertEqual(("fuseblk", ""), self.kind(host), host)
        self.storm("numpy", others, processes=1)

    def check_status(self, missing, others, why):
        status = self.hosts.run(others[0], "copper", "status")
        self.assertEqual((1, f"copper: only {len(others)} of {len(others) + 1} nodes serve\n"),
                         (status.returncode, status.stderr), status.stdout)
        self.assertRegex(status.stdout, f"(?m)^  {missing} is (lost|missing): .*{why}")

    def check_run_without(self, host):
        kind, said = self.kind(host)
        self.assertNotEqual("fuseblk", kind)
        self.assertEqual("copper: this node has no mirror (--allow-missing): stat reads the filesystem itself\n", said)
        done = self.hosts.run(host, "copper", "env")
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn("the job goes on without a mirror on this node", done.stderr)
        self.assertNotIn("warning  others", self.hosts.run(host, "copper", "doctor", "--launcher", "none").stdout)


class AllowMissing(WithoutMirrorTestCase):
    def test_node_without_fuse(self):
        self.without_fuse("cn2")
        launched = self.launch(None, "--allow-missing", "1")
        self.check_job("cn2", ["cn0", "cn1", "cn3"], "/dev/fuse|mount", launched)
        self.check_status("cn2", ["cn0", "cn1", "cn3"], "/dev/fuse|mount")
        self.check_run_without("cn2")
        self.assertEqual(127, self.hosts.run("cn2", "copper", "run", "absent").returncode)
        self.assertIn("use 'copper status' on another one", self.hosts.run("cn2", "copper", "status").stderr)
        self.stop_well()

    def test_launching_node(self):
        self.without_fuse("cn0")
        others = ["cn1", "cn2", "cn3"]
        self.check_job("cn0", others, "/dev/fuse|mount", self.launch(None, "--allow-missing", "1"))
        self.check_status("cn0", others, "/dev/fuse|mount")
        self.check_run_without("cn0")
        done = self.hosts.run("cn0", "copper", "status")
        self.assertRegex(done.stderr, " serves cn1,cn2,cn3, not this node: use '.*cn1.* copper status'")
        self.stop_well()

    def test_stop_from_another_node(self):
        self.without_fuse("cn2")
        for host in ("cn3", "cn2"):
            self.check_job("cn2", ["cn0", "cn1", "cn3"], "/dev/fuse|mount",
                           self.launch(None, environment={"COPPER_ALLOW_MISSING": "1"}))
            self.stop_well(host)
            self.check_nothing_left()

    def test_more_than_may(self):
        self.without_fuse("cn1", "cn2")
        launched = self.launch(None, "--allow-missing", "1")
        self.assertEqual(1, launched.returncode, launched.stdout)
        for host in ("cn1", "cn2"):
            self.assertRegex(launched.stderr, f"(?m)^(copper:)? *{host}: .*(/dev/fuse|mount)")
        self.check_nothing_left()
        done = self.hosts.run("cn2", "copper", "run", *KIND, self.tree)
        self.assertEqual(1, done.returncode)
        self.assertIn("no Copper serves", done.stderr)

    def test_node_that_cannot_be_reached(self):
        others = ["cn0", "cn1", "cn3"]
        launched = self.launch(["cn0", "cn1", "absent", "cn3"], "--allow-missing", "1")
        self.check_job("absent", others, "", launched)
        self.check_status("absent", others, "")
        self.stop_well()

    def test_node_without_copperd(self):
        self.hosts.check("cn2", "mount", "-t", "tmpfs", "tmpfs", f"{self.hosts.directory}/bin")
        self.addCleanup(self.hosts.check, "cn2", "umount", f"{self.hosts.directory}/bin")
        launched = self.launch(None, "--allow-missing", "1")
        self.check_job("cn2", ["cn0", "cn1", "cn3"], "copperd cannot be started there", launched)
        self.stop_well()

    def test_daemon_that_ends_at_once(self):
        """Before MPI is there: no room in /tmp."""
        self.hosts.check("cn2", "mount", "-t", "tmpfs", "-o", "size=8M,mode=1777", "tmpfs", "/tmp")
        self.addCleanup(self.hosts.check, "cn2", "umount", "/tmp")
        launched = self.launch(None, "--allow-missing", "1", "--ready-timeout", "40")
        self.check_job("cn2", ["cn0", "cn1", "cn3"], "copperd ended there", launched)
        self.check_status("cn2", ["cn0", "cn1", "cn3"], "copperd ended there")
        self.check_run_without("cn2")
        self.stop_well("cn1")
        self.check_nothing_left()

    def test_two_nodes_for_different_reasons(self):
        self.without_fuse("cn1")
        launched = self.launch(["cn0", "cn1", "absent", "cn3"], "--allow-missing", "2")
        self.assertEqual(0, launched.returncode, launched.stdout + launched.stderr)
        self.assertEqual({"absent", "cn1"}, set(re.findall("(?m)^copper: ([^ ]+) has no mirror: ", launched.stderr)))
        self.assertIn("nodes  2 of 4\n", launched.stdout)
        self.stop_well()


class SlurmAllowMissing(WithoutMirrorTestCase, SlurmTestCase):
    def run_job(self, why):
        """With cn2 missing. Returns the filesystems that the programs of `copper run` saw, by host."""
        self.addCleanup(self.slurm.end_jobs)
        kind = shlex.join([*KIND, self.tree])
        job = self.slurm.submit(IN_SLURM.format(directory=self.slurm.directory, tree=self.tree, kind=kind), 4)
        wait_until(lambda: not self.slurm.is_there(job), JOB_SECONDS_MAX, "the end of the job")
        self.assertIn("stopped", os.listdir(self.slurm.directory), self.slurm.output(job) + self.read("launched"))
        os.unlink(f"{self.slurm.directory}/stopped")
        self.assertRegex(self.read("launched"), f"(?m)^copper: cn2 has no mirror: .*{why}")
        self.assertIn("3 of 4 nodes serve", self.read("status"))
        return dict(line.split() for line in self.read("kinds").splitlines())

    def read(self, name):
        with open(f"{self.slurm.directory}/{name}", encoding="utf-8") as file:
            return file.read()

    def check_kinds(self, kinds):
        self.assertEqual({"cn0", "cn1", "cn3"}, {host for host, kind in kinds.items() if kind == "fuseblk"}, kinds)
        self.assertEqual(set(self.hosts.names), set(kinds))
        self.assertEqual(1, self.read("said").count("this node has no mirror (--allow-missing)"), self.read("said"))

    def test_node_without_fuse(self):
        self.without_fuse("cn2")
        self.check_kinds(self.run_job("mount"))

    def test_daemon_that_ends_at_once(self):
        self.hosts.check("cn2", "mount", "--bind", "/bin/false", f"{self.hosts.directory}/bin/copperd")
        self.addCleanup(self.hosts.check, "cn2", "umount", f"{self.hosts.directory}/bin/copperd")
        self.check_kinds(self.run_job("copperd"))
