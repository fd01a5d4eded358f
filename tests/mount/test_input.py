"""Bad input gets a clear answer: the documented exit code, and a first line that says everything."""

import json
import os
import subprocess

from copper import as_nobody, clean_environment, copper_program, daemon_program, kill_all, wait_until, NOBODY
from mounted import MountTestCase

TREE = "/usr/share/doc"

# Hides /dev/fuse from the commands that follow, in their own mount namespace.
WITHOUT_DEVICE = """
mount -t tmpfs none "$1" && for name in null zero random urandom tty; do
    touch "$1/$name" && mount --bind "/dev/$name" "$1/$name"
done && mkdir "$1/shm" && mount --rbind "$1" /dev && shift && exec "$@"
"""


class BadInput(MountTestCase):
    def setUp(self):
        self.job = self.prepare(nodes=2, trees=[TREE])

    def refused(self, *words, code, says, prefix=(), program=None, **environment):
        done = subprocess.run([*prefix, program or copper_program(), *map(str, words)], capture_output=True, text=True,
                              env=clean_environment(**environment), timeout=120, stdin=subprocess.DEVNULL, cwd="/",
                              check=False)
        output = done.stderr
        self.assertIn(done.returncode, code if isinstance(code, tuple) else (code,), done.stdout + output)
        self.assertTrue(output.strip(), "nothing on standard error")
        for part in [says] if isinstance(says, str) else says:
            self.assertRegex(output, part)
        self.assertEqual([], self.job.leftovers())
        return output

    def launch_refused(self, *more, code=(1, 2), says, **options):
        return self.refused(*self.job.launch_words(), *more, code=code, says=says, **options)

    # Before a launch

    def test_doctor(self):
        words = [copper_program(), "doctor", "--mount", f"{self.job.directory}/m", "--launcher", "none"]
        done = self.run_program(*words, "--tree", TREE, env=clean_environment())
        self.assertRegex(done.stdout.decode(), "(?m)^ok +fuse: /dev/fuse can be opened\n(.*\n)*ok +copperd: copperd [0-9.]+ ")
        findings = json.loads(self.run_program(*words, "--tree", TREE, "--json", env=clean_environment()).stdout)["findings"]
        self.assertEqual({"good"}, {finding["verdict"] for finding in findings} - {"warning"})
        self.assertEqual([f"{TREE} can be read"], [finding["text"] for finding in findings if finding["check"] == "tree"])

    def test_doctor_finds_problems(self):
        self.need_root()
        place = self.make_directory()
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", WITHOUT_DEVICE, "sh", place,
                               "sh", "-c", 'ulimit -n 32; exec "$@"', "sh", copper_program(), "doctor", "--tree", TREE,
                               "--launcher", "none"], capture_output=True, text=True, env=clean_environment(), check=False)
        self.assertEqual((1, "copper: 2 problems (see above)\n"), (done.returncode, done.stderr), done.stdout)
        self.assertIn("PROBLEM  fuse: /dev/fuse does not exist\n         -> load the kernel's module", done.stdout)
        self.assertIn("PROBLEM  limits: at most 32 files may be open", done.stdout)

    # Usage

    def test_unknown_options_and_commands(self):
        self.launch_refused("--no-such-option", code=2, says="--no-such-option")
        self.refused("lunch", code=2, says="lunch")
        self.refused("stats", "--jason", code=2, says="--jason")
        self.refused(code=2, says=".")
        self.refused("--no-such-option", code=2, says="no-such-option", program=daemon_program())

    def test_values_out_of_range(self):
        for words, says in ((["--arity", "0"], "arity"), (["--readers", "none"], "readers"),
                            (["--cache-bytes", "12Q"], "cache-bytes"), (["--cache-bytes", "1K"], "at least 16M"),
                            (["--cache-bytes", "900T"], "2 caches of 943718400M do not fit .*memory"),
                            (["--deadline", "-1"], "deadline"), (["--log-level", "loud"], "log-level"),
                            (["--launcher", "rocket"], "rocket")):
            with self.subTest(words):
                self.launch_refused(*words, says=says)
        self.refused("--mount", f"{self.job.directory}/m", "--cache-bytes", "900T", code=2, program=daemon_program(),
                     says="a cache of 943718400M does not fit .*memory")
        self.refused("launch", "--local", "0", "--mount", self.job.mount, code=(1, 2), says="local")

    def test_environment_and_file(self):
        self.launch_refused(says="COPPER_ARITY", COPPER_ARITY="many")
        path = f"{self.job.directory}/options.toml"
        for text, says in (("arity = 'x'", "arity"), ("no-such-key = 1", "no-such-key"), ("arity = ", "options.toml")):
            with self.subTest(text):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text + "\n")
                self.launch_refused("--config", path, says=[says, "options.toml"])
        self.launch_refused("--config", path + ".absent", says="options.toml.absent")

    # Mount points

    def test_mount_point_is_a_file(self):
        with open(self.job.root(0), "w", encoding="utf-8"):
            pass
        done = self.run_refused_without_check()
        self.assertRegex(done, f"{self.job.root(0)}.*(file|not a directory)")
        os.unlink(self.job.root(0))

    def test_mount_point_is_not_empty(self):
        os.makedirs(f"{self.job.root(1)}/precious")
        done = self.run_refused_without_check()
        self.assertRegex(done, f"{self.job.root(1)}.*not empty")
        self.assertEqual(["precious"], os.listdir(self.job.root(1)))
        os.rmdir(f"{self.job.root(1)}/precious")
        os.rmdir(self.job.root(1))

    def run_refused_without_check(self):
        done = self.job.command(*self.job.launch_words())
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        return done.stderr

    def test_mount_point_is_missing(self):
        self.refused("--mount", f"{self.job.directory}/absent/m", "--tree", TREE, code=1, program=daemon_program(),
                     says=["absent/m", "No such file|missing|does not exist"])

    def test_parent_of_mount_point_is_missing(self):
        self.refused("launch", "--local", "1", "--mount", f"{self.job.directory}/absent/m", "--tree", TREE, code=1,
                     says="absent")

    def test_mount_point_is_served_already(self):
        job = self.launch(nodes=2, trees=[TREE])
        done = job.command(*job.launch_words())
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, "already (served|launched)")
        self.assertEqual(2, job.stats()["alive"])

    def test_mount_point_is_a_dead_mount(self):
        job = self.launch(nodes=1, trees=[TREE])
        kill_all(job.own_processes())  # the supervisor, too
        wait_until(lambda: not job.own_processes(), 20, "their end")
        done = job.command(*job.launch_words())
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, "not connected|dead|daemon is gone")
        self.assertRegex(done.stderr, "copper stop")
        self.assertEqual(0, job.stop().returncode)
        job.launch()

    def test_mount_point_in_a_mirror(self):
        job = self.launch(nodes=1, trees=[TREE])
        self.refused("launch", "--local", "1", "--mount", f"{job.root(0)}/usr/share/doc/m", "--tree", TREE, code=1,
                     says="[Cc]opper mount")

    # Trees, cores, rights

    def test_trees(self):
        absent = f"{self.job.directory}/absent"
        self.launch_refused("--tree", absent, says=absent)
        self.launch_refused("--tree", "/etc/hostname", says="/etc/hostname.*not a directory")
        self.launch_refused("--tree", "/proc", says="/proc")

    def test_cores(self):
        self.launch_refused("--cores", "4000", says="4000")
        self.launch_refused("--cores", "some", says="some")

    def test_no_fuse_device(self):
        self.need_root()
        place = self.make_directory()
        prefix = ["unshare", "--mount", "sh", "-c", WITHOUT_DEVICE, "sh", place]
        self.launch_refused(code=(1, 3), says="/dev/fuse", prefix=prefix)

    def test_no_right_to_mount(self):
        self.need_root()
        os.chown(self.job.directory, NOBODY, NOBODY)
        output = self.launch_refused(code=(1, 3), says=".", prefix=as_nobody("--no-new-privs"),
                                     HOME=self.job.directory, USER="nobody")
        self.assertRegex(output, "(?i)fusermount3|permission|not permitted")

    # Launchers and nodes

    def test_no_launcher(self):
        done = subprocess.run([copper_program(), *self.job.launch_words()], capture_output=True, text=True, check=False,
                              env=clean_environment() | {"PATH": "/nonexistent"}, cwd="/")
        self.assertIn(done.returncode, (1, 3), done.stderr)
        self.assertRegex(done.stderr, "launcher|mpirun")

    def test_node_list(self):
        absent = f"{self.job.directory}/absent"
        self.refused("launch", "--nodes-from", absent, "--mount", self.job.mount, "--tree", TREE, code=(1, 2, 3),
                     says="absent")
        with open(f"{self.job.directory}/empty", "w", encoding="utf-8"):
            pass
        self.refused("launch", "--nodes-from", f"{self.job.directory}/empty", "--mount", self.job.mount, "--tree", TREE,
                     code=(1, 2, 3), says="empty|no node")

    # Without a job

    def test_nobody_serves(self):
        for command in ("status", "stats"):
            self.refused(command, "--mount", self.job.mount, code=1, says=self.job.mount)
        done = self.job.stop()
        self.assertEqual(0, done.returncode, done.stderr)  # idempotent

    def test_dry_run_starts_nothing(self):
        done = self.job.command(*self.job.launch_words(), "--dry-run")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("copperd", done.stdout)
        self.assertEqual([], self.job.leftovers())
