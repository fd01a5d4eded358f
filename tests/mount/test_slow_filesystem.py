"""The emulated parallel filesystem of bench/storm: what it counts, what its clients keep, and how long it takes."""

import compileall
import gzip
import json
import mmap
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

from copper import REPOSITORY, build_directory, clean_environment, mounts_below, nice_values
from slow_filesystem import program
from slow_mounted import SlowTestCase

STORM = REPOSITORY / "bench" / "storm"


class Emulated(SlowTestCase):
    FILES = 10

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.make_directory()
        for number in range(cls.FILES):
            pathlib.Path(cls.source, f"file-{number}").write_bytes(bytes([number]) * 1000)
        os.mkdir(f"{cls.source}/below")
        os.symlink("file-0", f"{cls.source}/relative")
        os.symlink(f"{cls.source}/file-1", f"{cls.source}/absolute")

    def counted(self, slow, action):
        """What an action costs, by kind."""
        before = slow.counters()
        action()
        return dict(slow.counters() - before)

    def test_a_client_asks_once_and_keeps_the_answer(self):
        slow = self.serve()
        shown = slow.mount()
        os.stat(shown)

        def stat_files():
            for number in range(self.FILES):
                os.stat(f"{shown}/file-{number}")

        def absent():
            for number in range(self.FILES):
                self.assertFalse(os.path.lexists(f"{shown}/absent-{number}"))

        def read():
            content = pathlib.Path(f"{shown}/file-3").read_bytes()
            self.assertEqual(b"\3" * 1000, content)

        def names():
            self.assertEqual(sorted(os.listdir(self.source)), sorted(os.listdir(shown)))
        self.assertEqual({"lookup": self.FILES}, self.counted(slow, stat_files))
        self.assertEqual({}, self.counted(slow, stat_files))
        self.assertEqual({"lookup": self.FILES}, self.counted(slow, absent))
        self.assertEqual({}, self.counted(slow, absent))
        # A listing brings no attributes. Each opening is asked for, whatever the client holds.
        self.assertEqual({"opendir": 1, "readdir": 1}, self.counted(slow, names))
        self.assertEqual({"opendir": 1}, self.counted(slow, names))
        self.assertEqual({"lookup": 1}, self.counted(slow, lambda: os.stat(f"{shown}/below")))
        self.assertEqual({"open": 1, "read": 1, "bytes_read": 1000}, self.counted(slow, read))
        self.assertEqual({"open": 1}, self.counted(slow, read))
        self.assertEqual({"lookup": 1, "readlink": 1}, self.counted(slow, lambda: os.readlink(f"{shown}/relative")))
        self.assertEqual({}, self.counted(slow, lambda: os.readlink(f"{shown}/relative")))
        self.assertEqual({"listxattr": 1}, self.counted(slow, lambda: os.listxattr(f"{shown}/file-0")))
        self.assertEqual({"listxattr": 1}, self.counted(slow, lambda: os.listxattr(f"{shown}/file-0")))
        # Another client knows none of it.
        other = slow.mount()
        self.assertEqual(1, self.counted(slow, lambda: os.stat(f"{other}/file-0"))["lookup"])

    def test_what_is_shown_is_the_source(self):
        shown = self.serve().mount()
        for number in range(self.FILES):
            one, other = (os.stat(f"{place}/file-{number}") for place in (self.source, shown))
            self.assertEqual((one.st_size, one.st_mtime_ns, one.st_mode), (other.st_size, other.st_mtime_ns, other.st_mode))
        self.assertEqual("file-0", os.readlink(f"{shown}/relative"))
        # As if the source were installed there.
        self.assertEqual(f"{shown}/file-1", os.readlink(f"{shown}/absolute"))
        self.assertEqual(len(f"{shown}/file-1"), os.lstat(f"{shown}/absolute").st_size)
        with self.assertRaises(OSError):
            open(f"{shown}/new", "xb")

    def test_requests_of_one_client_wait_at_the_same_time(self):
        names, latency = 16, 0.2
        slow = self.serve(f"metadata_latency_ms = {latency * 1e3}\n")
        shown = slow.mount()
        os.stat(shown)
        lookups = [threading.Thread(target=os.path.lexists, args=(f"{shown}/absent-{number}",)) for number in range(names)]
        started = time.monotonic()
        for lookup in lookups:
            lookup.start()
        for lookup in lookups:
            lookup.join()
        seconds = time.monotonic() - started
        self.assertGreaterEqual(seconds, latency)
        self.assertLess(seconds, names * latency / 2)

    def test_clients_share_the_servers(self):
        rate, names = 50, 10
        slow = self.serve(f"metadata_operations_per_second = {rate}\n")
        clients = [slow.mount() for _ in range(2)]

        def ask(shown):
            for number in range(names):
                os.path.lexists(f"{shown}/absent-{number}")
        started = time.monotonic()
        asking = [threading.Thread(target=ask, args=(shown,)) for shown in clients]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        self.assertGreaterEqual(time.monotonic() - started, (len(clients) * names - 1) / rate)

    def test_bytes_take_their_time(self):
        """To one client, and to two together."""
        size = sum(len(pathlib.Path(self.source, f"file-{number}").read_bytes()) for number in range(self.FILES))
        for key, clients in (("client_bytes_per_second", 1), ("total_bytes_per_second", 2)):
            slow = self.serve(f"{key} = {size * clients * 2}\n")
            shown = [slow.mount() for _ in range(clients)]
            started = time.monotonic()
            for root in shown:
                for number in range(self.FILES):
                    pathlib.Path(root, f"file-{number}").read_bytes()
            with self.subTest(key):
                self.assertGreaterEqual(time.monotonic() - started, 0.5)

    def test_nonsense_is_refused(self):
        directory = self.make_directory()
        model = f"{directory}/model.toml"
        pathlib.Path(model).write_text("metadata_latency_ms = -1\n", encoding="utf-8")
        os.mkdir(f"{directory}/m")
        shared = ("--shared", f"{directory}/shared")
        for words, code, says in (
                ((self.source, f"{directory}/m", *shared, "--model", model), 1, 'metadata_latency_ms": must be'),
                ((self.source, f"{directory}/m", *shared, "--model", "no-such"), 1, "the presets are fast"),
                ((f"{directory}/none", f"{directory}/m", *shared), 1, f"source {directory}/none"),
                ((self.source, f"{directory}/none", *shared), 1, f"mount point {directory}/none"),
                ((self.source, directory, *shared), 1, "is not empty"),
                ((self.source,), 2, "--shared"),
                (("--counters", f"{directory}/none"), 1, f"{directory}/none")):
            with self.subTest(words):
                done = self.run_program(program(), *words, expected=code)
                self.assertIn(says, done.stderr.decode())
        self.assertEqual([], mounts_below(directory))


class Mirrored(SlowTestCase):
    """Copper on a slow filesystem: what it asks for, and that it waits for many things at the same time."""

    FILES = 24
    LATENCY = 0.1

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.make_directory()
        for number in range(cls.FILES):
            for name in (f"file.{number:02}", f"module-{number:02}.pyc"):
                pathlib.Path(cls.source, name).write_bytes(bytes([number]) * 1000)

    def setUp(self):
        super().setUp()
        self.slow = self.serve(f"metadata_latency_ms = {self.LATENCY * 1e3}\n")
        self.original = self.slow.mount()
        self.job = self.launch(nodes=2, trees=[self.original], options=["--readers", "1"])
        self.shown = self.job.mirrored(self.job.other_than_reader(), self.original)
        os.listdir(self.shown)

    def counted(self, action):
        before = self.slow.counters()
        started = time.monotonic()
        action()
        seconds = time.monotonic() - started
        return dict(self.slow.counters() - before), seconds

    def test_attributes_come_for_what_is_asked(self):
        def look_up(count):
            for number in range(count):
                self.assertEqual(1000, os.stat(f"{self.shown}/file.{10 * number:02}").st_size)
                self.assertFalse(os.path.lexists(f"{self.shown}/absent-{number}"))
        # (The suffixes differ, so none is fetched for another one's sake.)
        self.assertEqual({"lookup": 2}, self.counted(lambda: look_up(2))[0])
        self.assertEqual({}, self.counted(lambda: look_up(2))[0])
        self.assertEqual({}, self.counted(lambda: os.listdir(self.shown))[0])

    def test_lookups_in_a_directory_wait_at_the_same_time(self):
        def look_up():
            threads = [threading.Thread(target=os.stat, args=(f"{self.shown}/file.{number:02}",))
                       for number in range(self.FILES)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertLess(self.counted(look_up)[1], self.FILES * self.LATENCY / 2)

    def test_threads_that_read_let_those_that_answer_go_first(self):
        os.stat(f"{self.shown}/file.00")
        readers = 0
        for daemon in self.job.daemons():
            own, *others = nice_values(daemon)
            readers += others.count(min(own + 10, 19))  # nothing is lower than 19
        self.assertLessEqual(1, readers)

    def test_what_lies_beside_a_file_that_is_read_is_fetched_with_it(self):
        def read():
            for number in ((11 * turn) % self.FILES for turn in range(self.FILES)):  # in no order, as an import does
                self.assertEqual(bytes([number]) * 1000, pathlib.Path(self.shown, f"module-{number:02}.pyc").read_bytes())
        counts, seconds = self.counted(read)
        self.assertEqual({"lookup": self.FILES, "open": self.FILES, "read": self.FILES, "bytes_read": 1000 * self.FILES},
                         counts, self.job.totals())
        self.assertLess(seconds, 2 * self.FILES * self.LATENCY / 2)
        totals = self.job.totals()["fuse"]
        self.assertLess(self.FILES / 2, totals["siblings_used"])
        self.assertLessEqual(totals["siblings_used"], totals["siblings_fetched"])


class ClientsOfOtherMake(SlowTestCase):
    """They open directories without asking a server, and some look up one name at a time in a directory."""

    FILES = 1900
    LATENCY_MS = 2
    SERIAL = "is_serial = 1\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.make_directory()
        for directory, files in (("large", cls.FILES), ("small", 200)):
            os.mkdir(f"{cls.source}/{directory}")
            for number in range(files):
                pathlib.Path(cls.source, directory, f"file.{number:04}").touch()

    def mirror(self, client, latency_ms=LATENCY_MS):
        slow = self.serve(f"metadata_latency_ms = {latency_ms}\nopens_directories_itself = 1\n" + client)
        original = slow.mount()
        return slow, original, self.launch(nodes=2, trees=[original])

    def test_one_stat_asks_for_one_name(self):
        for client in ("", self.SERIAL):
            with self.subTest(client):
                slow, original, job = self.mirror(client)
                os.stat(job.mirrored(1, f"{original}/large/file.1234"))
                self.assertEqual(2, slow.counters()["lookup"])

    def test_status_tells_the_pace(self):
        latency_ms = 20  # much more than the answers of many lookups at once take on a busy machine
        for client in ("", self.SERIAL):
            with self.subTest(client):
                _, original, job = self.mirror(client, latency_ms)
                directory = job.mirrored(1, f"{original}/small")
                for number in range(0, 200, 10):
                    os.stat(f"{directory}/file.{number:04}")
                for name in sorted(os.listdir(directory)):
                    os.stat(f"{directory}/{name}")
                told = re.search(rf"  {original} takes ([\d.]+) ms for an operation(.*)\n", job.status())
                self.assertLessEqual(latency_ms, float(told[1]))
                self.assertEqual(", and looks up one name at a time in a directory" if client else "", told[2])

    def test_a_list_with_attributes_asks_for_each_name_once(self):
        for client in ("", self.SERIAL):
            with self.subTest(client):
                slow, original, job = self.mirror(client)
                for node in range(2):
                    directory = job.mirrored(node, f"{original}/large")
                    for name in sorted(os.listdir(directory)):
                        os.stat(f"{directory}/{name}")
                self.assertEqual(self.FILES + 1, slow.counters()["lookup"])


class Crowd(SlowTestCase):
    """More programs than the filesystem serves within two deadlines."""

    # So few names in a directory that no batch of attributes is read: one read is one operation.
    NODES, PROGRAMS, NAMES, DIRECTORIES = 4, 1600, 1600, 320
    RATE = 100

    def test_a_queue_is_not_slowness(self):
        self.source = self.make_directory()
        names = [f"d{number % self.DIRECTORIES}/name.{number}" for number in range(self.NAMES)]
        for number in range(self.DIRECTORIES):
            os.mkdir(f"{self.source}/d{number}")
        for name in names:
            pathlib.Path(self.source, name).touch()
        slow = self.serve(f"metadata_operations_per_second = {self.RATE}\n")
        original = slow.mount()
        job = self.launch(nodes=self.NODES, trees=[original])
        programs = self.PROGRAMS // self.NODES
        script = ("import os, sys, threading\n"
                  "root, count, names = sys.argv[1], int(sys.argv[2]), sys.argv[3:]\n"
                  "run = lambda own: [os.stat(f'{root}/{name}') for name in own]\n"
                  "threads = [threading.Thread(target=run, args=(names[i::count],)) for i in range(count)]\n"
                  "[thread.start() for thread in threads]\n"
                  "[thread.join() for thread in threads]\n")
        before = slow.counters()
        running = [subprocess.Popen([sys.executable, "-c", script, job.mirrored(node, original), str(programs),
                                     *names[node::self.NODES]]) for node in range(self.NODES)]
        for process in running:
            self.assertEqual(0, process.wait(timeout=300))
        counts = slow.counters() - before
        totals = job.totals()
        self.assertEqual(0, totals["fabric"]["resignations"], totals)
        self.assertEqual(0, totals["fallbacks"]["direct_reads"], totals)
        # Each directory is looked up, opened and listed, and each name is looked up, once. Of two threads that wait for one
        # lookup, the second now and then sees the entry before its lifetime is set (Linux, fuse_lookup()), and asks again.
        self.assertLessEqual(counts["lookup"], 1.01 * (self.NAMES + self.DIRECTORIES), dict(counts))
        self.assertLessEqual(sum(counts[kind] for kind in ("lookup", "opendir", "readdir")),
                             self.NAMES + 4 * self.DIRECTORIES, dict(counts))


class CrowdInFewDirectories(Crowd):
    """Where attributes of many names are read in batches."""

    NAMES, DIRECTORIES, RATE = 4000, 40, 200


class WrittenAMomentAgo(SlowTestCase):
    """The server's clock stamps what is written, and nobody knows how late it is there."""

    BYTES = 4 << 20

    def test_is_read_once_all_the_same(self):
        self.source = self.make_directory()
        slow = self.serve(options=["--age", "0"])
        original = slow.mount()
        job = self.launch(nodes=2, trees=[original])
        path = pathlib.Path(self.source, "library.so")
        path.write_bytes(os.urandom(self.BYTES))
        time.sleep(0.3)  # by this node's clock it has settled
        for node in range(2):
            with open(job.mirrored(node, f"{original}/library.so"), "rb") as file, \
                    mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                for _ in range(3):
                    pages = [mapped[at:at + mmap.PAGESIZE] for at in range(0, self.BYTES, mmap.PAGESIZE)]
                    self.assertEqual(path.read_bytes(), b"".join(pages))
        counts = slow.counters()
        # After each extent, another opening shows whether the client has kept old attributes meanwhile.
        self.assertEqual(1 + (self.BYTES >> 20), counts["open"])
        # A busy kernel asks for a page twice now and then. The daemon reads an extent, or nothing.
        self.assertEqual(self.BYTES >> 20, counts["bytes_read"] >> 20)
        # The kernel keeps the pages, and asks for at least 128 KiB at a time.
        self.assertLessEqual(job.totals()["fuse"]["read"], 2 * self.BYTES // (128 << 10))


class Imported(SlowTestCase):
    """A module names what it imports: that is fetched at the same time."""

    MODULES = 12
    LATENCY = 0.1
    CODE = ("import os, sys; tree = sys.argv[1]; assert os.stat(tree + '/large/file.4321').st_size == 0; "
            "assert len(os.listdir(tree + '/large')) == 5000; sys.path.insert(0, tree); import many")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.make_directory()
        names = [f"part_{number}" for number in range(cls.MODULES)]
        os.mkdir(f"{cls.source}/many")
        for name in names:
            os.mkdir(f"{cls.source}/many/{name}")
            pathlib.Path(cls.source, "many", name, "__init__.py").write_text("value = 1\n", encoding="utf-8")
        pathlib.Path(cls.source, "many", "__init__.py").write_text(f"from . import {', '.join(names)}\n", encoding="utf-8")
        compileall.compile_dir(cls.source, quiet=1)
        os.mkdir(f"{cls.source}/large")
        for number in range(5000):
            pathlib.Path(cls.source, "large", f"file.{number:04}").touch()

    def test_what_a_module_imports_is_fetched_with_it(self):
        slow = self.serve(f"metadata_latency_ms = {self.LATENCY * 1e3}\n")
        original = slow.mount()
        job = self.launch(nodes=1, trees=[original])
        code = f"import sys; sys.path.insert(0, {job.mirrored(0, original)!r}); import many"
        started = time.monotonic()
        self.run_program(sys.executable, "-I", "-B", "-c", code)
        seconds = time.monotonic() - started
        fuse = job.totals()["fuse"]
        # One package after the other would take nine waits: for four attributes, two listings of two, and a file's opening.
        self.assertLess(seconds, 9 * self.MODULES * self.LATENCY / 2)
        self.assertEqual(self.MODULES, fuse["imports_fetched"])
        self.assertEqual(self.MODULES, fuse["imports_used"])

    def test_each_directory_and_file_is_read_once(self):
        latency = "metadata_latency_ms = 2\ndata_latency_ms = 2\n"
        for model in (latency, latency + "stall_share = 0.1\nstall_ms = 1000\n"):
            with self.subTest(model):
                slow = self.serve(model)
                original = slow.mount()
                job = self.launch(nodes=4, trees=[original])
                running = [subprocess.Popen([sys.executable, "-I", "-B", "-c", self.CODE, job.mirrored(node, original)],
                                            env=clean_environment()) for node in range(4)]
                self.assertEqual([0] * 4, [one.wait(timeout=60) for one in running])
                counts = slow.counters()
                # The tree, the large directory and, of "many" and each of its parts, the directory, that of the compiled code,
                # and this code.
                self.assertEqual((2 + 2 * (self.MODULES + 1), self.MODULES + 1), (counts["opendir"], counts["open"]),
                                 job.totals())


class LinkedLibraries(SlowTestCase):
    """A library names what it needs: that is fetched at the same time, from where the linker will look."""

    NEEDED = 4

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.make_directory()
        libraries = pathlib.Path(cls.source, "package.libs")  # as auditwheel lays them out
        libraries.mkdir()
        cls.extension = pathlib.Path("package", "core", "fast.so")
        pathlib.Path(cls.source, cls.extension).parent.mkdir(parents=True)
        needed = None
        for number in reversed(range(cls.NEEDED)):
            cls.link(libraries / f"libpart{number}.so", "$ORIGIN", libraries, needed)
            needed = f"part{number}"
        cls.link(pathlib.Path(cls.source, cls.extension), "$ORIGIN/../../package.libs", libraries, needed)

    @staticmethod
    def link(output, search_path, libraries, needed):
        words = ["-Wl,--no-as-needed", f"-l{needed}"] if needed else []
        subprocess.run(["gcc", "-x", "c", "/dev/null", "-shared", "-fPIC", "-o", str(output), f"-Wl,-rpath,{search_path}",
                        f"-L{libraries}", *words], check=True)

    def test_they_are_fetched_ahead(self):
        original = self.serve("metadata_latency_ms = 20\ndata_latency_ms = 20\n").mount()
        job = self.launch(nodes=1, trees=[original])
        extension = f"{job.mirrored(0, original)}/{self.extension}"
        self.run_program(sys.executable, "-I", "-c", f"import ctypes; ctypes.CDLL({extension!r})")
        fuse = job.totals()["fuse"]
        self.assertEqual((self.NEEDED, self.NEEDED), (fuse["libraries_fetched"], fuse["libraries_used"]))


class Storm(SlowTestCase):
    def storm(self, *words, expected=0):
        done = subprocess.run([STORM, *words], capture_output=True, text=True, timeout=500, check=False)
        self.assertEqual(expected, done.returncode, done.stderr)
        return done

    def test_a_recorded_import_can_be_simulated(self):
        path = f"{self.make_directory()}/trace.json.gz"
        self.storm("--record", path, "--packages", "json")
        with gzip.open(path) as file:
            trace = json.load(file)
        self.assertEqual("json", trace["package"])
        names = {f"{directory}/{name[0]}" for directory, names in trace["directories"].items() for name in names}
        asked = [(kind, name, found) for _, _, kind, name, found, _, _ in trace["requests"]]
        self.assertTrue([name for kind, name, _ in asked if kind == "read" and name.startswith("json/") and "decoder" in name])
        for kind, name, found in asked:
            if kind == "lookup":
                self.assertEqual(bool(found), f"{os.path.dirname(name) or '.'}/{os.path.basename(name)}" in names, name)

        def simulated(*words):
            done = subprocess.run([build_directory() / "bench" / "copper_scale", "--trace", path, "--nodes", "3", "--run", "replayed",
                                   *words], capture_output=True, text=True, check=True)
            return json.loads(done.stdout)
        self.assertEqual(0, simulated()["wrong"])
        self.assertLess(simulated("--cores", "1")["seconds"], simulated("--cores", "1", "--slowness", "3")["seconds"])

    def test_every_run_of_one_round(self):
        directory = self.make_directory()
        tools = f"{directory}/tools.toml"
        pathlib.Path(tools).write_text('[nothing]\nstart = "test -d $DIRECTORY"\nstop = "test -n \\"$TREES\\""\nprefix = ""\n',
                                       encoding="utf-8")
        done = self.storm("--model", "fast", "--rounds", "1", "--nodes", "2", "--procs", "1", "--packages", "generated",
                          "--runs", "direct,first,second,local,alone,direct-stat,stat,direct-list,list,nothing,replayed,mistaken",
                          "--tools", tools, "--json", f"{directory}/found.json")
        self.assertIn("Copper, first import", done.stdout)
        found = {row["run"]: row for row in json.loads(pathlib.Path(directory, "found.json").read_text(encoding="utf-8"))}
        opens = {name: row["operations"]["open"] for name, row in found.items()}
        self.assertGreater(opens["alone"], 2000)
        self.assertEqual(2 * opens["alone"], opens["direct"])
        self.assertEqual(2 * opens["alone"], opens["nothing"])
        self.assertEqual(0, opens["second"])
        for name in ("first", "replayed", "mistaken"):  # test_counts.py has exact counts
            with self.subTest(found[name]):
                self.assertGreaterEqual(opens[name], opens["alone"], "each file for the whole job")
                self.assertLess(opens[name], 1.01 * opens["alone"], "and once, unless a node looks slow on a busy machine")
        for name in ("direct", "first"):
            for used in ("program_seconds", "machine_seconds", "switches"):
                self.assertGreater(found[name][used], 0, f"{name}: {used}")
        self.assertGreater(found["stat"]["operations"]["lookup"], 0)
        for name in ("direct-list", "list"):
            self.assertGreaterEqual(found[name]["operations"]["lookup"], 100, "one for each package of the generated one")

    def test_bad_input(self):
        tools = f"{self.make_directory()}/tools.toml"
        for text, says in (("[other]\nstart = 'x'\nstop = 'y'\n", "other.prefix must be a text"),
                           ("[other]\nstart = 1\nstop = 'y'\nprefix = ''\n", "other.start must be a text"),
                           ("[other]\nbegin = 'x'\nstart = 'x'\nstop = 'y'\nprefix = ''\n", "other.begin: no such key"),
                           ("[other]\nstart = 'x'\nstop = 'y'\nprefix = '{rank}'\n", "other.prefix"),
                           ("other = 1\n", "'other' must be a table"), ("[", "tools.toml")):
            with self.subTest(text):
                pathlib.Path(tools).write_text(text, encoding="utf-8")
                self.assertIn(says, self.storm("--tools", tools, expected=1).stderr)
        self.assertIn("lunch", self.storm("--runs", "lunch", expected=2).stderr)
        self.assertIn("no-such-model", self.storm("--model", "no-such-model", "--packages", "generated", "--runs", "alone",
                                                  expected=1).stderr)
