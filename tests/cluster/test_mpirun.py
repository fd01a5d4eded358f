"""Copper over four hosts with the real mpirun, or mpiexec of MPICH: each with its own network, name and /tmp."""

import contextlib
import json
import os
import pathlib
import re
import signal
import time
import unittest

from copper import (LAUNCH_DAEMONS, LAUNCHERS, CopperError, as_nobody, command_lines, disturbances, is_built_with_mpich, key_of_job,
                    kill_all, nodes_of, undisturbed, wait_until)
from hosts import Hosts, why_no_hosts
from import_storm import Workload, package_tree
from pages import block_with, in_place

MOUNT = "/tmp/root/copper"
START_SECONDS_MAX = 11  # start_max of tools/copper/nodes/remote_shell.cpp
SETTLING_SECONDS = 5  # mpirun ends what it will end, and a command what it asked in a process of its own
FAILING_SECONDS_MAX = 60  # `copper launch` waits twice as long for daemons
# What a job leaves: the directories that others could otherwise make, empty and closed.
PLACES = """places=$(ls -d /tmp/root /tmp/nobody /tmp/copper-* 2>/dev/null)
[ -n "$places" ] || exit 0
find $places -maxdepth 0 ! '(' -type d '(' -user 0 -o -user nobody ')' '(' -perm 0700 -o -perm 0711 -name root ')' ')'
find $places -xdev -mindepth 1"""
MPIRUN, ON_HOSTS = ("mpiexec", "-hosts") if is_built_with_mpich() else ("mpirun", "--host")


class ClusterTestCase(unittest.TestCase):
    count = 4
    rate = None  # of what a port of a host sends
    ports = 1
    ssh = False
    over = None  # a function that fills a directory, which comes over the root of the hosts

    @classmethod
    def setUpClass(cls):
        reason = why_no_hosts(cls.ssh)
        if reason:
            raise unittest.SkipTest(reason)
        cls.tree = package_tree("numpy")
        cls.hosts = Hosts(cls.count, cls.rate, cls.ssh, cls.over, cls.ports).__enter__()
        cls.addClassCleanup(cls.hosts.close)

    def setUp(self):
        self.addCleanup(self.check_nothing_left)

    def check_nothing_left(self):
        with contextlib.suppress(CopperError):
            wait_until(lambda: not self.hosts.processes("copper"), SETTLING_SECONDS, "the end of all commands")
        left = []
        for program in ("copperd", "copperd-superv", "copperd-task", "copper", *LAUNCH_DAEMONS, *LAUNCHERS):
            left += [f"{host}: {program} runs" for host in self.hosts.processes(program).values()]
        for host in self.hosts.names:
            for place in self.hosts.check(host, "sh", "-c", "grep fuse.copper /proc/self/mountinfo; " + PLACES).splitlines():
                left.append(f"{host}: {place}")
        if left:
            self.hosts.run("cn0", "copper", "stop")
            for host in self.hosts.names:
                self.hosts.run(host, "copper", "stop", "--local")
            kill_all(self.hosts.processes("copperd", "copperd-superv"))
        self.assertEqual([], left)

    def launch(self, names=None, *options, environment=None, host="cn0"):
        self.hosts.write("nodes", "".join(f"{name}\n" for name in names or self.hosts.names))
        return self.launch_on(f"{self.hosts.directory}/nodes", *options, environment=environment, host=host)

    def launch_on(self, nodes, *options, environment=None, host="cn0"):
        return self.hosts.run(host, "copper", "launch", "--nodes-from", nodes, "--launcher", MPIRUN, "--tree", self.tree,
                              *options, **(environment or {}))

    def launch_well(self, *options):
        done = self.launch(None, *options)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def stop_well(self, host="cn0"):
        done = self.hosts.run(host, "copper", "stop")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout

    def stats(self, host="cn0"):
        return json.loads(self.hosts.check(host, "copper", "stats", "--json"))

    def reader(self):
        nodes = nodes_of(self.hosts.check("cn0", "copper", "status", "--nodes"))
        return next(node["HOST"] for node in nodes if node["READER"] == "yes")

    def storm(self, package, hosts, processes=2):
        load = Workload(packages=[package], trees=[self.tree])
        self.end_imports(self.hosts.start_imports(load, MOUNT, hosts, processes))

    def end_imports(self, running):
        for process in running:
            output, errors = process.communicate(timeout=120)
            self.assertEqual(0, process.returncode, output + errors)


class NodesThatFail:
    def fail_to_launch(self, names=None):
        """Returns what it says, in seconds."""
        begin = time.monotonic()
        done = self.launch(names)
        self.assertLess(time.monotonic() - begin, FAILING_SECONDS_MAX, done.stderr)
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertNotIn("no report of all nodes in time", done.stderr)
        return done.stderr

    def test_node_that_cannot_be_reached(self):
        said = self.fail_to_launch(["cn0", "cn1", "absent", "cn3"])
        self.assertIn("absent", said)
        self.assertNotIn("cn3:", said)

    def test_node_without_copperd(self):
        """The others wait for it in MPI_Init."""
        self.hosts.check("cn2", "mount", "-t", "tmpfs", "tmpfs", f"{self.hosts.directory}/bin")
        try:
            said = self.fail_to_launch()
            self.assertRegex(said, "^copper: (copper: )?cn2: copperd cannot be started there: .*not found")
            self.assertNotIn("cn3: copperd", said)
        finally:
            self.hosts.check("cn2", "umount", f"{self.hosts.directory}/bin")


class MpiRun(NodesThatFail, ClusterTestCase):
    def import_and_count(self, package, names):
        totals = undisturbed(lambda: self.import_totals(package, names))
        self.assertEqual(0, sum(totals["fallbacks"].values()), totals["fallbacks"])
        return totals["backing"]["listings"], totals["backing"]["file_opens"]

    def import_totals(self, package, names):
        done = self.launch(names)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.storm(package, names)
        stats = self.stats()
        self.assertEqual((len(names), len(names)), (stats["nodes"], stats["alive"]))
        self.assertEqual(names, [node["host"] for node in stats["per_node"]])
        self.stop_well()
        self.check_nothing_left()
        return stats["totals"]

    def test_the_next_job_has_on_all_hosts_what_the_last_one_used(self):
        jobs, recorded = [], 0
        # Two in a row that nothing disturbed: who guesses asks for attributes in another way than who does not.
        while len(jobs) < 2 or sum(map(disturbances, jobs[-2:])) > 0:
            self.assertLess(len(jobs), 8, jobs)
            self.launch_well("--profile", "auto")
            if recorded:
                wait_until(lambda: self.stats()["totals"]["profile"]["fetched"] >= recorded, 60, "the replay")
            self.storm("numpy", self.hosts.names)
            jobs.append(self.stats()["totals"])
            self.stop_well(("cn2", "cn0")[len(jobs) % 2])  # rank 0 records, whoever is asked to stop
            shown = self.hosts.check("cn0", "copper", "profile", "list").splitlines()[1].split()
            self.assertEqual(str(len(jobs)), shown[1])
            replayed, recorded = recorded, int(shown[2])
        self.assertEqual(0, jobs[-1]["profile"]["unforeseen"])
        self.assertGreater(jobs[-1]["profile"]["foretold"], replayed / 2)

    def test_each_file_is_read_once_by_all(self):
        alone = self.import_and_count("scipy.stats", self.hosts.names[:1])
        self.assertGreater(min(alone), 0)
        self.assertEqual(alone, self.import_and_count("scipy.stats", self.hosts.names[:2]))
        self.assertEqual(alone, self.import_and_count("scipy.stats", self.hosts.names))

    def test_stop_from_another_node(self):
        self.launch_well()
        self.stop_well("cn2")

    def test_outside_the_jobs_nodes(self):
        """As on a login node, from which the job was launched."""
        done = self.launch(["cn1", "cn2"], "--log-level", "info")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        for words, says in ((["env"], f"{MPIRUN} {ON_HOSTS} cn1,cn2 copper run -- ..."),
                            (["run", "--", "true"], f"{MPIRUN} {ON_HOSTS} cn1,cn2 copper run -- ..."),
                            (["path", "/usr"], f"{MPIRUN} {ON_HOSTS} cn1,cn2 copper run -- ..."),
                            (["stats", "--json"], f"{MPIRUN} {ON_HOSTS} cn1 -n 1 copper stats"),
                            (["stats"], f"{MPIRUN} {ON_HOSTS} cn1 -n 1 copper stats"),
                            (["status"], f"{MPIRUN} {ON_HOSTS} cn1 -n 1 copper status"),
                            (["report", "-o", "-"], f"{MPIRUN} {ON_HOSTS} cn1 -n 1 copper report"),
                            (["top", "--once"], f"{MPIRUN} {ON_HOSTS} cn1 -n 1 copper top --once"),
                            (["check", "--", "true"], f"{MPIRUN} {ON_HOSTS} cn1 -n 1 copper check -- ..."),
                            (["prefetch", self.tree], f"{MPIRUN} {ON_HOSTS} cn1 -n 1 copper prefetch ...")):
            done = self.hosts.run("cn0", "copper", *words)
            self.assertEqual(1, done.returncode)
            self.assertEqual(f"copper: {MOUNT} serves cn1,cn2, not this node: use '{says}'\n", done.stderr)
        self.assertEqual(2, len(self.served()), "what the daemons say is in the launcher's output, here")
        following = self.hosts.start("cn0", "copper", "logs", "--follow")
        said = self.hosts.run("cn0", "copper", "doctor", "--launcher", "none", "--tree", self.tree).stdout
        self.assertIn("others: no other mirror", said)
        said = self.hosts.run("cn0", "copper", "doctor", "--launcher", "none", "--tree", self.tree, "--mount", "/tmp/other").stdout
        self.assertRegex(said, f"others: {MOUNT} was launched from here .process [0-9]+.\n")
        self.assertIn("start one", self.hosts.run("cn3", "copper", "status").stderr)
        self.assertIsNone(following.poll())
        kill_all(self.hosts.processes(*LAUNCHERS))
        wait_until(lambda: "its launcher has ended" in self.hosts.run("cn0", "copper", "status").stderr, 20, "its end")
        said, wrong = following.communicate(timeout=20)
        self.assertEqual((0, 2), (following.returncode, said.count(" serves ")), said + wrong)
        self.assertEqual(2, len(self.served()))
        self.stop_well()
        wait_until(lambda: not self.hosts.processes(*LAUNCH_DAEMONS), 20, "the end of its daemons")

    def test_outside_the_batch_job(self):
        done = self.launch(["cn1", "cn2"], environment={"PBS_JOBID": "17"})
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        for job, says in (("17", f"'{MPIRUN} copper run -- ...'"), ("", f"'{MPIRUN} {ON_HOSTS} cn1,cn2 copper run -- ...'"),
                          ("18", f"'{MPIRUN} copper run -- ...' in a shell of job 17")):
            done = self.hosts.run("cn0", "copper", "run", "--", "true", PBS_JOBID=job)
            self.assertEqual(f"copper: {MOUNT} serves cn1,cn2, not this node: use {says}\n", done.stderr)
        self.stop_well()

    def test_logs_outside_the_jobs_nodes(self):
        """They are on the disks of the job's nodes."""
        self.check_logs_on_disks(["cn1", "cn2"])

    def test_hosts_in_a_file(self):
        """As in docs/tutorial.md."""
        os.makedirs(f"{self.hosts.directory}/lustre/sw/conda")
        self.hosts.write("hosts.txt", "\n".join(self.hosts.names))
        commands = in_place(block_with("docs/tutorial.md", "hosts.txt"), self.hosts.directory)
        self.hosts.check("cn0", "bash", "-ec", f"cd {self.hosts.directory}\n{commands}")
        self.assertEqual(4, self.stats()["alive"])
        self.stop_well()

    def test_variables_that_the_user_keeps_reach_all_hosts(self):
        # Clang's address sanitizer is linked statically. GCC's is a library and must be loaded first.
        kept = {"LD_LIBRARY_PATH": "/sw/conda/lib:/elsewhere", "LD_PRELOAD": "libm.so.6", "UCX_TLS": "tcp,self",
                "UCX_NET_DEVICES": "eth0", "OMPI_MCA_of_the_user": "1"}
        others = {"CONDA_PREFIX": "/sw/conda", "MPICH_GPU_SUPPORT_ENABLED": "1", "OMPI_MCA_other": "1", "PRTE_MCA_other": "1"}
        done = self.launch(None, *(word for name in (*kept, "ABSENT") for word in ("--keep-env", name)), environment=kept | others)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        hosts = set()
        for pid, host in self.hosts.processes("copperd").items():
            with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
                environment = dict(entry.split("=", 1) for entry in file.read().split("\0") if "=" in entry)
            hosts.add(host)
            with self.subTest(host):
                self.assertEqual(kept, {name: environment.get(name) for name in kept})
                self.assertEqual(set(), others.keys() & environment.keys() - {"CONDA_PREFIX"})
        self.assertEqual(set(self.hosts.names), hosts)
        self.stop_well()

    def test_key_shows_in_no_command(self):
        """Neither in running processes, nor in commands that mpirun ran on the other hosts."""
        said = f"{self.hosts.directory}/said"
        self.hosts.write("listening-agent", f'#!/bin/sh\necho "$@" >>{said}\nexec {self.hosts.directory}/agent "$@"\n')
        os.chmod(f"{self.hosts.directory}/listening-agent", 0o755)
        arguments = self.hosts.environment()["COPPER_LAUNCHER_ARGS"].replace("/agent", "/listening-agent")
        done = self.launch(None, environment={"COPPER_LAUNCHER_ARGS": arguments})
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        key = key_of_job(self.hosts.processes(*LAUNCHERS))
        self.assertRegex(key.decode(), "^[0-9a-f]{64}$")
        for line in command_lines():
            self.assertNotIn(key, line)
        with open(said, encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(text, "|".join(LAUNCH_DAEMONS))
        self.assertNotIn(key.decode(), text)
        self.assertEqual(0, self.stats()["totals"]["fabric"]["frames_refused"])
        self.stop_well()

    def test_doctor(self):
        self.hosts.write("nodes", "".join(f"{name}\n" for name in self.hosts.names))
        words = ["copper", "doctor", "--nodes-from", f"{self.hosts.directory}/nodes", "--tree", self.tree]
        said = self.hosts.check("cn0", *words)
        self.assertIn("fuse: /dev/fuse can be opened (all 4 nodes)\n", said)
        self.assertIn(f"tree: {self.tree} can be read (all 4 nodes)\n", said)
        self.hosts.check("cn3", "mount", "-t", "tmpfs", "tmpfs", f"{self.hosts.directory}/bin")
        try:
            done = self.hosts.run("cn0", *words)
            self.assertEqual(1, done.returncode)
            self.assertIn(f"PROBLEM  launcher: copper cannot be started there by {MPIRUN} (cn3)\n", done.stdout)
        finally:
            self.hosts.check("cn3", "umount", f"{self.hosts.directory}/bin")

    def doctor(self, tree):
        """What it says of a problem on one of the nodes."""
        self.hosts.write("nodes", "".join(f"{name}\n" for name in self.hosts.names))
        done = self.hosts.run("cn0", "copper", "doctor", "--nodes-from", f"{self.hosts.directory}/nodes", "--tree", tree)
        self.assertEqual((1, "copper: 1 problem (see above)\n"), (done.returncode, done.stderr), done.stdout)
        return done.stdout

    def test_doctor_finds_a_tree_that_one_node_lacks(self):
        tree = f"{self.hosts.directory}/tree"
        os.mkdir(tree)
        os.mkdir(f"{tree}/sw")
        self.addCleanup(os.rmdir, tree)
        self.addCleanup(os.rmdir, f"{tree}/sw")
        self.hosts.check("cn2", "mount", "-t", "tmpfs", "tmpfs", tree)
        self.addCleanup(self.hosts.check, "cn2", "umount", tree)
        said = self.doctor(f"{tree}/sw")
        self.assertIn(f"PROBLEM  launch: --tree: {tree}/sw: No such file or directory (cn2)\n", said)
        self.assertIn(f"ok       tree: {tree}/sw can be read (cn0,", said)

    def test_doctor_finds_a_full_tmp(self):
        self.hosts.check("cn3", "sh", "-ec", "mount -t tmpfs -o mode=1777,size=64k tmpfs /tmp; "
                                             "head -c 64k /dev/zero >/tmp/full")
        try:
            said = self.doctor(self.tree)
        finally:
            self.hosts.check("cn3", "umount", "/tmp")
        self.assertRegex(said, r"PROBLEM  tmp: /tmp: no space left \(0 bytes; .*\(cn3\)\n")
        self.assertRegex(said, r"ok       tmp: there is room in /tmp \((cn[012],?){3}\)\n")

    def served(self, *words):
        """The lines of `copper logs` that say that a node serves."""
        return [line for line in self.hosts.check("cn0", "copper", "logs", *words).splitlines() if " serves " in line]

    def check_logs_on_disks(self, hosts):
        done = self.launch(hosts, "--log-dir", "/tmp/logs", "--log-level", "info")
        try:
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            self.assertEqual(hosts, sorted(line.split(":")[0] for line in self.served()))
            self.assertEqual(hosts[-1:], [line.split(":")[0] for line in self.served("--node", hosts[-1])])
        finally:
            self.stop_well()
            for host in {"cn0", *hosts}:  # the launch's own log is on cn0
                self.hosts.check(host, "rm", "-r", "/tmp/logs")

    def test_logs_on_disks_of_the_nodes(self):
        self.check_logs_on_disks(self.hosts.names)

    def test_logs_without_a_directory(self):
        """What the daemons say is in the launcher's output."""
        self.launch_well("--log-level", "info")
        self.assertEqual(4, len(self.served()))
        for host, words in (("cn1", ()), ("cn0", ("--node", "cn1"))):
            done = self.hosts.run(host, "copper", "logs", *words)
            self.assertEqual(1, done.returncode)
            self.assertIn("launched without --log-dir", done.stderr)
        self.stop_well()

    def test_log_directory_is_full(self):
        full = f"{self.hosts.directory}/full"
        os.mkdir(full)
        for host in self.hosts.names:
            self.hosts.check(host, "sh", "-ec", f"mount -t tmpfs -o size=4k tmpfs {full}; head -c 4096 /dev/zero >{full}/x")
        try:
            self.launch_well("--log-dir", full)
            self.storm("numpy", ["cn3"])
            done = self.hosts.run("cn0", "copper", "stop")
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            self.assertIn("No space left", done.stderr)
        finally:
            for host in self.hosts.names:
                self.hosts.check(host, "umount", full)

    def test_node_that_cannot_mount(self):
        self.hosts.check("cn2", "sh", "-c", f"mkdir -p {MOUNT}/precious")
        try:
            self.assertRegex(self.fail_to_launch(), "cn2.*not empty")
        finally:
            self.hosts.check("cn2", "rmdir", f"{MOUNT}/precious", MOUNT, "/tmp/root")

    def test_stop_after_a_daemon_was_killed(self):
        for victim in ("cn0", "cn3"):
            with self.subTest(victim):
                self.launch_well("--deadline", "2")
                self.kill_daemon(victim)
                self.stop_well()
                self.check_nothing_left()

    def kill_daemon(self, victim):
        pid = self.hosts.processes_on(victim, "copperd")[0]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid not in self.hosts.processes("copperd"), 20, "its end")

    def test_others_go_on_without_a_daemon(self):
        self.launch_well("--deadline", "2")
        self.kill_daemon("cn1")
        wait_until(lambda: "\n  cn1 is lost: " in self.hosts.run("cn0", "copper", "status").stdout, 20, "its loss")
        self.storm("numpy", ["cn0", "cn2", "cn3"])
        self.stop_well()

    def test_epilogue_on_each_host(self):
        """What a batch system runs on every node at a job's end, without the other nodes."""
        self.launch_well()
        self.kill_daemon("cn2")
        for host in self.hosts.names:
            self.hosts.check(host, "copper", "stop", "--local")
        try:
            wait_until(lambda: not self.hosts.processes(*LAUNCHERS), 20, "the end of the launcher")
        except CopperError:
            self.fail("the launcher is still there")


class Ssh(NodesThatFail, ClusterTestCase):
    """Hosts that no batch system knows."""

    ssh = True

    def test_hosts_by_their_names(self):
        done = self.launch_on("cn[0-2],cn3")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual(4, self.stats()["alive"])
        self.storm("numpy", self.hosts.names, processes=1)
        self.stop_well()

    def test_clean_up_where_all_processes_were_killed(self):
        self.launch_well()
        kill_all(self.hosts.processes_on("cn2", "copperd", "copperd-superv"))
        self.assertNotEqual(0, self.hosts.run("cn2", "ls", MOUNT).returncode)
        self.stop_well()

    def test_a_session_ends(self):
        """mpirun of Open MPI 4 takes it for a node that did not start, and would end all daemons."""
        self.launch_well()
        time.sleep(START_SECONDS_MAX)
        for pid in self.hosts.processes_on("cn0", "ssh"):
            if b"cn2" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
        time.sleep(SETTLING_SECONDS)
        self.storm("numpy", self.hosts.names, processes=1)
        nodes = nodes_of(self.hosts.check("cn0", "copper", "status", "--nodes"))
        self.assertLessEqual({node["HOST"] for node in nodes if node["STATE"] != "serving"}, {"cn2"})
        self.stop_well()


class Strangers(ClusterTestCase):
    """On one of two hosts, another user has made what Copper would make."""

    count = 2
    everything = ("/tmp/root", "/tmp/copper-0", "/tmp/copper-0.*")

    def setUp(self):
        super().setUp()
        self.addCleanup(self.remove_places)

    def remove_places(self):
        for host in self.hosts.names:
            self.hosts.check(host, "sh", "-c", f"copper stop --local >/dev/null; rm -rf --one-file-system {' '.join(self.everything)}")

    def as_stranger(self, host, script):
        return self.hosts.run(host, *as_nobody("sh", "-c", script))

    def python(self, host, environment):
        """What a Python on this host says that inherits what `copper env` printed."""
        code = "import numpy, os; print(numpy.__file__, os.environ['MPLCONFIGDIR'], os.environ['PYTHONPATH'])"
        done = self.hosts.run(host, "sh", "-c", f'{environment}\nexec /usr/bin/python3 -c "{code}"')
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def check_environment(self, *bad):
        """The environment of each host leads programs on both into the mirror, and to no place of the stranger."""
        for host in self.hosts.names:
            environment = self.hosts.check(host, "copper", "env")
            for other in self.hosts.names:
                said = self.python(other, environment)
                self.assertNotIn("STRANGER", said)
                self.assertIn(f"copper{self.tree}" if MOUNT not in bad else f"mount{self.tree}", said)
            for place in bad:
                self.assertNotIn(place + "/", environment)
        return environment

    def check_nobody_can_make_what_it_names(self, environment):
        for host in self.hosts.names:
            for place in set(re.findall(r"/tmp/[^/:;'\n]+/[^:;'\n]*", environment)):
                self.assertNotEqual(0, self.as_stranger(host, f"mkdir -p '{place}'").returncode, f"{host}: {place}")

    def instance_name(self):
        """The same for each mirror at this mount."""
        self.launch_well()
        name = os.path.basename(os.path.dirname(self.hosts.check("cn0", "sh", "-c", "ls -d /tmp/copper-0/*/python").strip()))
        self.stop_well()
        self.remove_places()
        return name

    def test_private_directory(self):
        place = f"/tmp/copper-0/{self.instance_name()}/python"
        self.as_stranger("cn1", f"mkdir -p {place} /tmp/copper-0/scratch/matplotlib; echo 'print(\"STRANGER\")' "
                                f">{place}/sitecustomize.py")
        done = self.launch()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        environment = self.check_environment("/tmp/copper-0")
        self.assertRegex(done.stderr, "warning: cn1: /tmp/copper-0: belongs to user 65534.*; trying again with another place")
        self.stop_well()
        self.check_nobody_can_make_what_it_names(environment)

    def test_directory_of_the_mount(self):
        for host, made in (("cn1", "mkdir /tmp/root"), ("cn0", "mkdir /tmp/root"), ("cn1", "ln -s /run/ours /tmp/root"),
                           ("cn1", "mkdir /tmp/root /tmp/copper-0")):
            with self.subTest(host=host, made=made):
                self.hosts.check(host, "mkdir", "-p", "/run/ours")
                self.as_stranger(host, made)
                done = self.launch()
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
                self.assertRegex(done.stderr, "warning: .*/tmp/(root|copper-0): belongs to user 65534")
                self.assertRegex(done.stdout, r"mount  /tmp/copper-0(\.\w+)?/mount\n")
                environment = self.check_environment(MOUNT)
                for host in self.hosts.names:
                    self.assertIn("2 of 2 nodes serve", self.hosts.check(host, "copper", "status"))
                    self.assertIn(f"/mount{self.tree}", self.hosts.check(host, "copper", "path", f"{self.tree}/numpy"))
                self.stop_well("cn1")
                self.check_nobody_can_make_what_it_names(environment)
                self.assertEqual("", self.hosts.check("cn1", "find", "/run/ours", "-mindepth", "1"))
                self.remove_places()

    def test_given_mount(self):
        """It is not changed: the launch says what is wrong."""
        for host in self.hosts.names:
            self.hosts.check(host, "mkdir", "-p", "-m", "700", "/tmp/root/given")
        self.hosts.check("cn1", "chown", "65534", "/tmp/root")
        done = self.launch(None, "--mount", "/tmp/root/given")
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "copper: cn1: /tmp/root: belongs to user 65534, who could replace it; or choose another")
        self.assertNotIn("trying again", done.stderr)
        self.remove_places()

    def test_doctor_sees_them(self):
        self.as_stranger("cn1", "mkdir /tmp/root /tmp/copper-0")
        self.hosts.write("nodes", "cn0\ncn1\n")
        done = self.hosts.run("cn0", "copper", "doctor", "--nodes-from", f"{self.hosts.directory}/nodes", "--launcher", MPIRUN,
                              "--tree", self.tree)
        for check, place in (("tmp", "/tmp/copper-0"), ("mount", "/tmp/root")):
            self.assertRegex(done.stdout, rf"warning  {check}: {place}: belongs to user 65534.*\(cn1\)")

    def test_everything_stays_where_others_could_make_it(self):
        self.launch_well()
        environment = self.check_environment()
        self.stop_well()
        self.check_nobody_can_make_what_it_names(environment)


class SharedNode(ClusterTestCase):
    """Two jobs of one user on one node. Nothing that the second does reaches the first."""

    def test_the_second_job_fails_to_launch_and_stops(self):
        done = self.launch(["cn0", "cn1"], environment={"PBS_JOBID": "1.server"})
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        second = {"PBS_JOBID": "2.server"}
        done = self.launch(["cn2", "cn1"], environment=second, host="cn2")
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stderr, "cn1.* already served, by process [0-9]+, for job 1.server; give this job another place")
        for words, code, says in ((["stop"], 1, "is the mirror of job 1.server: end it there"),
                                  (["stop", "--local"], 0, "nothing of Copper was left"),
                                  (["launch", "--launcher", "none", "--tree", self.tree], 1, "already served, .*for job 1.server")):
            done = self.hosts.run("cn1", "copper", *words, **second)
            self.assertEqual(code, done.returncode, done.stdout + done.stderr)
            self.assertRegex(done.stdout + done.stderr, says)
        stats = self.stats()
        self.assertEqual((2, 2), (stats["nodes"], stats["alive"]))
        self.storm("numpy", ["cn0", "cn1"])
        self.assertEqual(0, sum(self.stats()["totals"]["fallbacks"].values()))
        done = self.hosts.run("cn1", "copper", "stop", PBS_JOBID="1.server")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.check_nothing_left()

    def test_the_first_job_is_over(self):
        """It was deleted by force: its launcher is gone, and its daemons still serve, one of them outside of the second job. That
        starts where the first was not."""
        data = f"{self.hosts.directory}/data"
        os.mkdir(data)
        file = f"{data}/value"
        self.hosts.write("data/value", "1\n")
        done = self.launch(["cn0", "cn1"], "--tree", data, environment={"PBS_JOBID": "1.server"})
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        kill_all(self.hosts.processes(*LAUNCHERS))
        for host in ("cn0", "cn1"):
            self.assertEqual("1\n", self.hosts.check(host, "cat", MOUNT + file))
        self.hosts.write("data/value", "2\n")
        # Stands in for PBS, which has forgotten the job.
        qstat = pathlib.Path(self.hosts.directory, "pbs/bin/qstat")
        qstat.parent.mkdir(parents=True)
        qstat.write_text("#!/bin/sh\necho qstat: Unknown Job Id $2 >&2\nexit 153\n", encoding="utf-8")
        qstat.chmod(0o755)
        self.hosts.write("pbs.conf", f"PBS_EXEC={self.hosts.directory}/pbs\n")
        second = {"PBS_JOBID": "2.server", "PBS_CONF_FILE": f"{self.hosts.directory}/pbs.conf"}
        done = self.hosts.run("cn1", "copper", "run", "--", "cat", file, **second)
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        done = self.launch(["cn2", "cn1"], "--tree", data, environment=second, host="cn2")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("job 1.server is over: ending its mirror", done.stderr)
        for host in ("cn2", "cn1"):
            self.assertEqual("2\n", self.hosts.check(host, "copper", "run", "--", "cat", MOUNT + file, **second))
        said = self.hosts.check("cn0", "copper", "stop", "--local", **second)
        # With Open MPI, its daemons had lost each other with their launcher. With MPICH, that on cn0 was told to end.
        self.assertIn("nothing of Copper was left" if is_built_with_mpich() else "job 1.server is over", said)
        self.assertEqual([], list(self.hosts.processes_on("cn0", "copperd", "copperd-superv")))
        self.hosts.check("cn1", "copper", "stop", **second)
        self.check_nothing_left()

    def test_both_jobs_serve(self):
        """As docs/launchers.md says: the second one at a place of its own."""
        jobs = {"1.server": {"PBS_JOBID": "1.server"}, "2.server": {"PBS_JOBID": "2.server", "COPPER_MOUNT": "/tmp/mirror-2"}}
        mounts = {"1.server": MOUNT, "2.server": "/tmp/mirror-2"}
        hosts = {"1.server": ["cn0", "cn1"], "2.server": ["cn2", "cn1"]}
        for host in hosts["2.server"]:
            self.hosts.check(host, "mkdir", mounts["2.server"])
        try:
            for job, environment in jobs.items():
                done = self.launch(hosts[job], environment=environment, host=hosts[job][0])
                self.assertEqual(0, done.returncode, done.stdout + done.stderr)
            file = f"{self.tree}/numpy/version.py"
            for ended in ([], ["2.server"]):
                for job in ended:
                    self.hosts.check("cn1", "copper", "stop", **jobs[job])
                for job in jobs.keys() - ended:
                    self.hosts.check("cn1", "cmp", mounts[job] + file, file)
                    stats = json.loads(self.hosts.check("cn1", "copper", "stats", "--json", **jobs[job]))
                    self.assertEqual((job, 2, 2), (stats["job"], stats["nodes"], stats["alive"]))
                    self.assertEqual(0, sum(stats["totals"]["fallbacks"].values()), stats["totals"]["fallbacks"])
            self.hosts.check("cn0", "copper", "stop", **jobs["1.server"])
        finally:
            for host in hosts["2.server"]:
                self.hosts.run(host, "copper", "stop", "--local")
                self.hosts.run(host, "rmdir", mounts["2.server"])
        self.check_nothing_left()


@unittest.skipIf(is_built_with_mpich(), "optional: MPICH over UCX and TCP uses one port")
class TwoPorts(ClusterTestCase):
    """docs/launchers.md, "Several network ports"."""

    count = 2
    ports = 2
    BYTES = 96 << 20
    BOTH = {"OMPI_MCA_btl_tcp_if_include": "eth0,eth1"}

    def sent(self, host):
        """The bytes that each port has sent so far."""
        lines = self.hosts.check(host, "cat", "/proc/net/dev").splitlines()  # proc_pid_net(5)
        return [int(line.split()[9]) for line in lines if line.strip().startswith("eth")]

    def test_large_files_take_both(self):
        self.tree = f"{self.hosts.directory}/tree"
        os.mkdir(self.tree)
        with open(f"{self.tree}/file", "wb") as file:
            file.write(os.urandom(self.BYTES))
        launched = self.launch(None, "--readers", "1", environment=self.BOTH)
        self.assertEqual(0, launched.returncode, launched.stdout + launched.stderr)
        reader = self.reader()
        other = next(host for host in self.hosts.names if host != reader)
        before = self.sent(reader)
        self.hosts.check(other, "sha256sum", f"{MOUNT}{self.tree}/file")
        shares = [after - sent for sent, after in zip(before, self.sent(reader))]
        print("sent by each port:", shares, flush=True)
        self.assertGreater(sum(shares), self.BYTES)
        self.assertGreater(min(shares), self.BYTES / 4)
        self.stop_well()


class SlowLink(ClusterTestCase):
    """Compression is far faster than the hosts' links."""

    count = 2
    rate = "200mbit"
    BYTES = 96 << 20

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tree = f"{cls.hosts.directory}/tree"
        os.mkdir(cls.tree)

    def fabric_after_reading(self, name):
        """The counters after the host that is not the reader has read a file, correctly."""
        host = next(host for host in self.hosts.names if host != self.reader())
        mirrored, original = (self.hosts.check(host, "sha256sum", f"{place}{self.tree}/{name}").split()[0]
                              for place in (MOUNT, ""))
        self.assertEqual(original, mirrored)
        totals = self.stats()["totals"]
        self.assertEqual(0, sum(totals["fallbacks"].values()), totals["fallbacks"])
        return totals["fabric"]

    def test_what_shrinks_is_coded(self):
        random = os.urandom(self.BYTES)
        lines = b"".join(random[at:at + 20] + b" of a line that shrinks\n" for at in range(0, self.BYTES // 2, 20))
        for name, content in (("lines", lines), ("random", random[:self.BYTES // 4])):
            with open(f"{self.tree}/{name}", "wb") as file:
                file.write(content)
        self.launch_well("--readers", "1", "--compress", "auto")
        coded = self.fabric_after_reading("lines")
        # Almost half of the bytes, except those sent before the speed of the link is known.
        self.assertGreater(coded["bytes_saved_by_compression"], len(lines) / 5)
        self.assertLess(coded["bytes_sent"], len(lines) * 4 / 5)
        both = self.fabric_after_reading("random")
        self.assertEqual(coded["bytes_saved_by_compression"], both["bytes_saved_by_compression"])
        self.assertGreater(both["bytes_sent"] - coded["bytes_sent"], self.BYTES / 4)
        self.stop_well()
