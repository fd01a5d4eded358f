"""`copper launch --revalidate`: what changes in a tree appears on all nodes, although nobody asks for a refresh."""

import contextlib
import os
import pathlib
import signal
import sys
import time

sys.dont_write_bytecode = True

from copper import nodes_of, wait_until
from mounted import MountTestCase
from slow_mounted import SlowTestCase

NODES = 2
SECONDS = 0.2
SECONDS_MAX = 60
SECONDS_OF_DOUBT = 2  # longer than the kernel keeps what has just changed
DIRECTORIES = 8
FILES = 40  # in each
OPTIONS = ("--revalidate", str(SECONDS), "--readers", str(NODES))


class RevalidateTestCase(MountTestCase):
    def setUp(self):
        self.tree = self.make_directory()
        for number in range(DIRECTORIES):
            os.makedirs(f"{self.tree}/d{number}/below")
            for name in (*(f"f{file}" for file in range(FILES)), "below/f"):
                self.replace(f"d{number}/{name}", "old")
        self.job = self.launch(nodes=NODES, trees=[self.tree], options=OPTIONS)

    def replace(self, name, text):
        """Another file under this name, as pip and most editors do."""
        new = pathlib.Path(f"{self.tree}/new")
        new.write_text(text, encoding="utf-8")
        new.replace(f"{self.tree}/{name}")

    def mirrored(self, node, name):
        return pathlib.Path(self.job.mirrored(node, f"{self.tree}/{name}"))

    def texts(self, names):
        return [[self.mirrored(node, name).read_text(encoding="utf-8") for name in names] for node in range(NODES)]

    def read_all(self):
        self.texts([f"d{number}/{name}" for number in range(DIRECTORIES)
                    for name in (*(f"f{file}" for file in range(FILES)), "below/f")])

    def read_all_until_known(self):
        """To the kernel, for ever: what has just changed, it soon asks for again."""
        def requests():
            of_kernel = self.job.totals()["fuse"]
            return of_kernel["requests"] - of_kernel["ioctl"]  # Python asks of each file that it opens whether it is a terminal

        def is_known():
            self.read_all()
            before = requests()
            time.sleep(SECONDS_OF_DOUBT)
            self.read_all()
            return requests() == before
        wait_until(is_known, SECONDS_MAX, "a pass without a request")

    def wait_for(self, look, expected, what):
        """Until `look`, called with a node, returns that on each."""
        found = []

        def is_there():
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # so far
                found[:] = [look(node) for node in range(NODES)]
                return found == [expected] * NODES
            return False
        wait_until(is_there, SECONDS_MAX, lambda: f"{what} on each node (at last {found})\n{self.job.logs()}")

    def wait_for_text(self, name, text):
        self.wait_for(lambda node: self.mirrored(node, name).read_text(encoding="utf-8"), text, f"the new text of {name}")


class Revalidate(RevalidateTestCase):
    def test_another_file(self):
        self.read_all()
        self.replace("d3/f7", "another one")
        self.wait_for_text("d3/f7", "another one")

    def test_the_same_file_with_other_bytes(self):
        """Directories tell nothing of it, so it may take some rounds."""
        self.read_all()
        for text in ("longer", "x", ""):
            pathlib.Path(f"{self.tree}/d3/f7").write_text(text, encoding="utf-8")
            self.wait_for_text("d3/f7", text)

    def test_names(self):
        self.read_all()
        self.assertFalse(any(self.mirrored(node, "d2/late").exists() for node in range(NODES)))
        self.replace("d2/late", "late")
        os.unlink(f"{self.tree}/d2/f1")
        self.wait_for_text("d2/late", "late")
        names = sorted(os.listdir(f"{self.tree}/d2"))
        self.wait_for(lambda node: sorted(os.listdir(self.mirrored(node, "d2"))), names, "the names")
        self.assertFalse(any(self.mirrored(node, "d2/f1").exists() for node in range(NODES)))

    def test_attributes_and_links(self):
        os.symlink("d1", f"{self.tree}/link")
        self.wait_for(lambda node: os.readlink(self.mirrored(node, "link")), "d1", "the link")
        os.symlink("d2", f"{self.tree}/other")
        os.rename(f"{self.tree}/other", f"{self.tree}/link")
        self.wait_for(lambda node: os.readlink(self.mirrored(node, "link")), "d2", "the link's new text")
        self.read_all()
        os.chmod(f"{self.tree}/d1", 0o500)
        os.chmod(f"{self.tree}/d1/f1", 0o400)
        self.wait_for(lambda node: [oct(self.mirrored(node, name).stat().st_mode) for name in ("d1", "d1/f1")],
                      ["0o40500", "0o100400"], "the modes")
        stamp = os.stat(f"{self.tree}/d1").st_mtime_ns + 10**9
        os.utime(f"{self.tree}/d1", ns=(stamp, stamp))
        self.wait_for(lambda node: self.mirrored(node, "d1").stat().st_mtime_ns, stamp, "the directory's stamp")

    def test_another_directory(self):
        self.read_all()
        os.makedirs(f"{self.tree}/new.d/below")
        self.replace("new.d/below/f", "of another directory")
        os.rename(f"{self.tree}/d5", f"{self.tree}/old.d")
        os.rename(f"{self.tree}/new.d", f"{self.tree}/d5")
        self.wait_for_text("d5/below/f", "of another directory")
        self.wait_for(lambda node: os.listdir(self.mirrored(node, "d5")), ["below"], "its names")

    def test_many_changes(self):
        """Of more files than are refreshed one by one."""
        self.read_all()
        for file in range(FILES):
            pathlib.Path(f"{self.tree}/d1/f{file}").write_text("other", encoding="utf-8")
        for file in range(FILES):
            self.wait_for_text(f"d1/f{file}", "other")

    def test_what_is_open_stays(self):
        with contextlib.ExitStack() as files:
            opened = [files.enter_context(self.mirrored(node, "d0/f0").open(encoding="utf-8")) for node in range(NODES)]
            self.texts(["d0/f0"])
            self.replace("d0/f0", "another one")
            self.wait_for_text("d0/f0", "another one")
            self.assertEqual(["old"] * NODES, [file.read() for file in opened])

    def test_what_lies_below_is_not_read_again(self):
        self.read_all()
        before = self.job.totals()["backing"]
        self.replace("late", "late")  # the tree's own directory has changed
        self.wait_for_text("late", "late")
        self.read_all()
        for number in range(DIRECTORIES):
            self.texts([f"d{number}/below/f"])
        after = self.job.totals()["backing"]
        self.assertEqual((1, 1), (after["file_opens"] - before["file_opens"], after["listings"] - before["listings"]))

    def test_an_unchanged_tree_costs_little(self):
        """In each round, one operation for each directory, and as many for files, or a few more."""
        self.read_all()
        began = time.monotonic()
        before = self.job.totals()["backing"]
        wait_until(lambda: self.job.totals()["backing"]["stats"] - before["stats"] > 1000, SECONDS_MAX, "some rounds")
        after = self.job.totals()["backing"]
        rounds = (time.monotonic() - began) / SECONDS + 1
        self.assertLessEqual(after["stats"] - before["stats"], NODES * rounds * (2 * DIRECTORIES + 1 + 128))
        for kind in ("file_opens", "listings", "bytes"):
            self.assertEqual(before[kind], after[kind])
        requests = self.job.totals()["fuse"]
        self.read_all()
        self.assertEqual(requests["lookup"], self.job.totals()["fuse"]["lookup"], "the kernel has lost nothing")

    def test_what_a_lost_node_has_read(self):
        self.read_all()
        lost = self.job.daemons()[1]
        os.kill(lost, signal.SIGKILL)
        wait_until(lambda: self.job.daemons()[1] not in (None, lost), SECONDS_MAX, "a successor")
        for number in range(DIRECTORIES):
            self.replace(f"d{number}/f1", "after a loss")
        for number in range(DIRECTORIES):
            self.wait_for_text(f"d{number}/f1", "after a loss")

    def test_what_the_only_reader_has_read(self):
        """Whatever is asked for is known on the other node. So it waits for nobody, and nothing tells it of the loss but a look."""
        self.job.stop()
        self.job = self.launch(nodes=NODES, trees=[self.tree], options=["--revalidate", str(SECONDS), "--readers", "1"])
        self.read_all_until_known()
        reader = [node["READER"] for node in nodes_of(self.job.status())].index("yes")
        lost = self.job.daemons()[reader]
        os.kill(lost, signal.SIGKILL)
        wait_until(lambda: self.job.daemons()[reader] not in (None, lost), SECONDS_MAX, "a successor")
        self.replace("d0/f1", "after a loss")
        self.wait_for(lambda node: self.mirrored(node, "d0/f1").stat().st_size, len("after a loss"), "the new size")


class OfAHungFilesystem(SlowTestCase):
    def setUp(self):
        super().setUp()
        self.source = self.make_directory()
        pathlib.Path(f"{self.source}/a").write_text("a", encoding="utf-8")
        slow = self.serve()
        hung = slow.mount()
        self.client = slow.clients[0]
        self.healthy = pathlib.Path(self.make_directory(), "a")
        self.healthy.write_text("old", encoding="utf-8")
        self.job = self.launch(nodes=2, trees=[hung, os.path.dirname(self.healthy)], options=["--revalidate", str(SECONDS)])
        self.shown = [pathlib.Path(self.job.mirrored(node, self.healthy)) for node in range(2)]
        self.assertEqual(["old"] * 2, self.texts())
        pathlib.Path(self.job.mirrored(0, f"{hung}/a")).read_bytes()
        self.client.send_signal(signal.SIGSTOP)
        self.addCleanup(self.client.send_signal, signal.SIGCONT)
        time.sleep(5 * SECONDS)  # a look waits for it

    def texts(self):
        return [shown.read_text(encoding="utf-8") for shown in self.shown]

    def test_the_job_ends_all_the_same(self):
        self.job.stop()

    def test_another_tree_is_looked_at(self):
        for text in ("another one", "and another"):
            self.healthy.write_text(text, encoding="utf-8")
            wait_until(lambda text=text: self.texts() == [text] * 2, SECONDS_MAX, lambda: f"{self.texts()} on each node")

    def test_another_tree_is_looked_at_after_a_loss(self):
        lost = self.job.daemons()[1]
        os.kill(lost, signal.SIGKILL)
        wait_until(lambda: self.job.daemons()[1] not in (None, lost), SECONDS_MAX, "a successor")
        self.test_another_tree_is_looked_at()
