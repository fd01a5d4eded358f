"""What must hold over every real network filesystem: a client of it on each of two hosts, its servers 0.7 ms away."""

import functools
import os
import pathlib
import shutil
import subprocess
import time
import unittest

from copper import NOBODY, REPOSITORY, as_nobody, wait_until
import file_history
import fuzz
from import_storm import Workload, package_tree
from test_mpirun import MOUNT, ClusterTestCase
import tree

SECONDS_MAX = 120
REST_SECONDS = 2.5  # a file that has not changed for so long is at rest, for any clock
ERROR_SECONDS = 2  # that an error is kept; then the filesystem is asked again
LARGE = 1900
# What a program sees of a directory: names, attributes, link texts, contents, extended attributes, errors.
LOOK = r"""
import errno, hashlib, os, stat, sys
root = os.fsencode(sys.argv[1])
for place, directories, files in os.walk(root):
    directories.sort()
    for name in sorted(directories + files):
        path = os.path.join(place, name)
        told = [path[len(root):]]
        try:
            said = os.lstat(path)
            told += [oct(said.st_mode), said.st_uid, said.st_gid, said.st_size, said.st_mtime_ns]
            if stat.S_ISLNK(said.st_mode):
                told.append(os.readlink(path))
            elif stat.S_ISREG(said.st_mode):
                told.append(hashlib.sha256(open(path, "rb").read()).hexdigest())
        except OSError as error:
            told.append(error.strerror)
        try:
            for name in sorted(os.listxattr(path, follow_symlinks=False)):
                told += [name, os.getxattr(path, name, follow_symlinks=False)]
        except OSError as error:
            told += [] if error.errno == errno.ENOTSUP else [error.strerror]  # the mirror lists none there
        print(*told)
"""


def skip_unless_installed(filesystem):
    if reason := filesystem.why_not():
        raise unittest.SkipTest(reason if filesystem.task == "test" else f"optional: {reason}")


class FilesystemTestCase(ClusterTestCase):
    count = 2
    filesystem = None  # a class of real_filesystems.py

    @classmethod
    def setUpClass(cls):
        skip_unless_installed(cls.filesystem)
        super().setUpClass()
        cls.source = f"{cls.hosts.directory}/served"
        os.mkdir(cls.source)
        cls.fill()
        cls.remote = cls.filesystem(cls.hosts, cls.source).__enter__()
        cls.addClassCleanup(cls.remote.close)
        cls.tree = cls.remote.point

    def setUp(self):
        super().setUp()
        self.addCleanup(self.remote.unmount_all)
        self.remote.mount_all()

    def look(self, host, root):
        return self.hosts.check(host, "/usr/bin/python3", "-c", LOOK, root).splitlines()

    def check_looks(self, directory, least):
        """As it does directly, `least` names."""
        expected = self.look("cn0", f"{self.tree}/{directory}")
        self.assertLessEqual(least, len(expected))
        self.launch_well()
        for host in self.hosts.names:
            self.assertEqual(expected, [line.replace(MOUNT, "") for line in self.look(host, f"{MOUNT}{self.tree}/{directory}")])
        self.stop_well()

    def counted(self, action):
        before = self.remote.counters()
        action()
        return self.remote.counters() - before


class TreeCases(FilesystemTestCase):
    @classmethod
    def fill(cls):
        tree.build(f"{cls.source}/nasty")
        os.mkdir(f"{cls.source}/large")
        for number in range(20):
            os.makedirs(f"{cls.source}/numbered/d{number}")
            for name in range(10):
                pathlib.Path(cls.source, "numbered", f"d{number}", f"file-{name}").touch()
        for number in range(LARGE):
            pathlib.Path(cls.source, "large", f"file.{number:04}").touch()
        for job in ("refreshed", "revalidated"):
            for name in ("kept", "replaced", "rewritten", "removed", "d/replaced"):
                file = pathlib.Path(cls.source, job, name)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("old", encoding="utf-8")
        os.mkdir(f"{cls.source}/rewritten")
        for name in ("unknown", "looked-up", "read"):
            pathlib.Path(cls.source, "rewritten", name).write_bytes(file_history.content_of(1))
        for number in range(4):
            os.makedirs(f"{cls.source}/emptied/{number}")
            pathlib.Path(cls.source, "emptied", str(number), "file").write_text("old\n")

    def test_it_looks_as_it_does_directly(self):
        self.check_looks("nasty", least=100)

    def test_no_host_makes_a_mount_point_for_all(self):
        done = self.launch(None, "--mount", f"{self.tree}/absent")
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertIn(f"{self.tree}/absent: does not exist, and {self.tree} lies on a shared filesystem", done.stderr)

    def test_files_have_numbers_of_their_own_on_all_hosts(self):
        self.launch_well()
        place = f"{MOUNT}{self.tree}/numbered"
        told = {}
        for host in (*self.hosts.names, "cn0"):
            told[host] = self.hosts.check(host, "find", place, "-printf", "%i %P\\n")
            self.assertEqual(told["cn0"], told[host])
            for mount in (MOUNT, self.tree):
                self.hosts.check(host, "mount", "-i", "-o", "remount,ro", mount)  # the kernel drops its names and inodes
        numbers = [line.split()[0] for line in told["cn0"].splitlines()]
        self.assertEqual(len(numbers), len(set(numbers)), "different files are different")
        self.assertEqual(1 + 20 * 11, len(numbers))
        self.stop_well()

    def test_one_stat_asks_for_one_name(self):
        path = f"{self.tree}/large/file.1234"
        direct = self.counted(lambda: self.hosts.check("cn0", "stat", path))
        self.launch_well()
        mirrored = self.counted(lambda: self.hosts.check("cn1", "stat", MOUNT + path))
        self.assertLessEqual(mirrored[self.remote.LOOKUP], direct[self.remote.LOOKUP] + 2, mirrored)
        self.stop_well()

    def texts(self, directory):
        """All files below, by name, on each host."""
        program = 'cd "$1" && find . -type f | sort | while read -r file; do echo "$file: $(cat "$file")"; done'
        return [self.hosts.run(host, "sh", "-c", program, "sh", directory).stdout for host in self.hosts.names]

    def check_changed(self, job, refresh):
        """Each kind of change, once the hosts see it directly, is in the mirror after `refresh`."""
        mirrored = f"{MOUNT}{self.tree}/{job}"
        before = self.texts(mirrored)
        self.assertEqual(self.texts(f"{self.tree}/{job}"), before)
        with self.remote.writable() as place:
            self.remote.far.output("sh", "-ec", f"""cd {place}/{job}
                for name in replaced d/replaced; do echo another >$name.new; mv $name.new $name; done
                echo 'other bytes' >rewritten; rm removed; mkdir late; echo late >late/file""")
            now = "./d/replaced: another\n./kept: old\n./late/file: late\n./replaced: another\n./rewritten: other bytes\n"
            expected = [now for _ in self.hosts.names]
            wait_until(lambda: self.texts(f"{self.tree}/{job}") == expected, SECONDS_MAX, "the changes on all hosts")
        refresh(lambda: self.texts(mirrored) == expected)
        self.assertEqual(expected, self.texts(mirrored))
        self.stop_well()

    def test_refreshed(self):
        def refresh(_):
            self.hosts.check("cn1", "copper", "refresh", f"{self.tree}/refreshed")
        self.launch_well()
        self.check_changed("refreshed", refresh)

    def test_revalidated(self):
        def wait(is_there):
            wait_until(is_there, SECONDS_MAX, "the changes in the mirror of all hosts")
        self.launch_well("--revalidate", "1")
        self.check_changed("revalidated", wait)

    def check_rewritten(self, name, looked_up_by=(), read_by=()):
        """While it is rewritten in place, both hosts read a file through the mirror. See file_history.py for what is right."""
        name = f"rewritten/{name}"
        program = ["/usr/bin/python3", shutil.copy(file_history.__file__, self.hosts.directory)]  # the repository may be in /tmp
        mirrored = f"{MOUNT}{self.tree}/{name}"

        def found(root):
            answers = [self.hosts.check(host, *program, "read", f"{root}{self.tree}/{name}", "0") for host in self.hosts.names]
            return [answer.strip().partition(" ")[2] for answer in answers]
        with self.remote.writable() as place:
            path = f"{place}/{name}"
            self.assertEqual(["1"] * 2, found(""))
            time.sleep(REST_SECONDS)
            self.launch_well()
            for host in looked_up_by:
                self.hosts.check(host, "stat", mirrored)
            for host in read_by:
                self.hosts.check(host, "cat", mirrored)
            reads = [functools.partial(self.hosts.start, host, *program, "read", mirrored) for host in self.hosts.names]

            def write(word):
                return self.remote.far.start(*program, "write", path, word, stdout=subprocess.PIPE, text=True)
            def is_rest(begin, end):
                """The clock that stamps changes has ticked meanwhile. A fine one ticks between any two blocks."""
                return not self.remote.stamps_whole_seconds or int(begin) != int(end)
            wrong, rests = file_history.rewrite_while_read(write, reads, is_rest)
            self.assertEqual([set()] * 2, wrong)
            wait_until(lambda: found("") == [str(file_history.LAST)] * 2, SECONDS_MAX, "the last version on all hosts")
        time.sleep(REST_SECONDS)
        snapshot = found(MOUNT)
        self.assertEqual(1, len(set(snapshot)), snapshot)
        if read_by:
            self.assertEqual("1", snapshot[0])
        else:
            self.assertTrue(snapshot[0].isdigit() or snapshot[0] in rests, snapshot)
        self.assertEqual(snapshot, found(MOUNT))
        self.stop_well()

    def test_empty_for_a_moment(self):
        """While it is rewritten, as a look at it shows, but not for longer: some clients keep attributes (sshfs)."""
        if not self.remote.stamps_whole_seconds:
            self.skipTest("optional: the clock of its stamps is fine, so a file that is empty for a moment is at rest")
        self.launch_well()
        with self.remote.writable() as place:
            for number in range(4):
                time.sleep((0.25 - time.time()) % 1)  # the clock does not tick meanwhile
                writer = self.remote.far.start("sh", "-ec", f"cd {place}/emptied/{number}; : >file; sleep 0.15; echo new >file")
                told = self.hosts.run("cn1", "sh", "-c", f"sleep 0.03; cat {MOUNT}{self.tree}/emptied/{number}/file")
                self.assertEqual(0, writer.wait())
                self.assertNotEqual("", told.stdout + told.stderr)
        self.stop_well()

    def test_rewritten_in_place(self):
        self.check_rewritten("unknown")

    def test_rewritten_in_place_after_one_host_had_looked_it_up(self):
        self.check_rewritten("looked-up", looked_up_by=["cn1"])

    def test_rewritten_in_place_after_one_host_had_read_it(self):
        self.check_rewritten("read", read_by=["cn1"])


class QuotaCases(FilesystemTestCase):
    @classmethod
    def fill(cls):
        os.mkdir(f"{cls.source}/limited")
        for number in range(10):
            pathlib.Path(cls.source, "limited", f"file-{number}").write_bytes(os.urandom(1000))

    def test_a_directory_over_its_quota(self):
        with self.remote.writable() as place:
            directory = f"{place}/limited"
            self.remote.limit(directory)
            more = self.remote.far.inside("sh", "-c", f"head -c 100000 /dev/zero >{directory}/more-$$ && sync -f {directory}")
            wait_until(lambda: subprocess.run(more, capture_output=True, check=False).returncode != 0, SECONDS_MAX, "the quota")
        self.check_looks("limited", least=10)


class CallCases(FilesystemTestCase):
    """System calls by seed answer as on a read-only bind mount of the client's. COPPER_REALFS_SEEDS: how many trees."""

    count = 1
    users = ("root", "nobody")
    SEEDS = range(1, 1 + int(os.environ.get("COPPER_REALFS_SEEDS", "5")))

    @classmethod
    def fill(cls):
        os.mkdir(f"{cls.source}/fuzz")
        fuzz.make_trees(f"{cls.source}/fuzz", cls.SEEDS)

    def test_they_answer_as_directly(self):
        # The repository may lie in /tmp, of which each host has its own.
        place = pathlib.Path(self.hosts.directory, "repository")
        for name in ("fidelity", "support"):
            shutil.copytree(REPOSITORY / "tests" / name, place / "tests" / name)
        for program, folder in (("copper", "tools"), ("copperd", "daemon")):
            (place / "build" / folder).mkdir(parents=True)
            (place / "build" / folder / program).symlink_to(f"{self.hosts.directory}/bin/{program}")
        for user in self.users:
            with self.subTest(user):
                self.hosts.check("cn0", "/usr/bin/python3", place / "tests/fidelity/fuzz.py", "--user", user, "--first", self.SEEDS.start,
                                 "--seeds", len(self.SEEDS), "--calls", "1000", "--made", f"{self.tree}/fuzz",
                                 seconds=SECONDS_MAX * len(self.SEEDS))


class AclCases(FilesystemTestCase):
    """What an access control list denies or admits directly, it denies or admits in a mirror for all users."""

    ACLS = {"denies": ("0644", f"u:{NOBODY}:-"), "denies-group": ("0644", f"g:{NOBODY}:-"), "admits": ("0640", f"u:{NOBODY}:r"),
            "none": ("0644", None), "nothing": ("0600", None)}
    ADMITTED = {"admits", "none"}

    @classmethod
    def fill(cls):
        os.mkdir(f"{cls.source}/acls")
        for name in cls.ACLS:
            pathlib.Path(cls.source, "acls", name).write_text(name, encoding="utf-8")

    def admitted(self, root):
        """The files that another user may read, the same on all hosts."""
        found = [{name for name in self.ACLS if self.hosts.run(host, *as_nobody("cat", f"{root}{self.tree}/acls/{name}")).returncode == 0}
                 for host in self.hosts.names]
        self.assertEqual(found[0], found[1])
        return found[0]

    def test_they_hold_for_every_user(self):
        with self.remote.writable() as place:
            for name, (mode, acl) in self.ACLS.items():
                self.remote.far.output("chmod", mode, f"{place}/acls/{name}")
                if acl:
                    self.remote.far.output("setfacl", "-m", acl, f"{place}/acls/{name}")
        self.assertEqual(self.ADMITTED, self.admitted(""), "directly")
        self.launch_well("--allow-other")
        self.assertEqual(self.ADMITTED, self.admitted(MOUNT))
        self.stop_well()


class ImportCases(FilesystemTestCase):
    compared = ""  # for find

    @classmethod
    def fill(cls):
        package = package_tree("numpy")
        os.mkdir(f"{cls.source}/site")
        subprocess.run(["cp", "-a", f"{package}/numpy", f"{cls.source}/site"], check=True)

    def start_imports(self):
        workload = Workload(packages=["numpy"], trees=[f"{self.tree}/site"])
        return self.hosts.start_imports(workload, MOUNT, self.hosts.names, processes=2)

    def imports_under_way(self):
        """In a new job."""
        self.launch_well()
        before = self.remote.counters()
        running = self.start_imports()
        wait_until(lambda: (self.remote.counters() - before).total() > 100, SECONDS_MAX, "the imports")
        return running

    def test_each_file_is_opened_once(self):
        self.launch_well()
        counted = self.counted(lambda: self.end_imports(self.start_imports()))
        opened = self.stats()["totals"]["backing"]["file_opens"]
        self.assertLess(100, opened)
        if self.remote.opens_some_files_itself:
            self.assertGreaterEqual(opened, counted["open"])
        else:
            self.assertEqual(opened, counted["open"])
        self.assertEqual({}, self.counted(lambda: self.end_imports(self.start_imports())), "all is there")
        self.stop_well()

    def test_what_was_fetched_ahead_needs_no_request(self):
        self.launch_well()
        self.hosts.check("cn0", "copper", "prefetch", "--wait", self.tree)
        self.assertEqual({}, self.counted(lambda: self.end_imports(self.start_imports())))
        self.stop_well()

    def test_imports_in_a_row(self):
        """Each in a job of its own, with clients that know nothing yet. COPPER_REALFS_JOBS: how many."""
        for number in range(int(os.environ.get("COPPER_REALFS_JOBS", "2"))):
            with self.subTest(number):
                self.remote.unmount_all()
                self.remote.mount_all()
                self.launch_well()
                self.end_imports(self.start_imports())
                self.stop_well()

    def test_servers_that_are_killed_and_come_back(self):
        running = self.imports_under_way()
        self.remote.kill()
        if self.remote.fails_without_server:  # as directly; nothing waits, and nothing of it stays
            for process in running:
                process.communicate(timeout=SECONDS_MAX)
        self.remote.start()
        if not self.remote.fails_without_server:
            self.end_imports(running)
        for host in self.hosts.names:
            wait_until(lambda host=host: self.hosts.run(host, "ls", self.tree).returncode == 0, SECONDS_MAX, f"the client of {host}")
        time.sleep(ERROR_SECONDS)
        self.check_files()
        self.stop_well()

    def check_files(self):
        compare = (f"cd {self.source}/site && find . -type f {self.compared} -exec cmp {{}} {MOUNT}{self.tree}/site/{{}} ';' "
                   "2>&1")
        for host in self.hosts.names:
            self.assertEqual("", self.hosts.check(host, "sh", "-c", compare))

    def test_a_client_that_was_killed_before_the_launch(self):
        self.hosts.check("cn1", "stat", self.tree)  # the kernel knows its attributes
        self.remote.kill_client("cn1")
        done = self.launch()
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertRegex(done.stderr, f"cn1: .*{self.tree}: Transport endpoint is not connected")

    def test_a_client_that_was_unmounted_before_the_launch(self):
        self.remote.unmount("cn1")
        self.launch_well()
        self.end_imports(self.start_imports())
        self.stop_well()

    def test_a_client_that_stands_still_before_the_launch(self):
        self.remote.stop_client("cn1")
        try:
            self.launch_well()
            self.end_imports(self.start_imports())
        finally:
            self.remote.continue_client("cn1")
        self.stop_well()

    def test_a_client_that_is_killed(self):
        running = self.imports_under_way()
        self.remote.kill_client("cn1")
        self.end_imports(running)
        self.stop_well()

    def test_a_client_that_is_unmounted(self):
        running = self.imports_under_way()
        self.remote.unmount("cn1")
        self.end_imports(running)
        self.stop_well()

    def test_a_client_that_stands_still(self):
        running = self.imports_under_way()
        self.remote.stop_client("cn1")
        try:
            self.end_imports(running)
        finally:
            self.remote.continue_client("cn1")
        self.check_files()
        self.stop_well()
