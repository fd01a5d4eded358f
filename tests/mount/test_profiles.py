"""What one job used, the next one fetches ahead: profiles, and `copper prefetch`."""

import os
import pathlib
import signal
import subprocess
import sys

sys.dont_write_bytecode = True

from copper import clean_environment, copper_program, kill_all, wait_until
from slow_mounted import SlowTestCase
from terminal import Terminal

SECONDS_MAX = 60


class ProfileTestCase(SlowTestCase):
    FILES = 100
    USED = [10 * number for number in range(10)]  # far enough apart that no batch of attributes is worth it

    def setUp(self):
        super().setUp()
        self.source = self.make_directory()
        for directory in ("used", "unused"):
            os.mkdir(f"{self.source}/{directory}")
            for number in range(self.FILES):
                self.write(f"{directory}/file.{number:02}", bytes([number]) * 1000)
        self.slow = self.serve("metadata_latency_ms = 2\ndata_latency_ms = 2\n")
        self.shown = self.slow.mount()
        self.profile = f"{self.make_directory()}/some/profile"

    def write(self, name, content):
        pathlib.Path(f"{self.source}/{name}").write_bytes(content)

    def start(self, *options, nodes=2, **more):
        return self.launch(nodes=nodes, trees=[self.shown], options=["--profile", self.profile, *options], **more)

    def use(self, job, nodes=(0, 1)):
        for node in nodes:
            for number in self.USED:
                path = job.mirrored(node, f"{self.shown}/used/file.{number:02}")
                self.assertEqual(bytes([number]) * 1000, pathlib.Path(path).read_bytes())

    def end(self, job):
        """Returns the log."""
        done = job.stop()
        self.assertEqual(0, done.returncode, done.stderr)
        return job.logs()

    def record(self):
        job = self.start()
        self.use(job)
        self.end(job)
        self.assertTrue(os.path.isfile(self.profile))
        self.slow.renew(self.shown)

    def wait_for_replay(self, job, objects):
        wait_until(lambda: job.totals()["profile"]["fetched"] >= objects, SECONDS_MAX, "the replay")

    def operations(self, action):
        before = self.slow.counters()
        action()
        return dict(self.slow.counters() - before)


class Profiles(ProfileTestCase):
    # Attributes and names of the tree and of the directory; attributes and bytes of each file.
    OBJECTS = 4 + 2 * len(ProfileTestCase.USED)

    def test_the_next_job_fetches_what_the_last_one_used(self):
        self.record()
        before = self.slow.counters()
        job = self.start()
        self.wait_for_replay(job, self.OBJECTS)
        wait_until(lambda: job.stats()["per_node"][1]["cache"]["objects"] >= self.OBJECTS, SECONDS_MAX, "the push to all")
        counts = self.slow.counters() - before
        self.assertEqual(len(self.USED), counts["open"])
        self.assertEqual(1000 * len(self.USED), counts["bytes_read"])
        self.assertEqual({}, self.operations(lambda: self.use(job)))
        # Those on the way to the tree are no part of a profile.
        self.assertLessEqual(job.stats()["per_node"][1]["fabric"]["interests_sent"], len(pathlib.Path(self.shown).parents) - 1)
        totals = job.totals()["profile"]
        self.assertEqual((self.OBJECTS, self.OBJECTS, 0), (totals["fetched"], totals["foretold"], totals["unforeseen"]))

    def test_what_has_changed_since_is_read_anew(self):
        self.record()
        self.write("used/file.30", b"new" * 1000)
        os.unlink(f"{self.source}/used/file.40")
        self.slow.renew(self.shown)
        job = self.start()
        self.wait_for_replay(job, self.OBJECTS - 2)
        for node in (0, 1):
            self.assertEqual(b"new" * 1000, pathlib.Path(job.mirrored(node, f"{self.shown}/used/file.30")).read_bytes())
            self.assertFalse(os.path.lexists(job.mirrored(node, f"{self.shown}/used/file.40")))

    def test_what_is_not_used_any_more_fades(self):
        self.record()
        shows = []
        for _ in range(3):
            job = self.start(nodes=1)
            pathlib.Path(job.mirrored(0, f"{self.shown}/used/file.00")).read_bytes()
            self.end(job)
            shows.append(self.run_program(copper_program(), "profile", "show", self.profile).stdout.decode())
        self.assertIn("used/file.90", shows[1])
        self.assertNotIn("used/file.90", shows[2])
        self.assertIn("used/file.00", shows[2])

    def test_what_is_told_with_the_names_is_not_asked_for_and_does_not_fade(self):
        os.mkdir(f"{self.source}/package")
        for name in "abcdefgh":
            self.write(f"package/{name}", b"")
        asked = []
        for run in range(5):  # more than a profile keeps what nobody uses
            self.slow.renew(self.shown)
            job = self.start(nodes=1)
            if run > 0:
                # attributes and names of the tree and of the directory; attributes of two files
                self.wait_for_replay(job, 4 + 2)
            directory = job.mirrored(0, f"{self.shown}/package")
            self.assertEqual(list("abcdefgh"), sorted(os.listdir(directory)))
            before = job.totals()["fuse"]["lookup"]
            for name in "ae":
                os.stat(f"{directory}/{name}")
            asked.append(job.totals()["fuse"]["lookup"] - before)
            self.end(job)
        self.assertEqual([2, 0, 0, 0, 0], asked)

    def test_the_kernel_has_the_bytes_before_programs_ask(self):
        self.record()
        shows = []
        for _ in range(4):  # more than a profile keeps what nobody uses
            self.slow.renew(self.shown)
            job = self.start()
            def filled(node, job=job):
                return job.stats()["per_node"][node]["fuse"]["bytes_filled"]
            for node in (0, 1):
                wait_until(lambda node=node: filled(node) == 1000 * len(self.USED), SECONDS_MAX, "the kernel's bytes")
            before = job.totals()["fuse"]
            self.use(job)
            after = job.totals()
            self.assertEqual((0, 0), tuple(after["fuse"][name] - before[name] for name in ("read", "bytes_read")))
            self.assertEqual(2 * len(self.USED), after["fuse"]["files_read"] - before["files_read"])
            self.assertEqual((self.OBJECTS, 0), (after["profile"]["foretold"], after["profile"]["unforeseen"]))
            self.end(job)
            shows.append(self.run_program(copper_program(), "profile", "show", self.profile).stdout.decode())
        for number in self.USED:
            self.assertIn(f"extent {self.shown}/used/file.{number:02}#0", shows[-1])

    def test_a_profile_that_is_no_good_costs_a_warning(self):
        self.record()
        whole = pathlib.Path(self.profile).read_bytes()
        other_tree = whole.replace(self.shown.encode(), b"/" + b"x" * (len(self.shown) - 1))
        for content, says in ((whole[:len(whole) // 2], "is damaged"), (b"", "is not a profile"), (b"x" * 5000, "is not a profile"),
                              (other_tree, "lie outside the trees")):
            with self.subTest(says):
                pathlib.Path(self.profile).write_bytes(content)
                job = self.start(nodes=1)
                self.use(job, nodes=[0])
                self.assertEqual(0, job.totals()["profile"]["fetched"])
                self.assertIn(says, self.end(job))
                shown = self.run_program(copper_program(), "profile", "show", self.profile).stdout.decode()
                self.assertIn("used/file.00", shown)

    def test_two_jobs_that_write_the_same_file(self):
        jobs = [self.start(nodes=1) for _ in range(2)]
        for job in jobs:
            self.use(job, nodes=[0])
        stopping = [subprocess.Popen([copper_program(), "stop", "--mount", job.mount], stdout=subprocess.DEVNULL) for job in jobs]
        self.assertEqual([0, 0], [process.wait(SECONDS_MAX) for process in stopping])
        self.assertIn("used/file.00", self.run_program(copper_program(), "profile", "show", self.profile).stdout.decode())
        self.assertEqual(["profile"], os.listdir(os.path.dirname(self.profile)))

    def test_a_home_that_cannot_be_written_costs_a_warning(self):
        pathlib.Path(os.path.dirname(self.profile)).write_text("not a directory")
        job = self.start(nodes=1)
        self.use(job, nodes=[0])
        self.assertIn("cannot be recorded", self.end(job))


class ProfilesWhileServing(ProfileTestCase):
    def test_a_job_that_is_killed_has_recorded_by_then(self):
        job = self.start(nodes=1)
        self.use(job, nodes=[0])
        def recorded():
            if not os.path.exists(self.profile):
                return set()
            shown = self.run_program(copper_program(), "profile", "show", self.profile).stdout.decode()
            return {number for number in self.USED if f"used/file.{number:02}#0" in shown}
        wait_until(lambda: recorded() == set(self.USED), 3 * SECONDS_MAX, "the record of each minute")
        kill_all(job.own_processes())
        self.assertEqual(set(self.USED), recorded())


class Names(ProfileTestCase):
    """Which profile a job finds, and the commands that look at profiles."""

    def setUp(self):
        super().setUp()
        self.cache = self.make_directory()
        self.environment = {"XDG_CACHE_HOME": self.cache, "COPPER_PROFILE": "auto"}

    def submit(self, script, read="used/file.00", **environment):
        """A job script that launches, reads and stops."""
        directory = self.make_directory()
        path = f"{directory}/{script}"
        copper, mount = copper_program(), f"{directory}/m"
        pathlib.Path(path).write_text(f"set -e\n{copper} launch --local 1 --mount {mount} --tree {self.shown} $OPTIONS\n"
                                      f"cat {mount}.0{self.shown}/{read}\n{copper} stop --mount {mount}\n")
        self.run_program("bash", path, env=clean_environment(**{**self.environment, **environment}))

    def profiles(self):
        """{name without its hash: runs}."""
        done = self.run_program(copper_program(), "profile", "list", env=clean_environment(**self.environment))
        rows = [line.split() for line in done.stdout.decode().splitlines()[1:]]
        return {row[0].rpartition("-")[0]: int(row[1]) for row in rows}

    def test_the_second_submission_finds_the_first_ones(self):
        self.assertEqual({}, self.profiles())
        self.submit("train.sh")
        self.submit("train.sh")
        self.submit("other.sh")
        self.submit("slurm_script", SLURM_JOB_NAME="my job")
        self.submit("slurm_script", PBS_JOBNAME="STDIN")
        self.assertEqual({"train.sh": 2, "other.sh": 1, "my_job": 1, "STDIN": 1}, self.profiles())
        self.submit("silent.sh", OPTIONS="--profile off")
        self.assertNotIn("silent.sh", self.profiles())

    def test_a_site_has_profiles_for_those_who_have_none(self):
        self.submit("train.sh")
        [file] = pathlib.Path(self.cache).rglob("*.profile")
        site = self.make_directory()
        os.rename(file, f"{site}/any-{file.name.rpartition('-')[2]}")
        self.submit("new.sh", read="used/file.01", COPPER_PROFILE_DIR=site)
        [file] = pathlib.Path(self.cache).rglob("*.profile")
        shown = self.run_program(copper_program(), "profile", "show", file).stdout.decode()
        self.assertIn("used/file.00", shown)
        self.assertIn("used/file.01", shown)

    def test_commands(self):
        self.submit("train.sh")
        environment = clean_environment(**self.environment)
        [file] = pathlib.Path(self.cache).rglob("*.profile")
        for name in (file, file.name, file.stem):
            shown = self.run_program(copper_program(), "profile", "show", name, env=environment).stdout.decode()
            self.assertIn(f"extent {self.shown}/used/file.00#0", shown)
        for words in (("show", "none"), ("remove", "none")):
            done = self.run_program(copper_program(), "profile", *words, env=environment, expected=1)
            self.assertIn("none: no such profile", done.stderr.decode())
        file.with_name("bad.profile").write_bytes(b"bad")
        listed = self.run_program(copper_program(), "profile", "list", env=environment).stdout.decode()
        self.assertIn("is not a profile", listed)
        self.run_program(copper_program(), "profile", "remove", file.stem, "bad", env=environment)
        self.assertEqual({}, self.profiles())
        self.run_program(copper_program(), "profile", env=environment, expected=2)


class Prefetch(ProfileTestCase):
    def start(self, *options, **more):
        return self.launch(trees=[self.shown], options=options, **{"nodes": 2, **more})

    def prefetch(self, job, *words, expected=0):
        done = job.command("prefetch", "--mount", job.mount, *words)
        self.assertEqual(expected, done.returncode, done.stderr)
        return done

    def test_a_tree_is_read_once_and_is_on_all_nodes(self):
        job = self.start()
        done = self.prefetch(job, "--wait", f"{self.shown}/used", job.mirrored(1, f"{self.shown}/unused/file.01"))
        self.assertIn(f"{self.shown}/used: ", done.stdout)
        self.assertEqual(self.FILES + 1, self.slow.counters()["open"])
        node = job.stats()["per_node"][1]
        wait_until(lambda: job.stats()["per_node"][1]["cache"]["objects"] >= self.FILES, SECONDS_MAX, "the push to all")
        self.assertEqual({}, self.operations(lambda: self.use(job)))
        self.assertEqual(0, node["fallbacks"]["direct_reads"])

    def test_all_of_a_tree_whose_names_are_looked_up_one_after_another(self):
        shown = self.serve("metadata_latency_ms = 2\nis_serial = 1\n").mount()
        job = self.launch(trees=[shown], nodes=1)
        for number in range(0, self.FILES, 4):  # so many tell that they are
            os.stat(job.mirrored(0, f"{shown}/unused/file.{number:02}"))
        before = job.totals()["backing"]["file_opens"]
        done = self.prefetch(job, "--wait", f"{shown}/used")
        self.assertEqual(self.FILES, job.totals()["backing"]["file_opens"] - before, done.stdout)

    def test_a_terminal_gets_a_bar(self):
        shown = self.serve("metadata_operations_per_second = 200\n").mount()  # so it takes two seconds
        job = self.launch(trees=[shown], nodes=1)
        terminal = Terminal([copper_program(), "prefetch", "--wait", "--mount", job.mount, shown], columns=200)
        self.assertEqual((0, True), terminal.end(f"{shown}: "))
        self.assertRegex(terminal.shown, rf"\[#+-+\] \d+ of at least \d+ objects, [0-9.]+ \w+( in [0-9.]+ s \(.*/s\))?  {shown}")

    def test_several_paths(self):
        job = self.start(nodes=1)
        self.prefetch(job, f"{self.shown}/used", f"{self.shown}/unused")
        self.prefetch(job, "--wait", self.shown)
        self.assertEqual(2 * self.FILES, self.slow.counters()["open"])
        self.assertEqual({}, self.operations(lambda: self.use(job, nodes=[0])))

    def test_a_filesystem_that_hangs_is_told_and_not_the_others_wait(self):
        hung = self.serve()
        tree = hung.mount()
        client = hung.clients[0].pid
        job = self.launch(trees=[tree, self.shown], nodes=2)
        os.kill(client, signal.SIGSTOP)
        self.addCleanup(os.kill, client, signal.SIGCONT)
        waiting = subprocess.Popen([copper_program(), "prefetch", "--wait", "--mount", job.mount, tree], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(waiting.communicate)
        self.addCleanup(waiting.kill)
        self.assertRegex(waiting.stderr.readline(), rf"^copper: {tree}: its filesystem has not answered for \d+ s\n$")
        done = self.prefetch(job, "--wait", f"{self.shown}/used")
        self.assertRegex(done.stdout, rf"^{self.shown}/used: \d+ objects, .*\n$")
        os.kill(client, signal.SIGCONT)
        self.assertIn(f"{tree}: ", waiting.communicate(timeout=SECONDS_MAX)[0])
        self.assertEqual(0, waiting.returncode)

    def test_bad_input(self):
        self.write("large", os.urandom(30 << 20))
        job = self.start("--cache-bytes", "16M", nodes=1)
        for path, says in ((f"{self.shown}/none", "none: no such path"), ("/etc", f"/etc: lies in no tree of this job (they are {self.shown})")):
            self.assertIn(says, self.prefetch(job, path, expected=1).stderr)
        done = self.prefetch(job, "--wait", self.shown, expected=1)
        self.assertRegex(done.stderr, r"the cache has room for [0-9.]+ MiB of it")
        self.assertLess(self.slow.counters()["bytes_read"], 20 << 20)
        self.use(job, nodes=[0])
        self.assertIn("no Copper serves", job.command("prefetch", "--mount", "/tmp/none", self.shown).stderr)

