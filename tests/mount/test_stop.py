"""However a job ends, nothing of it is left. (Every test here also checks that at its end.)"""

import glob
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

from copper import (CopperError, a_document, clean_environment, copper_program, daemon_program, kill_all, mounts_below,
                    processes_of, wait_until)
from import_storm import Workload, package_tree, storm
from mounted import MountTestCase

TREE = "/usr/share/doc"


class Stop(MountTestCase):
    def launch(self, nodes=4, **options):
        return super().launch(nodes=nodes, trees=[TREE], **options)

    def check_stopped(self, job):
        done = job.stop()
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual([], job.leftovers())
        self.assertEqual([], [name for name in os.listdir(job.directory) if name != "logs"])

    def kill(self, job, ranks, number=signal.SIGKILL):
        daemons = job.daemons()
        self.assertEqual(job.nodes, len(daemons))
        for rank in ranks:
            os.kill(daemons[rank], number)
        wait_until(lambda: not any(daemons[rank] in processes_of(job.directory) for rank in ranks), 20, "their end")

    def test_plain_and_again(self):
        job = self.launch()
        self.assertEqual(4, len(mounts_below(job.directory)))
        self.check_stopped(job)
        self.check_stopped(job)

    def test_statistics_are_kept(self):
        job = self.launch(nodes=2)
        os.listdir(job.mirrored(1, TREE))
        job.stop()
        with open(f"{job.directory}/logs/stats.json", encoding="utf-8") as file:
            stats = json.load(file)
        self.assertEqual((1, 2, 2), (stats["schema"], stats["nodes"], len(stats["per_node"])))
        self.assertGreater(stats["totals"]["backing"]["listings"], 0)

    def test_statistics_that_cannot_be_kept(self):
        job = self.launch(nodes=1)
        os.mkdir(f"{job.directory}/logs/stats.json")
        done = job.stop()
        self.assertEqual(0, done.returncode)
        self.assertIn("statistics are lost", done.stderr)
        self.assertEqual([], job.leftovers())

    def stop_without_log_dir(self, cache):
        job = self.prepare(nodes=2, trees=[TREE], environment={"XDG_CACHE_HOME": cache})
        done = job.command("launch", "--local", "2", "--mount", job.mount, "--tree", TREE)
        self.assertEqual(0, done.returncode, done.stderr)
        done = job.stop()
        self.assertEqual(0, done.returncode, done.stderr)
        return job, done

    def test_statistics_are_kept_without_log_dir(self):
        cache = self.make_directory()
        os.makedirs(f"{cache}/copper/statistics")
        for number in range(20):
            with open(f"{cache}/copper/statistics/{number}.json", "w", encoding="utf-8"):
                pass
            os.utime(f"{cache}/copper/statistics/{number}.json", (number, number))
        for name in ("notes", "of_a_killed_stop.json.a1B2c3"):
            with open(f"{cache}/copper/statistics/{name}", "w", encoding="utf-8"):
                pass
            os.utime(f"{cache}/copper/statistics/{name}", (1, 1))
        job, done = self.stop_without_log_dir(cache)
        path = re.search(f"^statistics: ({cache}/copper/statistics/local-.*\\.json)$", done.stdout, re.M).group(1)
        with open(path, encoding="utf-8") as file:
            stats = json.load(file)
        self.assertEqual((1, 2, 2), (stats["schema"], stats["nodes"], len(stats["per_node"])))
        self.assertIn("2 of 2", job.command("report", "-o", "-", path).stdout)
        self.assertEqual(0o600, stat.S_IMODE(os.stat(path).st_mode))
        self.assertTrue(os.path.exists(f"{cache}/copper/statistics/notes"))
        os.remove(f"{cache}/copper/statistics/notes")
        kept = sorted(glob.glob(f"{cache}/copper/statistics/*"), key=os.path.getmtime)
        self.assertEqual((16, path, "5.json"), (len(kept), kept[-1], os.path.basename(kept[0])))

    def test_statistics_without_a_place(self):
        place = f"{self.make_directory()}/file"
        with open(place, "w", encoding="utf-8"):
            pass
        _, done = self.stop_without_log_dir(place)
        self.assertRegex(done.stderr, f"^copper: warning: statistics are lost: {place}/copper/statistics: .*\n$")

    def test_statistics_in_new_directories(self):
        cache = self.make_directory()
        self.stop_without_log_dir(f"{cache}/new")
        for path in ("new", "new/copper", "new/copper/statistics"):
            self.assertEqual(0o700, stat.S_IMODE(os.stat(f"{cache}/{path}").st_mode))

    def test_home_hangs(self):
        """The mirror of another job whose daemon is halted stands for a filesystem that does not answer."""
        home = self.launch(nodes=1)
        job = self.prepare(nodes=2, trees=[TREE], environment={"XDG_CACHE_HOME": home.mirrored(0, TREE)})
        done = job.command("launch", "--local", "2", "--mount", job.mount, "--tree", TREE)
        self.assertEqual(0, done.returncode, done.stderr)
        processes = home.own_processes()
        for pid in processes:
            os.kill(pid, signal.SIGSTOP)
        try:
            stopping = subprocess.Popen([copper_program(), "stop", "--mount", job.mount], env=job.environment,
                                        stderr=subprocess.PIPE, text=True)
            wait_until(lambda: not job.daemons() and not mounts_below(job.directory), 60, "the end of the job")
            self.assertIsNone(stopping.poll())
        finally:
            for pid in processes:
                os.kill(pid, signal.SIGCONT)
            said = stopping.communicate(timeout=60)[1]
        self.assertEqual(0, stopping.returncode)
        self.assertIn("warning: statistics are lost: ", said)

    def test_unused_mirrors_are_named(self):
        for files, says in ((1, True), (2, False)):
            job = self.launch(nodes=2)
            for node in range(files):
                with open(job.mirrored(node, a_document()), "rb") as file:
                    file.read()
            said = job.stop().stdout
            self.assertRegex(said, rf"^2 of 2 nodes served {files} files to your programs; the filesystem opened [1-9]")
            self.assertEqual(says, "hardly any program used the mirror (files read: 1)" in said, said)

    def test_after_kill_of_rank_0(self):
        job = self.launch()
        self.kill(job, [0])
        self.check_stopped(job)

    def test_after_kill_of_rank_2(self):
        job = self.launch()
        self.kill(job, [2])
        self.check_stopped(job)

    def test_after_kill_of_all(self):
        job = self.launch()
        self.kill(job, range(4))
        self.check_stopped(job)

    def test_solo_after_kill(self):
        job = self.launch(nodes=1)
        self.kill(job, [0])
        with self.assertRaises(FileNotFoundError):
            os.stat(f"{job.root(0)}/never asked for")
        self.check_stopped(job)

    def test_solo_after_kill_of_all_its_processes(self):
        job = self.launch(nodes=1)
        kill_all(job.own_processes())
        # ECONNABORTED: the daemon still holds the device for a moment, and dies without answering.
        with self.assertRaisesRegex(OSError, "not connected|connection abort"):
            os.stat(f"{job.root(0)}/never asked for")  # what the kernel knows it still tells
        self.check_stopped(job)

    def test_local_stop(self):
        """Like a job's epilogue: without a launcher, on this node only."""
        job = self.launch()
        self.kill(job, [1])
        done = job.stop("--local")
        self.assertEqual(0, done.returncode, done.stderr)
        self.check_stopped(job)

    def test_local_stop_loses_nobody(self):
        """Each daemon that ends tells those that have not ended yet. Their logs call none of them lost."""
        job = self.launch()
        self.assertEqual(0, job.stop("--local").returncode)
        self.assertNotIn("lost", job.logs())

    def test_daemon_told_to_end(self):
        job = self.launch()
        self.kill(job, [3], signal.SIGTERM)
        self.assertNotIn(job.root(3), mounts_below(job.directory))
        self.check_stopped(job)

    def test_all_daemons_told_to_end(self):
        """For instance by a scheduler: nothing is left even before `copper stop`."""
        job = self.launch()
        self.kill(job, range(4), signal.SIGTERM)
        self.assertEqual([], mounts_below(job.directory))
        self.assertEqual([], job.daemons())
        self.check_stopped(job)

    def test_daemon_that_hangs(self):
        job = self.launch(options=["--deadline", "2"])
        os.kill(job.daemons()[2], signal.SIGSTOP)
        self.check_stopped(job)

    def test_unmounted_by_hand(self):
        job = self.launch(nodes=2)
        daemon = job.daemons()[1]
        self.run_program("umount", "-l", job.root(1))
        wait_until(lambda: daemon not in processes_of(job.directory), 20, "the end of a daemon without mount")
        self.check_stopped(job)

    def test_while_files_are_open(self):
        job = self.launch(nodes=2)
        name = next(entry.path for entry in os.scandir(TREE) if entry.is_dir())
        descriptors = [os.open(job.mirrored(node, name), os.O_RDONLY | os.O_DIRECTORY) for node in range(2)]
        with open(job.mirrored(0, a_document()), "rb", buffering=0) as file, \
                subprocess.Popen(["cat"], cwd=job.mirrored(1, TREE), stdin=subprocess.PIPE) as inhabitant:
            file.read(10)
            self.check_stopped(job)
            for descriptor in descriptors:
                with self.assertRaises(OSError):
                    os.stat("something", dir_fd=descriptor)
                os.close(descriptor)
            inhabitant.stdin.close()
            self.assertEqual(0, inhabitant.wait(timeout=10))

    def test_programs_that_run_from_the_mirror_are_named(self):
        job = self.launch(nodes=2)
        script = ("import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); "
                  "f.close(); print(1, flush=True); input()")
        with subprocess.Popen([sys.executable, "-c", script, job.mirrored(1, a_document())], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as program:
            self.assertEqual(b"1\n", program.stdout.readline())
            done = job.stop()
            program.communicate(b"\n")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stderr, rf"warning: .* may be killed by SIGBUS: python3\S* \({program.pid}\)\n")

    def test_in_the_middle_of_a_storm(self):
        """Imports under way fail or succeed, but all end."""
        tree = package_tree("numpy")
        job = super().launch(nodes=2, trees=[tree])
        load = Workload(packages=["scipy.stats"], trees=[tree])
        outcome = []

        def run():
            try:
                outcome.append(storm(load, [job.root(node) for node in range(2) for _ in range(2)]))
            except CopperError as error:
                outcome.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: job.totals()["fuse"]["requests"] > 100, 20, "the storm")
        self.check_stopped(job)
        thread.join(timeout=60)
        self.assertFalse(thread.is_alive())
        self.assertEqual(1, len(outcome))

    def test_not_out_of_the_mirror(self):
        """After `copper env`, PATH leads to a Copper in the mirror, which must not run from what it ends."""
        tree = self.make_directory()
        for program in (copper_program(), daemon_program()):
            shutil.copy2(program, tree)
        job = super().launch(nodes=1, trees=[tree])
        words = [job.mirrored(0, f"{tree}/copper"), "launch", "--local", "2", "--tree", tree, "--dry-run"]
        said = self.run_program(*words, env=clean_environment()).stdout.decode()
        self.assertIn(f" {tree}/copperd ", said)

    def test_survivors_go_on(self):
        """Invariant 4: a lost node costs time, never bytes."""
        tree = package_tree("numpy")
        for victim in (0, 1):
            with self.subTest(victim=victim):
                job = super().launch(nodes=4, trees=[tree], options=["--deadline", "2"])
                self.kill(job, [victim])
                load = Workload(packages=["numpy"], trees=[tree])
                storm(load, [job.root(node) for node in range(4) if node != victim])
                self.check_stopped(job)


class LowLimits(MountTestCase):
    def test_limits_of_batch_systems(self):
        """As Grid Engine's h_vmem and h_fsize set them: 1 GiB of memory, files of 128 MiB."""
        tree = "/usr/share/perl5"
        for limit in ("-v 1048576", "-f 262144"):
            with self.subTest(limit=limit):
                job = self.prepare(nodes=2, trees=[tree])
                self.run_program("sh", "-c", f'ulimit {limit}; exec "$@"', "sh", copper_program(), *job.launch_words(), env=clean_environment())
                self.run_program("cp", "-r", job.mirrored(1, tree), f"{self.make_directory()}/copy")
                job.stop()


class LaunchIsInterrupted(MountTestCase):
    def test_limits_too_low_to_launch(self):
        job = self.prepare(nodes=2, trees=[TREE])
        for limit, says in (("-n 32", "at most 32 files may be open (ulimit -n)"), ("-f 0", "files may have at most 0 bytes (ulimit -f)")):
            done = self.run_program("sh", "-c", f'ulimit {limit}; exec "$@"', "sh", copper_program(), *job.launch_words(),
                                    env=clean_environment(), expected=3)
            self.assertIn(says, done.stderr.decode())
        self.run_program("sh", "-c", 'ulimit -S -n 32; exec "$@"', "sh", copper_program(), *job.launch_words(), env=clean_environment())

    def test_by_another_launch(self):
        job = self.prepare(nodes=4, trees=[TREE])
        launches = [subprocess.Popen([copper_program(), *job.launch_words()], env=clean_environment(), cwd="/", text=True,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
                    for _ in range(4)]
        said = {launch.communicate(timeout=60)[1]: launch.returncode for launch in launches}
        self.assertEqual([0, 1, 1, 1], sorted(launch.returncode for launch in launches), said)
        for text, code in said.items():
            if code:
                self.assertRegex(text, "another 'copper launch' is starting it|already served")
        self.assertEqual(4, job.stats()["alive"])

    def test_by_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            for at_once in (True, False):
                with self.subTest(number=number, at_once=at_once):
                    job = self.prepare(nodes=4, trees=[TREE])
                    launch = subprocess.Popen(
                        [copper_program(), *job.launch_words()], env=clean_environment(), stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
                    if not at_once:
                        wait_until(lambda: mounts_below(job.directory) or launch.poll() is not None, 30, "a mount")
                    launch.send_signal(number)
                    code = launch.wait(timeout=60)
                    if code != 0:  # else it had been done before
                        wait_until(lambda: not processes_of(job.directory), 20, "their end")
                        self.assertEqual([], mounts_below(job.directory))


class LaunchIsKilled(MountTestCase):
    alone = True  # it ends what a user has on the machine outside any batch job

    def test_before_it_has_a_record(self):
        self.need_root()
        job = self.prepare(nodes=2, trees=[TREE])
        launch = subprocess.Popen([copper_program(), *job.launch_words()], env=clean_environment(), cwd="/",
                                  stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: glob.glob("/tmp/copper-0/launch-*.lock"), 20, "the beginning of the launch")
        launch.kill()
        launch.wait()
        self.kill_whatever_runs(job)
        self.run_program(copper_program(), "stop", "--local")
        self.assertEqual([], glob.glob("/tmp/copper-0*/*"))
        self.assertEqual([], mounts_below(job.directory))

    def test_with_the_record_of_an_earlier_launch(self):
        job = self.launch(nodes=2, trees=[TREE])
        [path] = [path for path in map(pathlib.Path, glob.glob("/tmp/copper-*/launch-*.json")) if json.loads(path.read_text())["mount"] == job.mount]
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "launch": "0" * 16, "pid": 1, "started": 1}))
        done = job.stop()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("2 of 2 nodes served", done.stdout)
        self.assertEqual([], mounts_below(job.directory))

    @staticmethod
    def kill_whatever_runs(job):
        """As a batch system does. A process that is just becoming another program has no command line to be found by."""
        looks_in_vain = 0
        while looks_in_vain < 5:
            found = processes_of(job.directory)
            kill_all(found)
            looks_in_vain = 0 if found else looks_in_vain + 1
            time.sleep(0.05)
