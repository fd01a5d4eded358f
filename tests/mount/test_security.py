"""Checks docs/security.md: who reaches what, and that the mirror gives nobody more rights than the original."""

import errno
import json
import os
import pathlib
import re
import shutil
import signal
import stat
import subprocess
import sys

from copper import (NOBODY, as_nobody, clean_environment, command_lines, copper_program, daemon_program, key_of_job,
                    kill_all, mounts_below, processes_of, wait_until)
from mounted import MountTestCase
from slow_mounted import SlowTestCase

TREE = "/usr/share/doc"

# Connects to the named socket, asks for the job's status, and prints the answer.
ASK = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
    client.sendall(b'{"verb":"status","argument":"","patience_ms":1000}\\n')
    print(client.recv(1000).decode())
except PermissionError:
    print("no permission")
"""


def as_user(user, groups, *words):
    """The words of a command that runs as this user; the first group is its own."""
    return ["setpriv", f"--reuid={user}", f"--regid={groups[0]}", "--groups", ",".join(map(str, groups)), *words]


def read_if_there(path):
    """A file's bytes. Files of other jobs may vanish at any time."""
    try:
        return path.read_bytes() if path.is_file() else b""
    except FileNotFoundError:
        return b""


class AccessControlListsThatAreNotListed(SlowTestCase):
    """MooseFS does not name them in its lists of extended attributes; asked for by name, they are there."""

    DENIES, ADMITS = f"u:{NOBODY}:-", f"u:{NOBODY}:r"

    def setUp(self):
        super().setUp()
        self.need_root()
        self.source = self.make_directory()
        for name, mode, acl in (("denies", 0o644, self.DENIES), ("admits", 0o640, self.ADMITS), ("none", 0o644, None)):
            pathlib.Path(self.source, name).write_text(name, encoding="utf-8")
            os.chmod(f"{self.source}/{name}", mode)
            if acl:
                self.run_program("setfacl", "-m", acl, f"{self.source}/{name}")
        self.slow = self.serve(options=["--hide-acls"])

    def serve_mirror(self, options=()):
        shown = self.slow.mount()
        os.chmod(self.slow.directory, 0o755)
        self.assertEqual([], os.listxattr(f"{shown}/denies"))
        self.assertIn(b"\x02\0\0\0", os.getxattr(f"{shown}/denies", "system.posix_acl_access"))
        job = self.launch(nodes=2, trees=[shown], options=options)
        os.chmod(job.directory, 0o755)
        return job, shown

    def test_they_hold_for_every_user(self):
        job, shown = self.serve_mirror(["--allow-other"])
        for node in range(2):
            for name, is_admitted in (("denies", False), ("admits", True), ("none", True)):
                place = job.mirrored(node, f"{shown}/{name}")
                with self.subTest(node=node, name=name):
                    done = subprocess.run(as_nobody("cat", place), capture_output=True, text=True, check=False)
                    self.assertEqual(name if is_admitted else "", done.stdout, done.stderr)

    def test_they_are_shown_and_cost_nothing_else(self):
        job, shown = self.serve_mirror()
        before = self.slow.counters()
        for node in range(2):
            for name in ("denies", "admits", "none"):
                place = job.mirrored(node, f"{shown}/{name}")
                pathlib.Path(place).read_bytes()
                os.access(place, os.R_OK)
        self.assertEqual({}, {kind: count for kind, count in (self.slow.counters() - before).items() if "xattr" in kind})
        for node in range(2):
            place = job.mirrored(node, f"{shown}/denies")
            self.assertEqual(os.getxattr(f"{self.source}/denies", "system.posix_acl_access"),
                             os.getxattr(place, "system.posix_acl_access"))
            self.assertEqual([], os.listxattr(place))


class OtherUsers(MountTestCase):
    """Other users reach neither the mount nor the control socket, and find the job's key nowhere."""

    def setUp(self):
        self.need_root()
        self.job = self.launch(nodes=2, trees=[TREE])
        os.chmod(self.job.directory, 0o755)

    def instance(self, node):
        """The directory of a node's instance."""
        for record in pathlib.Path("/tmp/copper-0").glob("*/record.json"):
            if self.job.root(node).encode() in read_if_there(record):
                return record.parent
        self.fail("no record")

    def as_nobody(self, *words):
        return subprocess.run(as_nobody(*map(str, words)), capture_output=True, text=True, cwd="/", timeout=60,
                              env=clean_environment(LC_ALL="C"), check=False)

    def test_files_and_mount(self):
        instance = self.instance(0)
        for words in (["ls", instance], ["cat", instance / "record.json"], ["ls", "/tmp/copper-0"],
                      ["ls", self.job.root(0)], ["ls", self.job.mirrored(1, TREE)],
                      *(["cat", path] for path in pathlib.Path("/tmp/copper-0").glob("launch-*"))):
            with self.subTest(words):
                done = self.as_nobody(*words)
                self.assertNotEqual(0, done.returncode, done.stdout)
                self.assertIn("Permission denied", done.stderr)

    def test_control_socket(self):
        instance = self.instance(0)
        program = [sys.executable, "-c", ASK, str(instance / "control")]
        self.assertEqual("no permission", self.as_nobody(*program).stdout.strip())
        mine = subprocess.run(program, capture_output=True, text=True, check=True)
        self.assertIn('"nodes":2', mine.stdout)

    def key(self):
        return key_of_job(processes_of(self.job.directory))

    def test_key_shows_nowhere(self):
        key = self.key()
        self.assertRegex(key.decode(), "^[0-9a-f]{64}$")
        daemons = self.job.daemons()
        self.assertEqual(2, len(daemons))
        for pid in daemons:
            self.assertNotIn(key, pathlib.Path(f"/proc/{pid}/environ").read_bytes())
        for line in command_lines():
            self.assertNotIn(key, line)
        for pid in processes_of(self.job.directory):
            done = self.as_nobody("cat", f"/proc/{pid}/environ")
            self.assertIn("Permission denied", done.stderr)
            self.assertEqual("", done.stdout)
        for place in ("/tmp/copper-0", f"{self.job.directory}/logs"):
            for path in pathlib.Path(place).rglob("*"):
                self.assertNotIn(key, read_if_there(path), path)
        dry = self.run_program(copper_program(), *self.job.launch_words()[:4], "x", "--dry-run",
                               env=clean_environment(COPPER_JOB_KEY=key.decode()))
        self.assertNotIn(key, dry.stdout + dry.stderr)

    def test_key_is_of_one_job(self):
        other = self.launch(nodes=2, trees=[TREE])
        first, self.job = self.key(), other
        self.assertNotEqual(first, self.key())

    def test_daemons_without_the_key_do_not_start(self):
        """Daemons notice a launcher that does not pass the variable on."""
        job = self.prepare(nodes=2, trees=[TREE])
        without = f"{job.directory}/bin"
        os.makedirs(without)
        with open(f"{without}/mpirun", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\ncase $1 in --version) ;; *) unset COPPER_JOB_KEY ;; esac\n"
                       f"exec {shutil.which('mpirun')} \"$@\"\n")
        os.chmod(f"{without}/mpirun", 0o755)
        job.environment["PATH"] = f"{without}:{job.environment['PATH']}"
        done = job.command(*job.launch_words())
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertIn("the job's key did not arrive", done.stderr)
        self.assertEqual([], mounts_below(job.directory))


class Traps(MountTestCase):
    """Traps that other users set before Copper starts."""

    alone = True  # names in /tmp that other jobs use too

    def setUp(self):
        self.need_root()
        self.directory = self.make_directory()

    def daemon(self, *options, before=""):
        """The output of a daemon that must not start; `before` is a script run by the same process."""
        words = [daemon_program(), "--mount", f"{self.directory}/m", "--tree", TREE, *options]
        done = subprocess.run(["sh", "-c", f'{before}\nexec "$@"', "sh", *words], capture_output=True, text=True,
                              timeout=60, env=clean_environment(), cwd=self.directory, check=False)
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertEqual([], mounts_below(self.directory))
        return done.stderr

    def test_parent_of_the_mount_point_is_theirs(self):
        """The owner of the directory could rename it after the mount and put other files in its place."""
        for missing in (True, False):
            with self.subTest(missing=missing):
                if not missing:
                    os.mkdir(f"{self.directory}/m")
                os.chown(self.directory, NOBODY, NOBODY)
                self.assertIn(f"{self.directory}: belongs to user {NOBODY}", self.daemon())
                os.chown(self.directory, 0, 0)
                os.chmod(self.directory, 0o777)
                self.assertIn(f"{self.directory}: other users may write there", self.daemon())
                os.chmod(self.directory, 0o755)

    def test_log_is_a_link(self):
        logs = f"{self.directory}/logs"
        precious = f"{self.directory}/precious"
        pathlib.Path(precious).write_text("precious\n", encoding="utf-8")
        os.mkdir(logs)
        for command in ("ln -s", "ln"):
            with self.subTest(command):
                name = '"$(hostname)-$$-output.log"'
                said = self.daemon("--log-dir", logs, "--log-level", "debug", before=f"{command} {precious} logs/{name}")
                self.assertIn("cannot write the log", said)
                self.assertEqual("precious\n", pathlib.Path(precious).read_text(encoding="utf-8"))
        shutil.copy(precious, f"{logs}/x")
        os.link(precious, f"{logs}/launch.log")
        job = self.prepare(nodes=1, trees=[TREE])
        done = job.command("launch", "--local", "1", "--mount", job.mount, "--log-dir", logs)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("the launcher's output is lost: " + f"{logs}/launch.log", job.stop().stderr)
        self.assertEqual("precious\n", pathlib.Path(precious).read_text(encoding="utf-8"))

    def test_directory_of_the_users_name_is_theirs(self):
        """Copper uses another directory. Every command finds it. In the end it is empty, and stays the user's."""
        pathlib.Path("/tmp/copper-0").mkdir(exist_ok=True)  # left by another test
        os.rmdir("/tmp/copper-0")
        self.run_program(*as_nobody("mkdir", "/tmp/copper-0"))
        self.addCleanup(os.rmdir, "/tmp/copper-0")
        job = self.prepare(nodes=2, trees=[TREE], options=["--deadline", "2"])
        done = job.command(*job.launch_words())
        self.assertEqual(0, done.returncode, done.stderr)
        said = re.search(r"warning: /tmp/copper-0: belongs to user 65534.*; this job uses (/tmp/copper-0\.\w+) on all nodes",
                         done.stderr)
        self.assertTrue(said, done.stderr)
        place = said.group(1)
        self.addCleanup(shutil.rmtree, place)
        self.assertEqual(2, job.stats()["alive"])
        environment = job.command("env", "--mount", job.mount).stdout
        self.assertIn(f"{place}/scratch/", environment)
        self.assertRegex(environment, rf"PYTHONPATH='?{place}/\w+/python")
        self.assertNotIn("/tmp/copper-0/", environment)
        first = job.daemons()[1]
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(job.daemons()) == 2 and job.daemons()[1] != first, 20, "its successor's record")
        self.assertEqual([], os.listdir("/tmp/copper-0"))
        done = job.stop()
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual([], job.leftovers())
        self.assertEqual([], os.listdir(place))
        self.assertEqual(0o40700, os.stat(place).st_mode)

    def test_directory_of_the_default_mount_is_theirs(self):
        """Copper mounts elsewhere. Every command without --mount finds the mirror."""
        user = f"copper-test-{os.getpid()}"
        self.run_program(*as_nobody("mkdir", f"/tmp/{user}"))
        self.addCleanup(os.rmdir, f"/tmp/{user}")
        job = self.prepare(nodes=1, environment={"USER": user})
        self.addCleanup(job.command, "stop")
        done = job.command("launch", "--local", "1", "--tree", TREE)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertRegex(done.stderr, f"warning: /tmp/{user}: belongs to user 65534.*; this job mounts /tmp/copper-0/mount")
        self.assertIn("/tmp/copper-0/mount.0:" + TREE, job.command("env").stdout)
        self.assertEqual(f"/tmp/copper-0/mount.0{TREE}\n", job.command("path", TREE).stdout)
        self.assertEqual(0, job.command("run", "--", "true").returncode)
        self.assertIn("1 of 1 nodes serve", job.command("status").stdout)
        self.assertIn(f"mount: /tmp/{user}: belongs to user 65534", job.command("doctor", "--local", "--tree", TREE).stdout)
        self.assertEqual(0, job.command("stop").returncode)
        self.assertEqual([], os.listdir(f"/tmp/{user}"))
        self.assertEqual([], mounts_below("/tmp/copper-0"))

    def test_mount_that_was_given_is_theirs(self):
        """Whoever names the default mount, as scripts for ALCF's Copper do, wants that one, or none."""
        user = f"copper-test-{os.getpid()}"
        self.run_program(*as_nobody("mkdir", f"/tmp/{user}"))
        self.addCleanup(os.rmdir, f"/tmp/{user}")
        mount = f"/tmp/{user}/copper"
        for words, variables in ((["--mount", mount], {}), ([], {"COPPER_MOUNT": mount})):
            job = self.prepare(nodes=1, environment={"USER": user, **variables})
            done = job.command("launch", "--launcher", "none", "--tree", TREE, *words)
            self.assertEqual(1, done.returncode, done.stderr)
            self.assertIn(f"/tmp/{user}: belongs to user 65534", done.stderr)


class CleanUpForOthers(MountTestCase):
    """Root's `copper stop --local`, as in an epilogue, removes what another user's job left, and only that."""

    alone = True

    def setUp(self):
        self.need_root()
        self.directory = self.make_directory(owner=NOBODY)
        self.keeper = self.device_for_everybody()
        self.inside = ["nsenter", "-t", str(self.keeper), "-m", "--"]

    def launch_as_nobody(self, **variables):
        job = self.prepare(nodes=2, trees=[TREE], prefix=[*self.inside, *as_nobody()], directory=self.directory,
                           mounted_for=self.keeper,
                           environment={"HOME": self.directory, "USER": "nobody", "TMPDIR": self.directory, **variables})
        job.launch()
        self.assertEqual(2, len(mounts_below(self.directory, self.keeper)))
        return job

    def stop_as_root(self, *words):
        done = subprocess.run([*self.inside, copper_program(), "stop", "--local", *words], capture_output=True, text=True,
                              timeout=50, env=clean_environment(), cwd="/", check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def check_nothing_left(self, job):
        self.assertEqual([], job.leftovers())
        for place in pathlib.Path("/tmp").glob(f"copper-{NOBODY}*"):  # others could make it otherwise
            self.assertEqual([], list(place.iterdir()))
            self.assertEqual((0o40700, NOBODY), (place.stat().st_mode, place.stat().st_uid))
            place.rmdir()

    def test_live_job(self):
        for words in ((), ("--user", str(NOBODY)), ("--user", "nobody", "--batch-job", "1")):
            with self.subTest(words):
                job = self.launch_as_nobody()
                self.assertIn(f"user {NOBODY}", self.stop_as_root(*words))
                self.check_nothing_left(job)

    def test_job_of_which_all_processes_were_killed(self):
        job = self.launch_as_nobody()
        # Kill the launcher last, although it was first: its end wakes stopped daemons by SIGHUP and SIGCONT, and they would
        # unmount.
        kill_all(sorted(job.own_processes(), reverse=True))
        wait_until(lambda: not job.own_processes(), 20, "their end")
        self.assertEqual(2, len(mounts_below(self.directory, self.keeper)))
        self.stop_as_root()
        self.check_nothing_left(job)

    def test_other_batch_job_is_left_alone(self):
        job = self.launch_as_nobody(PBS_JOBID="42.host")
        self.stop_as_root("--batch-job", "43.host")
        self.assertEqual(2, len(job.daemons()))
        self.assertEqual(2, len(mounts_below(self.directory, self.keeper)))
        self.stop_as_root("--batch-job", "42.host")
        self.check_nothing_left(job)

    def test_other_users_are_left_alone(self):
        job = self.launch_as_nobody()
        self.stop_as_root("--user", "daemon")
        self.assertEqual(2, len(job.daemons()))
        self.stop_as_root("--user", "nobody")
        self.check_nothing_left(job)

    def test_directory_that_a_third_user_made(self):
        self.addCleanup(shutil.rmtree, f"/tmp/copper-{NOBODY}", ignore_errors=True)
        self.run_program("setpriv", "--reuid=12345", "--clear-groups", "mkdir", f"/tmp/copper-{NOBODY}")
        job = self.launch_as_nobody()
        self.stop_as_root()
        self.assertEqual([], job.leftovers())
        os.rmdir(f"/tmp/copper-{NOBODY}")
        self.check_nothing_left(job)

    def make_instance(self):
        """An instance directory of that user, without a record."""
        instance = pathlib.Path(f"/tmp/copper-{NOBODY}/{'0' * 16}")
        self.addCleanup(shutil.rmtree, instance.parent, ignore_errors=True)
        for directory in (instance.parent, instance):
            directory.mkdir(mode=0o700)
            os.chown(directory, NOBODY, NOBODY)
        return instance

    def test_fifo_in_the_place_of_a_record(self):
        """A FIFO that nobody ever writes to."""
        instance = self.make_instance()
        for fifo in (instance / "record.json", instance.parent / "launch-x.json"):
            self.run_program(*as_nobody("mkfifo", fifo))
        self.stop_as_root()
        (instance.parent / "launch-x.json").unlink()
        instance.parent.rmdir()

    def test_record_that_names_what_is_not_theirs(self):
        instance = self.make_instance()
        ours = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(ours.wait)
        self.addCleanup(ours.kill)
        kept = f"{self.make_directory()}/kept"
        os.mkdir(kept)
        started = pathlib.Path(f"/proc/{ours.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
        record = {"mount": kept, "pid": ours.pid, "pid_started": int(started), "supervisor": ours.pid,
                  "supervisor_started": int(started), "is_alone": False, "user": 0, "job": "x", "batch_job": "",
                  "rank": 0, "nodes": 1, "trees": [], "made_directories": [kept], "run_everywhere": []}
        (instance / "record.json").write_text(json.dumps(record), encoding="utf-8")
        os.chown(instance / "record.json", NOBODY, NOBODY)
        done = subprocess.run([*self.inside, copper_program(), "stop", "--local"], capture_output=True, text=True,
                              timeout=50, env=clean_environment(), cwd="/", check=False)
        self.assertIn(f"cannot remove {kept}", done.stderr)
        self.assertIsNone(ours.poll())
        self.assertTrue(os.path.isdir(kept))
        self.assertFalse(instance.exists())


class Paths(MountTestCase):
    """Paths and links lead to the same places as on the original, and no further."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.original = cls.make_directory() + "/tree"
        os.makedirs(f"{cls.original}/directory")
        for name in ("../outside", "directory/inside"):
            with open(f"{cls.original}/{name}", "w", encoding="utf-8") as file:
                file.write(name)
        for name, target in (("up", "../outside"), ("far up", "../" * 60 + "etc/hostname"),
                             ("absolute", "/etc/hostname"), ("absolute up", f"{cls.original}/../outside"),
                             ("to the mount", "directory/inside")):
            os.symlink(target, f"{cls.original}/{name}")
        cls.job = cls.launch_for_class(nodes=2, trees=[cls.original])

    def content(self, path):
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError as error:
            return error.errno

    def test_climbing(self):
        """`..` above the mount leads to the directory of the mount point, like on any filesystem."""
        for node in range(2):
            root = self.job.root(node)
            mirror = self.job.mirrored(node, self.original)
            self.assertEqual(os.stat(self.job.directory), os.stat(f"{root}/.."))
            self.assertEqual(os.stat("/etc"), os.stat(f"{mirror}/{'../' * 60}etc"))
            for path in (f"{mirror}/directory/../directory/inside", f"{mirror}/../tree/directory/inside",
                         f"{root}/../{os.path.basename(root)}{self.original}/directory/inside"):
                self.assertEqual(b"directory/inside", self.content(path))
            self.assertEqual(b"../outside", self.content(f"{mirror}/../outside"))
            # Within the mirror, the link leads to the mirror of /etc, which the user may read anyway.
            self.assertEqual(self.content("/etc/passwd"), self.content(f"{root}/usr/../etc/passwd"))
            self.assertEqual(self.content(f"{self.original}/directory/inside/../inside"),
                             self.content(f"{mirror}/directory/inside/../inside"))

    def test_links_that_leave_the_tree(self):
        for node in range(2):
            mirror = self.job.mirrored(node, self.original)
            for name in ("up", "far up", "absolute", "absolute up", "to the mount"):
                with self.subTest(node=node, name=name):
                    self.assertEqual(os.readlink(f"{self.original}/{name}"), os.readlink(f"{mirror}/{name}"))
                    self.assertEqual(self.content(f"{self.original}/{name}"), self.content(f"{mirror}/{name}"))
                    self.assertIsInstance(self.content(f"{mirror}/{name}"), bytes)

    def test_link_to_the_mount(self):
        """No daemon enters a mirror, its own or another's."""
        os.symlink(self.job.root(0), f"{self.original}/mirror")
        self.addCleanup(os.unlink, f"{self.original}/mirror")
        job = self.launch(nodes=1, trees=[self.original])
        mirror = job.mirrored(0, self.original)
        self.assertEqual(self.job.root(0), os.readlink(f"{mirror}/mirror"))
        with self.assertRaisesRegex(OSError, "Too many levels"):
            os.stat(job.mirrored(0, self.job.mirrored(0, self.original)))

    def test_names_that_a_path_cannot_have(self):
        mirror = self.job.mirrored(0, self.original)
        for path in (f"{mirror}/directory/{'x' * 256}", f"{mirror}/{'x/' * 2100}", f"{mirror}/directory/inside/x"):
            with self.subTest(path[-20:]):
                original = path.replace(mirror, self.original, 1)
                self.assertEqual(self.content(original), self.content(path))


# Prints what a user may do with each path below the current directory.
LOOK = r"""
import os
def attempt(what, *words):
    try:
        return what(*words)
    except OSError as error:
        return error.strerror
def content(path):
    with open(path, "rb") as file:
        return file.read()
for path in %(paths)r:
    told = attempt(os.lstat, path)
    print(path, told if isinstance(told, str) else (oct(told.st_mode), told.st_uid, told.st_gid, told.st_size))
    print(" access", os.access(path, os.R_OK), os.access(path, os.X_OK))
    print(" content", attempt(content, path), "list", attempt(lambda: sorted(os.listdir(path))))
    print(" write", attempt(os.open, path, os.O_WRONLY))
    print(" attributes", attempt(os.getxattr, path, "user.note"), "link", attempt(os.readlink, path))
"""


class Rights(MountTestCase):
    """A daemon of root with --allow-other: each user gets what the original gives that user."""

    users = ((NOBODY, (NOBODY,)), (12345, (12345,)), (12345, (12345, 777)), (4321, (777,)))

    def setUp(self):
        self.need_root()
        self.original = self.make_directory() + "/tree"
        self.paths = []
        os.makedirs(self.original)
        for mode in (0o600, 0o640, 0o644, 0o604, 0o444, 0o000, 0o060, 0o006, 0o755, 0o711):
            for user, group in ((0, 0), (12345, 777), (NOBODY, 0), (0, 777)):
                self.make(f"{mode:03o}-{user}-{group}", user, group, mode)
        self.make("list", 0, 777, 0o640, acl=f"u:{NOBODY}:r,g:12345:r")
        self.make("list that denies", 0, 0, 0o644, acl=f"u:{NOBODY}:-,g:777:-")
        self.make("set-user-id", 0, 0, 0o4755)
        self.make("set-group-id", 0, 777, 0o2755)

    def make(self, name, user, group, mode, acl=None):
        """A file of that name, and a directory with such a file in it."""
        for path in (f"file-{name}", f"directory-{name}/file"):
            place = f"{self.original}/{path}"
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w", encoding="utf-8") as file:
                file.write(path)
            try:
                os.setxattr(place, "user.note", b"x")
            except OSError as error:  # a tmpfs before Linux 6.6 has none
                self.assertEqual(errno.ENOTSUP, error.errno)
        for path in (f"file-{name}", f"directory-{name}/file", f"directory-{name}"):
            place = f"{self.original}/{path}"
            os.chown(place, user, group)
            os.chmod(place, mode)
            if acl is not None:
                self.run_program("setfacl", "-m", acl, place)
            self.paths.append(path)

    def look(self, root, user, groups):
        done = subprocess.run(as_user(user, groups, sys.executable, "-c", LOOK % {"paths": self.paths}), cwd=root,
                              capture_output=True, text=True, check=False, env=clean_environment(LC_ALL="C"))
        self.assertEqual("", done.stderr)
        return done.stdout.splitlines()

    def test_every_user_gets_what_the_original_gives(self):
        job = self.launch(nodes=2, trees=[self.original], options=["--allow-other"])
        os.chmod(job.directory, 0o755)
        for user, groups in self.users:
            expected = self.look(self.original, user, groups)
            self.assertGreater(len([line for line in expected if "Permission denied" in line]), 20)
            for node in range(2):
                with self.subTest(user=user, groups=groups, node=node):
                    found = self.look(job.mirrored(node, self.original), user, groups)
                    self.assertEqual(self.without_writing(expected), self.without_writing(found))
                    written = {line for line in found if line.startswith(" write")}
                    self.assertLessEqual(written, {" write Read-only file system", " write Permission denied",
                                                   " write Is a directory"})

    @staticmethod
    def without_writing(lines):
        return [line for line in lines if not line.startswith(" write")]

    def test_what_takes_the_place_of_a_file_or_directory(self):
        """A user replaces a known file by one that root may read, but the user may not."""
        theirs = f"{self.original}/theirs"
        for name in ("x/secrets", "y/secrets"):
            os.makedirs(f"{theirs}/{name}")
        for name in ("file", "x/secrets/file", "y/secrets/file"):
            with open(f"{theirs}/{name}", "w", encoding="utf-8") as file:
                file.write("theirs")
        os.makedirs(f"{self.original}/closed/secrets")
        for name in ("closed/secrets/file", "theirs/secret"):
            with open(f"{self.original}/{name}", "w", encoding="utf-8") as file:
                file.write("secret")
        os.chmod(f"{theirs}/secret", 0o600)
        os.chmod(f"{self.original}/closed", 0o700)
        job = self.launch(nodes=2, trees=[self.original], options=["--allow-other"])
        os.chmod(job.directory, 0o755)

        def see(node, what):
            script = f'cd "{job.mirrored(node, theirs)}" && {what}'
            done = subprocess.run(as_nobody("sh", "-c", script), capture_output=True, text=True, check=False)
            return done.stdout + done.stderr

        for node in range(2):  # the names, but no bytes
            self.assertIn("file", see(node, "ls -l . x y"))
        os.rename(f"{theirs}/secret", f"{theirs}/file")
        for name in ("x", "y"):
            os.rename(f"{theirs}/{name}", f"{theirs}/{name} was here")
            os.symlink(f"{self.original}/closed", f"{theirs}/{name}")
        for node in range(2):
            for what in ("cat file", "cat file", "ls x/secrets", "cat x/secrets/file", "cat y/secrets/file"):
                found = see(node, what)
                self.assertNotIn("secret\n", found + "\n", what)
                self.assertRegex(found, "Stale|denied|symbolic links|No such", what)

    def test_set_user_id_gives_nothing(self):
        """The kernel ignores the bits on the mirror (nosuid), and shows them."""
        shutil.copy2("/usr/bin/id", f"{self.original}/id")
        os.chmod(f"{self.original}/id", 0o6755)
        job = self.launch(nodes=1, trees=[self.original], options=["--allow-other"])
        os.chmod(job.directory, 0o755)
        if self.run_id(self.original) != "0":
            self.skipTest("/tmp is mounted nosuid itself")
        self.assertEqual(str(NOBODY), self.run_id(job.mirrored(0, self.original)))
        self.assertEqual(0o6755, stat.S_IMODE(os.stat(job.mirrored(0, f"{self.original}/id")).st_mode))

    def run_id(self, root):
        return self.run_program(*as_nobody(f"{root}/id", "-u")).stdout.decode().strip()

    def test_devices_are_none(self):
        os.mknod(f"{self.original}/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.chmod(f"{self.original}/null", 0o666)
        job = self.launch(nodes=1, trees=[self.original])
        with self.assertRaises(PermissionError):
            os.open(job.mirrored(0, f"{self.original}/null"), os.O_RDONLY)
