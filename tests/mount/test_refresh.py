"""`copper refresh`: what lies at a path by now, on all nodes when it returns."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True

from copper import copper_program, state_of, wait_until
from mounted import MountTestCase
from slow_mounted import SlowTestCase

NODES = 2
SECONDS_MAX = 60


class RefreshTestCase(MountTestCase):
    def setUp(self):
        self.tree = self.make_directory()
        self.prepare_tree()
        self.job = self.launch(nodes=NODES, trees=[self.tree])

    def prepare_tree(self):
        os.mkdir(f"{self.tree}/d")
        for name in "abc":
            self.write(f"d/{name}", name)

    def write(self, name, text):
        """Another file under this name."""
        new = pathlib.Path(f"{self.tree}/{name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(f"{self.tree}/{name}")

    def mirrored(self, node, name=""):
        return self.job.mirrored(node, f"{self.tree}/{name}" if name else self.tree)

    def on_each_node(self, look):
        """What `look`, called with the tree's place in the mirror, returns; the same on all nodes."""
        found = [look(self.mirrored(node)) for node in range(NODES)]
        for other in found[1:]:
            self.assertEqual(found[0], other)
        return found[0]

    def texts(self, *names):
        return self.on_each_node(lambda tree: [pathlib.Path(f"{tree}/{name}").read_text(encoding="utf-8") for name in names])

    def names(self, directory="d"):
        return self.on_each_node(lambda tree: sorted(os.listdir(f"{tree}/{directory}")))

    def refresh(self, *names, expected=0):
        return self.refresh_paths(*(f"{self.tree}/{name}" for name in names), expected=expected)

    def refresh_paths(self, *paths, expected=0):
        done = self.job.command("refresh", "--mount", self.job.mount, *paths)
        self.assertEqual(expected, done.returncode, done.stderr)
        return done


class Refresh(RefreshTestCase):
    def test_another_file(self):
        self.assertEqual(["a", "b"], self.texts("d/a", "d/b"))
        self.write("d/a", "another one")
        self.write("d/b", "too")
        self.assertEqual(["a", "b"], self.texts("d/a", "d/b"))
        self.refresh("d/a")
        self.assertEqual(["another one", "b"], self.texts("d/a", "d/b"))
        self.refresh("d")
        self.assertEqual(["another one", "too"], self.texts("d/a", "d/b"))

    def test_the_same_file_with_other_bytes(self):
        self.assertEqual(["a"], self.texts("d/a"))
        for text in ("longer", "x", ""):
            pathlib.Path(f"{self.tree}/d/a").write_text(text, encoding="utf-8")
            self.refresh("d/a")
            self.assertEqual([text], self.texts("d/a"))

    def test_names(self):
        self.assertEqual(["a", "b", "c"], self.names())
        absent = self.on_each_node(lambda tree: os.path.lexists(f"{tree}/d/new"))
        os.unlink(f"{self.tree}/d/b")
        self.write("d/new", "new")
        self.assertEqual((False, ["a", "b", "c"]), (absent, self.names()))
        self.refresh("d")
        self.assertEqual(["a", "c", "new"], self.names())
        self.assertEqual(["new"], self.texts("d/new"))
        self.assertFalse(self.on_each_node(lambda tree: os.path.lexists(f"{tree}/d/b")))

    def test_a_name_alone(self):
        self.assertEqual([False, False], self.on_each_node(lambda tree: [os.path.lexists(f"{tree}/d/{name}") for name in ("new", "far")]))
        self.assertEqual(["a", "b", "c"], self.names())
        self.write("d/new", "new")
        self.refresh("d/new")
        self.assertEqual(["new"], self.texts("d/new"))
        self.assertEqual(["a", "b", "c", "new"], self.names())
        os.unlink(f"{self.tree}/d/new")
        self.refresh("d/new")
        self.assertFalse(self.on_each_node(lambda tree: os.path.lexists(f"{tree}/d/new")))
        self.assertEqual(["a", "b", "c"], self.names())

    def test_a_program_that_runs_sees_a_name_by_the_time_of_its_directory(self):
        """Like Python, which lists a directory again when its time of change is another one."""
        def stamps(tree, directory):
            return os.stat(f"{tree}/d").st_mtime_ns, os.fstat(directory).st_mtime_ns
        with contextlib.ExitStack() as stack:
            directories = {}
            for node in range(NODES):
                directories[node] = os.open(self.mirrored(node, "d"), os.O_RDONLY)
                stack.callback(os.close, directories[node])
            for name in ("new", "deep/er"):
                time.sleep(0.05)  # the clock of the filesystem ticks
                os.makedirs(f"{self.tree}/d/{name}")
                now = os.stat(f"{self.tree}/d").st_mtime_ns
                for node in range(NODES):
                    self.assertNotIn(now, stamps(self.mirrored(node), directories[node]))
                self.refresh(f"d/{name}")
                for node in range(NODES):
                    self.assertEqual((now, now), stamps(self.mirrored(node), directories[node]))
        self.assertEqual(["a", "b", "c", "deep", "new"], self.names())

    def test_below_a_directory_that_was_not_there(self):
        self.assertFalse(self.on_each_node(lambda tree: os.path.lexists(f"{tree}/d/deep")))
        os.makedirs(f"{self.tree}/d/deep/er")
        self.write("d/deep/er/file", "text")
        self.refresh("d/deep/er/file")
        self.assertEqual(["text"], self.texts("d/deep/er/file"))

    def test_links_and_attributes(self):
        os.symlink("a", f"{self.tree}/link")
        self.refresh()
        look = lambda tree: (os.readlink(f"{tree}/link"), pathlib.Path(f"{tree}/link").read_text(encoding="utf-8"),
                             oct(os.stat(f"{tree}/d/a").st_mode), os.stat(f"{tree}/d").st_mtime_ns)
        os.unlink(f"{self.tree}/link")
        os.symlink("d/a", f"{self.tree}/link")
        self.refresh("link")
        before = self.on_each_node(look)
        os.unlink(f"{self.tree}/link")
        os.symlink("d/b", f"{self.tree}/link")
        os.chmod(f"{self.tree}/d/a", 0o600)
        os.utime(f"{self.tree}/d", ns=(1, 1))
        self.assertEqual(before, self.on_each_node(look))
        self.refresh("")
        self.assertEqual(("d/b", "b", "0o100600", 1), self.on_each_node(look))

    def test_a_file_instead_of_a_directory_and_back(self):
        self.assertEqual(["a", "b", "c"], self.names())
        os.rename(f"{self.tree}/d", f"{self.tree}/away")
        self.write("d", "a file")
        self.refresh("d")
        self.assertEqual(["a file"], self.texts("d"))
        os.unlink(f"{self.tree}/d")
        os.rename(f"{self.tree}/away", f"{self.tree}/d")
        self.refresh("d")
        self.assertEqual(["a", "b", "c"], self.names())

    def test_what_is_open_stays(self):
        with contextlib.ExitStack() as files:
            opened = [files.enter_context(open(self.mirrored(node, "d/a"), encoding="utf-8")) for node in range(NODES)]
            size = [os.fstat(file.fileno()).st_size for file in opened]
            self.texts("d/a")
            self.write("d/a", "another one")
            self.refresh("d/a")
            self.assertEqual(["another one"], self.texts("d/a"))
            self.assertEqual((["a"] * NODES, [1] * NODES), ([file.read() for file in opened], size))
            self.assertEqual([1] * NODES, [os.fstat(file.fileno()).st_size for file in opened])

    def test_everything(self):
        self.texts("d/a", "d/b")
        self.write("d/a", "new")
        self.refresh_paths()
        self.assertEqual(["new", "b"], self.texts("d/a", "d/b"))

    def test_what_is_unchanged_is_not_read_again(self):
        self.texts("d/a", "d/b")
        before = self.job.totals()
        self.refresh("")
        self.texts("d/a", "d/b")
        after = self.job.totals()
        self.assertEqual((before["backing"]["file_opens"], before["backing"]["bytes"]),
                         (after["backing"]["file_opens"], after["backing"]["bytes"]))
        self.assertGreater(after["fuse"]["lookup"], before["fuse"]["lookup"])
        self.texts("d/a", "d/b")
        again = self.job.totals()
        for kind in ("lookup", "getattr"):
            self.assertEqual(after["fuse"][kind], again["fuse"][kind], f"a repeated {kind} costs nothing")

    def test_what_is_in_use_and_unchanged_stays_in_memory(self):
        def reads_after_a_refresh():
            with open(self.mirrored(0, "d/a"), "rb") as file:
                file.read()
                before = self.job.totals()["fuse"]["read"]
                self.refresh("")
                self.assertEqual(b"a", pathlib.Path(self.mirrored(0, "d/a")).read_bytes())
                return self.job.totals()["fuse"]["read"] - before
        # The kernel may drop the page for a reason of its own, so one run of five must do.
        self.assertEqual(0, min(reads_after_a_refresh() for _ in range(5)))

    def test_messages(self):
        """Two for each other node, and what the statistics cost."""
        self.texts("d/a")
        first, second = self.messages(), self.messages()
        self.refresh("d/a")
        self.assertEqual(2 * (NODES - 1), self.messages() - second - (second - first))

    def messages(self):
        return sum(node["fabric"]["messages_sent"] for node in self.job.stats()["per_node"])

    def test_a_program_keeps_its_directory(self):
        program = "import os, sys; sys.stdin.read(1); print(os.getcwd(), sorted(os.listdir('.')), open('a').read(), flush=True)"
        for directory in ("d", ""):
            here = self.mirrored(0, directory)
            with subprocess.Popen([sys.executable, "-c", program], cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
                os.stat(f"{here}/d" if not directory else here)
                self.write(f"{directory}/a", f"new in {directory}")
                self.refresh(directory)
                said = child.communicate(b"x", timeout=SECONDS_MAX)[0].decode()
            self.assertTrue(said.startswith(here + " ["), said)
            self.assertTrue(said.endswith(f"new in {directory}\n"), said)

    def test_two_at_once_and_again(self):
        self.texts("d/a", "d/b")
        for number in range(10):
            self.write("d/a", f"a {number}")
            self.write("d/b", f"b {number}")
            both = [threading.Thread(target=self.refresh, args=(f"d/{name}",)) for name in "ab"]
            for one in both:
                one.start()
            for one in both:
                one.join()
            self.assertEqual([f"a {number}", f"b {number}"], self.texts("d/a", "d/b"))

    def test_many_one_after_the_other(self):
        for number in range(100):
            self.write(f"d/{number}", "old")
        self.refresh("d")
        self.texts(*(f"d/{number}" for number in range(100)))
        for number in range(100):
            self.write(f"d/{number}", "new")
            self.refresh(f"d/{number}")
        self.assertEqual(["new"] * 100, self.texts(*(f"d/{number}" for number in range(100))))

    def test_paths_of_all_kinds(self):
        os.symlink("d", f"{self.tree}/link")
        self.refresh("")
        for number, path in enumerate([f"{self.tree}/link/a", self.mirrored(1, "d/a"), f"{self.tree}/d/../d/./a", f"{self.tree}/link/"]):
            self.texts("d/a")
            self.write("d/a", str(number))
            self.refresh_paths(path)
            self.assertEqual([str(number)], self.texts("d/a"))

    def test_a_link_on_the_way_that_leads_elsewhere(self):
        for version in ("v1", "v2"):
            os.mkdir(f"{self.tree}/{version}")
            self.write(f"{version}/tool", version)
        os.symlink("v1", f"{self.tree}/current")
        self.refresh()
        self.assertEqual(["v1"], self.texts("current/tool"))
        os.unlink(f"{self.tree}/current")
        os.symlink("v2", f"{self.tree}/current")
        self.refresh("current/tool")
        self.assertEqual(["v2"], self.texts("current/tool"))

    def test_a_directory_that_only_some_nodes_know(self):
        self.assertFalse(os.path.lexists(self.mirrored(1, "d/deep")))
        os.mkdir(f"{self.tree}/d/deep")
        self.write("d/deep/f", "f")
        self.refresh("d/a")
        self.assertEqual("f", pathlib.Path(self.mirrored(0, "d/deep/f")).read_text(encoding="utf-8"))
        self.write("d/deep/f2", "f2")
        self.refresh("d/deep/f2")
        self.assertEqual(["f2"], self.texts("d/deep/f2"))

    def test_the_former_version_once_more(self):
        """Renaming its directory changes nothing in a file, not even its stamps."""
        os.mkdir(f"{self.tree}/cur")
        self.write("cur/f", "version a\n")
        self.refresh("")
        self.on_each_node(lambda tree: os.stat(f"{tree}/cur/f").st_size)
        os.rename(f"{self.tree}/cur", f"{self.tree}/old")
        os.mkdir(f"{self.tree}/cur")
        self.write("cur/f", "B")
        for node in range(NODES):
            with contextlib.suppress(OSError):  # ESTALE: listed, and not read
                pathlib.Path(self.mirrored(node, "cur/f")).read_bytes()
        self.refresh("")
        self.assertEqual(["B"], self.texts("cur/f"))
        os.rename(f"{self.tree}/cur", f"{self.tree}/bad")
        os.rename(f"{self.tree}/old", f"{self.tree}/cur")
        self.refresh("")
        self.assertEqual(["version a\n"], self.texts("cur/f"))

    def test_in_the_view(self):
        """There, the original's paths show the snapshot."""
        program = copper_program()
        if subprocess.run([program, "run", "--view", "bind", "--mount", self.job.root(0), "--", "true"], check=False).returncode != 0:
            self.skipTest("this machine allows no view")
        self.on_each_node(lambda tree: os.path.lexists(f"{tree}/d/late"))
        self.write("d/late", "late")
        script = f"test ! -e {self.tree}/d/late; {program} refresh --mount {self.job.mount} {self.tree}/d/late && cat {self.tree}/d/late"
        done = self.run_program(program, "run", "--view", "bind", "--mount", self.job.root(0), "--", "sh", "-c", script)
        self.assertEqual(b"late", done.stdout)
        self.assertEqual(["late"], self.texts("d/late"))

    def test_names_that_are_no_text(self):
        name = os.fsencode(self.tree) + b"/d/lat\xe9n"
        pathlib.Path(os.fsdecode(name)).write_text("text", encoding="utf-8")
        done = subprocess.run([copper_program(), "refresh", "--mount", self.job.mount, name], capture_output=True, check=False)
        self.assertEqual(2, done.returncode)
        self.assertIn(b"its name is not UTF-8", done.stderr)

    def test_many_paths(self):
        done = self.refresh(*(f"d/{number}" for number in range(100)), expected=2)
        self.assertIn("at most 64 paths", done.stderr)

    def test_wrong_use(self):
        done = self.refresh("nothing", expected=1)
        self.assertIn("nothing: no such path", done.stderr)
        self.assertEqual(2, self.job.command("refresh", "--mount", self.job.mount, "").returncode)
        done = self.job.command("refresh", "--mount", f"{self.tree}/no-mirror")
        self.assertNotEqual(0, done.returncode)

    def test_daemons_lost_meanwhile(self):
        """Whatever they were doing: a successor serves, and shows what is new."""
        for number in range(4):  # not so many that the supervisor gives up
            self.texts("d/a")
            self.write("d/a", str(number))
            lost = self.job.daemons()[1]
            refresh = threading.Thread(target=self.refresh, args=("",))
            refresh.start()
            time.sleep(0.003 * number)
            os.kill(lost, 9)
            refresh.join()
            self.assertEqual([str(number)], self.texts("d/a"))
            wait_until(lambda was=lost: self.job.daemons()[1] not in (None, was), SECONDS_MAX, "a successor")

    def test_lost_daemon(self):
        self.texts("d/a")
        lost = self.job.daemons()[1]
        os.kill(lost, 9)
        wait_until(lambda: self.job.daemons()[1] not in (None, lost), SECONDS_MAX, "a successor")
        self.write("d/a", "new")
        self.write("d/more", "more")
        self.refresh("d")
        self.assertEqual(["new", "more"], self.texts("d/a", "d/more"))


class OfAHungTree(SlowTestCase):
    """A program waits for a name of a filesystem that hangs. So the kernel cannot drop names in that directory."""

    def setUp(self):
        super().setUp()
        self.source = self.make_directory()
        os.mkdir(f"{self.source}/d")
        pathlib.Path(f"{self.source}/d/a").write_text("a", encoding="utf-8")
        slow = self.serve()
        self.hung = slow.mount()
        self.told = rf"copper: not refreshed on \S+: {self.hung} has not answered for \d+ s; what waits for it follows when it answers\n"
        self.client = slow.clients[0]
        self.tree = self.make_directory()
        pathlib.Path(f"{self.tree}/a").write_text("old", encoding="utf-8")
        self.job = self.launch(nodes=1, trees=[self.hung, self.tree])
        # As long as it is open, the kernel forgets no name on the way to it: the next lookup is that of the file.
        self.addCleanup(os.close, os.open(self.job.mirrored(0, f"{self.hung}/d"), os.O_PATH))
        before = self.job.totals()["fuse"]["lookup"]
        self.client.send_signal(signal.SIGSTOP)
        self.addCleanup(self.client.send_signal, signal.SIGCONT)
        self.waiting = self.start("cat", self.job.mirrored(0, f"{self.hung}/d/a"))
        wait_until(lambda: self.job.totals()["fuse"]["lookup"] > before, SECONDS_MAX, "a program that waits")
        self.refreshing = self.start(copper_program(), "refresh", "--mount", self.job.mount, self.hung)
        time.sleep(0.5)
        self.assertIsNone(self.refreshing.poll())

    def start(self, *words):
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def go_on(self):
        self.client.send_signal(signal.SIGCONT)
        self.assertEqual(b"a", self.waiting.communicate(timeout=SECONDS_MAX)[0])
        output, errors = self.refreshing.communicate(timeout=SECONDS_MAX)
        self.assertEqual(b"", output)
        self.assertRegex(errors.decode(), rf"\A({self.told})?\Z")  # if it took longer than a filesystem may be silent
        done = self.job.command("refresh", "--mount", self.job.mount)
        self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_another_tree_is_refreshed(self):
        file = pathlib.Path(self.job.mirrored(0, f"{self.tree}/a"))
        self.assertEqual("old", file.read_text(encoding="utf-8"))
        pathlib.Path(f"{self.tree}/a").write_text("another one", encoding="utf-8")
        done = self.job.command("refresh", "--mount", self.job.mount, self.tree)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual("another one", file.read_text(encoding="utf-8"))
        self.go_on()

    def test_what_hangs_is_told_and_all_else_is_refreshed(self):
        self.assertRegex(self.refreshing.stderr.readline().decode(), self.told)
        file = pathlib.Path(self.job.mirrored(0, f"{self.tree}/a"))
        for number in range(10):  # more than there are threads for one filesystem
            self.assertNotEqual(str(number), file.read_text(encoding="utf-8"))
            pathlib.Path(f"{self.tree}/a").write_text(str(number), encoding="utf-8")
            done = self.job.command("refresh", "--mount", self.job.mount)
            self.assertEqual(1, done.returncode)
            self.assertRegex(done.stderr, self.told)
            self.assertEqual(str(number), file.read_text(encoding="utf-8"))
        self.go_on()

    def test_a_lost_daemon_is_replaced(self):
        """A thread of it waits in the kernel for what only its successor can answer."""
        lost = self.job.daemons()[0]
        os.kill(lost, signal.SIGKILL)
        wait_until(lambda: self.job.daemons() not in ([], [lost]), SECONDS_MAX, "a successor")
        self.assertEqual("old", pathlib.Path(self.job.mirrored(0, f"{self.tree}/a")).read_text(encoding="utf-8"))
        self.go_on()


class OfAHungTreeThatIsNamedAgain(SlowTestCase):
    """A refresh looks up its trees, so that they have names. A program that looks up the same name waits behind that."""

    def test_programs_can_be_killed(self):
        self.source = self.make_directory()
        slow = self.serve("forgets_attributes = 1\nforgets_names = 1\n")
        hung = slow.mount()
        client = slow.clients[0]
        job = self.launch(nodes=1, trees=[hung])
        os.stat(job.mirrored(0, hung))
        client.send_signal(signal.SIGSTOP)
        self.addCleanup(client.send_signal, signal.SIGCONT)
        done = job.command("refresh", "--mount", job.mount)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        waiting = subprocess.Popen(["stat", job.mirrored(0, hung)], stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: state_of(waiting.pid) in "SD", SECONDS_MAX, "a wait")
            time.sleep(1)
            waiting.kill()
            self.assertEqual(-signal.SIGKILL, waiting.wait(SECONDS_MAX))
        finally:
            client.send_signal(signal.SIGCONT)  # before anybody waits for the program
            waiting.wait()


class ListedMeanwhile(RefreshTestCase):
    FILES = 5000  # several pieces

    def prepare_tree(self):
        for number in range(self.FILES):
            pathlib.Path(f"{self.tree}/file.{number:05}").touch()

    def test_a_listing_goes_on(self):
        for node in range(NODES):
            with os.scandir(self.mirrored(node)) as listing:
                names = [next(listing).name for _ in range(10)]
                pathlib.Path(f"{self.tree}/file.0000{node}").unlink()
                self.refresh("")
                names += [entry.name for entry in listing]
            self.assertEqual(len(set(names)), len(names))
            self.assertLessEqual(self.FILES - 2, len(names))
        self.assertEqual(self.FILES - 2, len(self.names("")))
