"""Losing a daemon costs only time: programs see a pause, never an error."""

import json
import mmap
import os
import pathlib
import signal
import subprocess
import threading
import time

from copper import LAUNCHERS, a_document, build_directory, mounts_below, nodes_of, processes_of, state_of, wait_until
from import_storm import Workload, package_tree, storm
from mounted import MountTestCase
from witnesses import Witnesses, witness

TREE = "/usr/share/doc"
# Its main thread then waits for what never comes.
HANGS_AT_A_SIGNAL = """
#include <signal.h>
#include <unistd.h>
static void hang(int number) { for (;;) pause(); }
__attribute__((constructor)) static void begin(void) { signal(SIGRTMAX - 1, hang); }
"""


class Survival(MountTestCase):
    def launch(self, nodes=2, trees=(TREE,), **options):
        return super().launch(nodes=nodes, trees=list(trees), options=["--deadline", "2"], **options)

    def lose(self, job, rank, number=signal.SIGKILL):
        """Kills the node's daemon and waits for its successor."""
        daemon = job.daemons()[rank]
        os.kill(daemon, number)
        wait_until(lambda: daemon not in processes_of(job.directory), 20, "its end")
        wait_until(lambda: len(job.daemons()) == job.nodes and job.daemons()[rank] not in (daemon, 0), 20,
                   "the start of its successor")

    def launch_what_can_hang(self, **options):
        library = f"{self.make_directory()}/hang.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-xc", "-", "-o", library], input=HANGS_AT_A_SIGNAL, text=True, check=True)
        return self.launch(environment={"LD_PRELOAD": library, "COPPER_KEEP_ENV": "LD_PRELOAD"}, **options)

    @staticmethod
    def wait_until_quiet(job):
        """Until nothing is read ahead any more."""
        def is_quiet():
            before = job.totals()["backing"]
            time.sleep(0.3)
            return job.totals()["backing"] == before
        wait_until(is_quiet, 20, "the end of all reads")

    def check_stopped(self, job):
        done = job.stop()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual([], job.leftovers())

    @staticmethod
    def launchers(job):
        return [pid for pid, words in processes_of(job.directory).items()
                if os.path.basename(words[0]) in LAUNCHERS]

    def launcher(self, job):
        found = self.launchers(job)
        self.assertEqual(1, len(found))
        return found[0]

    @staticmethod
    def alone(job):
        """How many nodes have successors. Possibly nobody answers while they start."""
        done = job.command("status", "--nodes", "--mount", job.mount)
        return done.stdout.count("degraded")

    def test_programs_notice_nothing(self):
        job = self.launch()
        with Witnesses([witness(job.root(node), TREE) for node in range(2)]) as witnesses:
            for rank in (1, 1, 0):
                self.lose(job, rank)
                os.listdir(job.mirrored(rank, TREE))
        self.assertEqual([], witnesses.problems())
        self.assertGreater(witnesses.calls(), 0)
        self.check_stopped(job)

    def test_request_in_flight_is_answered(self):
        """A daemon takes a request while the backing filesystem hangs, and is killed."""
        place = self.make_directory()
        size = 3 << 20
        backing = subprocess.Popen([str(build_directory() / "bench" / "bare_file"), place, str(size)])
        self.addCleanup(backing.wait)
        self.addCleanup(backing.kill)
        self.addCleanup(subprocess.run, ["umount", "-l", place], check=False)
        wait_until(lambda: mounts_below(place), 20, "the backing mount")
        job = self.launch(nodes=1, trees=[place])
        mirrored = job.mirrored(0, f"{place}/file")
        self.assertEqual(size, os.stat(mirrored).st_size)
        # A process whose request was taken, but not answered, cannot be killed. So no thread may take one any more.
        self.wait_until_quiet(job)
        os.kill(backing.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, backing.pid, signal.SIGCONT)
        threads = [int(name) for name in os.listdir(f"/proc/{backing.pid}/task")]
        wait_until(lambda: all(state_of(thread) == "T" for thread in threads), 20, "the stop of all its threads")
        got = []
        reader = threading.Thread(target=lambda: got.append(pathlib.Path(mirrored).read_bytes()))
        reader.start()
        wait_until(lambda: job.totals()["fuse"]["read"] > 0, 20, "the read")
        self.lose(job, 0)
        self.assertEqual([], got)
        os.kill(backing.pid, signal.SIGCONT)
        reader.join(timeout=30)
        self.assertEqual(pathlib.Path(f"{place}/file").read_bytes(), got[0])
        self.check_stopped(job)

    def test_what_is_open_stays_open(self):
        job = self.launch()
        path = job.mirrored(1, a_document())
        directory = os.open(job.mirrored(1, TREE), os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, directory)
        with open(path, "rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped, \
                subprocess.Popen(["cat"], cwd=job.mirrored(1, TREE), stdin=subprocess.PIPE) as inhabitant:
            self.addCleanup(inhabitant.kill)
            inode = os.fstat(file.fileno()).st_ino
            file.read(10)
            self.lose(job, 1)
            original = pathlib.Path(a_document()).read_bytes()
            self.assertEqual(original[10:], file.read())
            self.assertEqual(original, mapped[:])
            self.assertEqual(inode, os.stat(path).st_ino)
            names = os.listdir(directory)
            self.assertEqual(sorted(os.listdir(TREE)), sorted(names))
            for name in names[:100]:
                os.stat(name, dir_fd=directory)
            self.assertEqual(sorted(names), sorted(os.listdir(f"/proc/{inhabitant.pid}/cwd")))
            inhabitant.stdin.close()
            self.assertEqual(0, inhabitant.wait(timeout=10))
        self.check_stopped(job)

    def test_status_tells_of_it(self):
        job = self.launch()
        self.lose(job, 1)
        wait_until(lambda: self.alone(job) == 1, 20, "its successor")
        nodes = nodes_of(job.status())
        self.assertEqual([("0", "serving"), ("1", "degraded")], [(node["RANK"], node["STATE"]) for node in nodes])
        done = job.command("status", "--mount", job.mount)
        self.assertEqual((1, "copper: only 1 of 2 nodes serve\n"), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, "^1 of 2 nodes serve; mirror of .*\n  [^ ]+: reads alone: .*killed")
        stats = job.stats()
        self.assertEqual(["serving", "degraded"], [node["state"] for node in stats["per_node"]])
        logs = job.logs()
        self.assertIn("goes on with", logs)
        self.check_stopped(job)

    def row(self, job, rank):
        """The line of a node in `copper status --nodes`."""
        return job.status().splitlines()[2 + rank]

    def check_told(self, job, rank, why):
        """In status and log."""
        wait_until(lambda: self.alone(job) == 1, 20, "the successor's answer")
        self.assertRegex(self.row(job, rank), f" degraded .*{why}")
        self.assertRegex(job.logs(), f"process [0-9]+ was lost .{why}.*goes on with {job.root(rank)}")

    def test_crash_is_told(self):
        job = self.launch()
        self.lose(job, 1, signal.SIGSEGV)
        self.check_told(job, 1, r"crashed: signal 11 \(Segmentation fault\)")
        self.lose(job, 1, signal.SIGABRT)
        self.check_told(job, 1, r"crashed: signal 6 \(Aborted\)")
        self.check_stopped(job)

    def test_kill_is_told(self):
        job = self.launch()
        self.lose(job, 1)
        self.check_told(job, 1, "killed without notice")
        self.lose(job, 1)  # a child of the supervisor's
        self.check_told(job, 1, r"killed: signal 9 \(Killed\)")
        self.check_stopped(job)

    def test_silence_is_told(self):
        job = self.launch_what_can_hang()
        daemon = job.daemons()[1]
        os.kill(daemon, signal.SIGRTMAX - 1)
        wait_until(lambda: job.daemons()[1] not in (daemon, 0), 60, "its replacement")
        self.check_told(job, 1, "killed by its supervisor: it was silent for [0-9]{2} s; "
                                "its loop [a-z' ]+, its process was asleep( in [a-z0-9_]+)?")
        self.check_stopped(job)

    def test_stall_is_no_loss(self):
        """Daemons that are stopped, one and then all, go on, whatever they missed."""
        job = self.launch(nodes=4)
        daemons = job.daemons()
        path = a_document()
        for stalled in ([daemons[2]], daemons):
            for daemon in stalled:
                os.kill(daemon, signal.SIGSTOP)
            # Longer than a daemon that hangs is given.
            time.sleep(13)
            for daemon in stalled:
                os.kill(daemon, signal.SIGCONT)
            for node in range(4):
                self.assertEqual(pathlib.Path(path).read_bytes(), pathlib.Path(job.mirrored(node, path)).read_bytes())
                os.listdir(job.mirrored(node, os.path.dirname(path)))
            self.assertEqual(daemons, job.daemons())
            # Those that have read directly during the stall say so for a minute.
            wait_until(lambda: job.command("status", "--mount", job.mount).returncode == 0, 100, "all nodes to serve")
        self.check_stopped(job)

    def test_end_that_was_asked_for_is_told(self):
        """A node that a person ends does not come back, and the others know why."""
        job = self.launch()
        os.kill(job.daemons()[1], signal.SIGTERM)
        wait_until(lambda: len(job.daemons()) == 1, 20, "its end")
        why = rf"it has left: signal 15 \(Terminated\) of process {os.getpid()}"
        self.assertRegex(self.row(job, 1), f" lost .*{why}")
        self.assertRegex(job.logs(), "#1 " + why.removeprefix("it "))
        self.check_stopped(job)

    def test_second_import_without_the_daemon(self):
        """The kernel has it all."""
        tree = package_tree("numpy")
        load = Workload(packages=["numpy"], trees=[tree])
        job = self.launch_what_can_hang(trees=[tree])
        roots = [job.root(node) for node in range(2)]
        storm(load, roots)
        storm(load, roots)
        self.lose(job, 0)
        daemon = job.daemons()[1]
        os.kill(daemon, signal.SIGRTMAX - 1)
        storm(load, roots)
        # An interpreter's start may make a request that no kernel can answer, and has then waited for this.
        wait_until(lambda: job.daemons()[1] != daemon, 60, "its replacement")
        self.check_stopped(job)

    def test_daemon_that_is_lost_again_and_again(self):
        """Then the supervisor unmounts cleanly."""
        job = self.launch()
        for _ in range(5):
            self.lose(job, 1)
        os.kill(job.daemons()[1], signal.SIGKILL)
        wait_until(lambda: job.root(1) not in mounts_below(job.directory), 20, "the end of the mount")
        wait_until(lambda: "gave up" in job.logs(), 20, "the reason in the log")
        wait_until(lambda: len(job.daemons()) == 1, 20, "the end of its record")  # which follows the mount's
        os.listdir(job.mirrored(0, TREE))
        self.check_stopped(job)

    def test_stop_while_a_successor_waits_its_turn(self):
        job = self.launch()
        for _ in range(3):
            self.lose(job, 1)
        os.kill(job.daemons()[1], signal.SIGKILL)
        self.check_stopped(job)

    def test_loss_of_everything_but_the_supervisors(self):
        job = self.launch()
        with Witnesses([witness(job.root(node), TREE) for node in range(2)]) as witnesses:
            for pid in [self.launcher(job), *job.daemons()]:
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: self.alone(job) == 2, 20, "the successors")
            os.listdir(job.mirrored(0, TREE))
        self.assertEqual([], witnesses.problems())
        self.check_stopped(job)

    def test_launcher_is_killed(self):
        job = self.launch()
        with Witnesses([witness(job.root(node), TREE) for node in range(2)]) as witnesses:
            os.kill(self.launcher(job), signal.SIGKILL)
            wait_until(lambda: not self.launchers(job), 20, "its end")
            os.listdir(job.mirrored(1, TREE))
        self.assertEqual([], witnesses.problems())
        self.check_stopped(job)

    def test_launcher_ends_its_processes(self):
        """Mirrors stay while they are in use, and then end."""
        job = self.launch()
        with Witnesses([witness(job.root(1), TREE)]) as witnesses:
            os.kill(self.launcher(job), signal.SIGTERM)
            wait_until(lambda: self.alone(job) == 2, 20, "the successors")
            os.listdir(job.mirrored(0, TREE))
            for rank in range(2):
                self.assertRegex(self.row(job, rank), r"its launcher ended it: signal 15 \(Terminated\)")
        self.assertEqual([], witnesses.problems())
        wait_until(lambda: not mounts_below(job.directory) and not job.own_processes(), 90,
                   "the end of unused mirrors")
        self.check_stopped(job)

    def test_supervisor_is_killed(self):
        """The daemon goes on without a supervisor, and its end ends the mount."""
        job = self.launch()
        records = [json.loads(path.read_text()) for path in pathlib.Path("/tmp").glob("copper-[0-9]*/*/record.json")]
        os.kill(next(one["supervisor"] for one in records if one["mount"] == job.root(1)), signal.SIGKILL)
        os.listdir(job.mirrored(1, TREE))
        os.kill(job.daemons()[1], signal.SIGKILL)
        self.check_stopped(job)
