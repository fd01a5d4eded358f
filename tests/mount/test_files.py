"""Programs use files of the mirror: map, execute, lock, try to change them."""

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import time

from copper import clean_environment
import file_history
from mounted import MountTestCase


class Use(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.original = cls.make_directory() + "/tree"
        os.makedirs(f"{cls.original}/directory")
        cls.content = os.urandom((2 << 20) + 4321)
        with open(f"{cls.original}/data", "wb") as file:
            file.write(cls.content)
        shutil.copy("/bin/echo", f"{cls.original}/program")
        with open(f"{cls.original}/script", "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho script \"$1\"\n")
        os.chmod(f"{cls.original}/script", 0o755)
        os.symlink("data", f"{cls.original}/link")
        cls.job = cls.launch_for_class(nodes=2, trees=[cls.original])
        cls.root = cls.job.mirrored(1, cls.original)

    def test_mapped(self):
        with open(f"{self.root}/data", "rb") as file:
            for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
                with mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapped:
                    self.assertEqual(self.content, mapped[:])
            with mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
                mapped[100:105] = b"local"
                self.assertEqual(b"local", mapped[100:105])
            with self.assertRaises(PermissionError):
                mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            self.assertEqual(self.content, file.read())

    def test_mapped_library_stays_cached(self):
        """Mapping a file again must not drop the pages of processes that have mapped it."""
        with open(f"{self.root}/data", "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            digest = hashlib.sha256(mapped).digest()
            before = self.job.totals()["fuse"]["read"]
            for _ in range(20):
                with open(f"{self.root}/data", "rb") as again, \
                        mmap.mmap(again.fileno(), 0, prot=mmap.PROT_READ) as other:
                    self.assertEqual(digest, hashlib.sha256(other).digest())
            self.assertEqual(digest, hashlib.sha256(mapped).digest())
            self.assertEqual(before, self.job.totals()["fuse"]["read"])

    def test_executed(self):
        self.assertEqual(b"hello\n", self.run_program(f"{self.root}/program", "hello").stdout)
        self.assertEqual(b"script x\n", self.run_program(f"{self.root}/script", "x").stdout)

    def test_every_mutation_is_refused(self):
        root = self.root
        data, new = f"{root}/data", f"{root}/new"
        attempts = {
            "open for writing": lambda: os.open(data, os.O_WRONLY),
            "open for both": lambda: os.open(data, os.O_RDWR),
            "append": lambda: os.open(data, os.O_WRONLY | os.O_APPEND),
            "truncate on open": lambda: os.open(data, os.O_RDONLY | os.O_TRUNC),
            "create": lambda: os.open(new, os.O_CREAT | os.O_WRONLY),
            "temporary file": lambda: os.open(f"{root}/directory", os.O_TMPFILE | os.O_WRONLY),
            "truncate": lambda: os.truncate(data, 0),
            "unlink": lambda: os.unlink(data),
            "mkdir": lambda: os.mkdir(new),
            "rmdir": lambda: os.rmdir(f"{root}/directory"),
            "rename": lambda: os.rename(data, new),
            "rename directory": lambda: os.rename(f"{root}/directory", new),
            "link": lambda: os.link(data, new),
            "symlink": lambda: os.symlink("data", new),
            "mkfifo": lambda: os.mkfifo(new),
            "chmod": lambda: os.chmod(data, 0o600),
            "chmod of a directory": lambda: os.chmod(f"{root}/directory", 0o700),
            "chown": lambda: os.chown(data, os.geteuid(), os.getegid()),
            "chown of a link": lambda: os.lchown(f"{root}/link", os.geteuid(), os.getegid()),
            "utime": lambda: os.utime(data),
            "setxattr": lambda: os.setxattr(data, "user.new", b"x"),
            "removexattr": lambda: os.removexattr(data, "user.new"),
            "at the mirror's root": lambda: os.mkdir(f"{self.job.root(1)}/new"),
        }
        for name, attempt in attempts.items():
            with self.subTest(name), self.assertRaises(OSError) as caught:
                attempt()
            self.assertEqual("EROFS", errno.errorcode[caught.exception.errno], name)
        self.assertFalse(os.access(data, os.W_OK))
        self.assertEqual(errno.EROFS, self.bind_error(f"{root}/socket"))
        self.assertEqual(["data", "directory", "link", "program", "script"], sorted(os.listdir(self.original)))

    @staticmethod
    def bind_error(path):
        with socket.socket(socket.AF_UNIX) as one:
            try:
                one.bind(path)
            except OSError as error:
                return error.errno
        return 0

    def test_locks_succeed(self):
        with open(f"{self.root}/data", "rb") as one, open(f"{self.root}/data", "rb") as other:
            fcntl.flock(one, fcntl.LOCK_SH)
            fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(other, fcntl.LOCK_UN)
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with self.assertRaises(BlockingIOError):  # and they are locks, among the processes of a node
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(one, fcntl.LOCK_UN)
            fcntl.lockf(one, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.lockf(one, fcntl.LOCK_UN)

    def test_labels_are_not_supported_without_selinux(self):
        with self.assertRaises(OSError) as caught:
            os.getxattr(f"{self.root}/data", "security.selinux")
        self.assertEqual(errno.ENODATA if os.path.exists("/sys/fs/selinux") else errno.EOPNOTSUPP, caught.exception.errno)

    def test_no_file_is_a_terminal(self):
        with open(f"{self.root}/data", "rb") as file:
            self.assertFalse(os.isatty(file.fileno()))
            for request in (0x5401, 0x80086601, 0x5413, 0xdeadbe):  # TCGETS, FS_IOC_GETFLAGS, TIOCGWINSZ, none
                with self.assertRaises(OSError) as caught:
                    fcntl.ioctl(file.fileno(), request, b"\0" * 64)
                self.assertEqual("ENOTTY", errno.errorcode[caught.exception.errno])

    def test_readers_at_once(self):
        """Many threads and processes ask for the same file at the same time, before anybody else has."""
        os.makedirs(f"{self.original}/crowd", exist_ok=True)
        with open(f"{self.original}/crowd/file", "wb") as file:
            file.write(self.content)
        job = self.launch(nodes=4, trees=[self.original])
        readers = [subprocess.Popen(["sha256sum", job.mirrored(node, f"{self.original}/crowd/file")],
                                    stdout=subprocess.PIPE) for node in range(4) for _ in range(8)]
        outputs = {reader.communicate(timeout=60)[0].split()[0] for reader in readers}
        self.assertEqual({hashlib.sha256(self.content).hexdigest().encode()}, outputs)
        self.assertEqual(1, job.totals()["backing"]["file_opens"])
        self.assertEqual(0, job.totals()["fallbacks"]["direct_reads"])


class Compression(MountTestCase):
    """--compress changes the bytes on the network, never the bytes that programs read."""

    SIZE = (5 << 20) + 4321
    MIDDLE = (2 << 20) - 100_000

    def bytes_sent_for(self, content, compress):
        """The bytes that the fabric sends until both nodes have read a new file, and those it reports as saved."""
        original = self.make_directory()
        with open(f"{original}/file", "wb") as file:
            file.write(content)
        job = self.launch(nodes=2, trees=[original], options=["--compress", compress])
        for node in range(2):
            with open(job.mirrored(node, f"{original}/file"), "rb") as file:
                file.seek(self.MIDDLE)  # not from the start, and across extents and blocks
                self.assertEqual(content[self.MIDDLE:self.MIDDLE + 300_000], file.read(300_000))
                file.seek(0)
                with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
                    # The first way reads through the daemon, the second one what the kernel has by then.
                    self.assertEqual(content, file.read() if node == 0 else mapped[:])
                    self.assertEqual(content, mapped[:] if node == 0 else file.read())
        totals = job.totals()
        self.assertEqual(1, totals["backing"]["file_opens"])
        self.assertEqual(0, sum(totals["fallbacks"].values()))
        return totals["fabric"]["bytes_sent"], totals["fabric"]["bytes_saved_by_compression"]

    def test_what_shrinks(self):
        content = b"".join(b"line %d of a file that shrinks\n" % line for line in range(self.SIZE // 30))
        sent, saved = self.bytes_sent_for(content, "lz4")
        self.assertLess(sent, len(content) / 2)
        self.assertGreater(saved, len(content) / 2)
        self.assertGreater(sent + saved, len(content))

    def test_what_does_not_shrink(self):
        content = os.urandom(self.SIZE)
        sent, saved = self.bytes_sent_for(content, "lz4")
        self.assertGreater(sent, len(content))
        self.assertEqual(0, saved)

    def test_off(self):
        sent, saved = self.bytes_sent_for(b"a" * self.SIZE, "off")
        self.assertGreater(sent, self.SIZE)
        self.assertEqual(0, saved)


class Surroundings(MountTestCase):
    """Paths that a daemon must not enter."""

    def test_kernel_filesystems_are_not_served(self):
        job = self.launch(nodes=2, trees=["/usr/share/doc"])
        for name in ("proc", "sys", "dev"):
            for path in (name, f"{name}/self", f"{name}/version", f"{name}/null"):
                with self.subTest(path), self.assertRaises(OSError):
                    os.stat(job.mirrored(1, f"/{path}/.") if path != name else job.mirrored(1, f"/{name}/version"))
            with contextlib.suppress(OSError):
                self.assertEqual([], os.listdir(job.mirrored(1, f"/{name}")))

    def test_mirror_in_its_own_tree(self):
        """The mount point lies in the tree: a daemon never enters its own mirror, where it would wait for itself."""
        job = self.prepare(nodes=2)
        os.makedirs(f"{job.directory}/below")
        job.trees = [job.directory]
        job.launch()
        for node in range(2):
            for other in range(2):
                path = job.mirrored(node, job.root(other))
                done = subprocess.run(["timeout", "10", "ls", "-la", f"{path}/tmp"], capture_output=True, text=True,
                                      env=clean_environment(LC_ALL="C"), check=False)
                self.assertEqual(2, done.returncode, done.stdout + done.stderr)
                self.assertIn("Too many levels of symbolic links", done.stderr)
            self.run_program("timeout", "20", "ls", "-la", job.mirrored(node, f"{job.directory}/below"))
            # The directory of the mount point can be listed, with the mount point or without.
            self.assertIn("below", os.listdir(job.mirrored(node, job.directory)))
            found = self.run_program("timeout", "20", "sh", "-c", 'find "$1" || true', "sh",
                                     job.mirrored(node, job.directory)).stdout
            self.assertIn(b"/below\n", found)

    def test_tree_in_a_mount(self):
        job = self.launch(nodes=1, trees=["/usr/share/doc"])
        other = self.prepare(nodes=1)
        done = other.command("launch", "--local", "1", "--mount", other.mount, "--tree",
                             job.mirrored(0, "/usr/share/doc"))
        self.assertIn(done.returncode, (1, 2))
        self.assertRegex(done.stderr, "inside a Copper mount")


class Change(MountTestCase):
    """Files that change or vanish: one version's bytes, or the backing filesystem's error."""

    SIZE = (4 << 20) + 777

    def setUp(self):
        self.original = self.make_directory() + "/tree"
        os.makedirs(self.original)

    def write(self, name, letter, replace=False):
        path = f"{self.original}/{name}"
        with open(path + ".new" if replace else path, "wb") as file:
            file.write(letter.encode() * self.SIZE)
        if replace:
            os.rename(path + ".new", path)

    def read(self, path):
        """All bytes in pieces, or the error. They must be of one version."""
        try:
            with open(path, "rb", buffering=0) as file:
                content = b""
                while piece := file.read(100_000):
                    content += piece
        except OSError as error:
            return errno.errorcode[error.errno]
        letters = set(content)
        self.assertLessEqual(len(letters), 1, f"bytes of several versions: {letters}")
        self.assertIn(len(content), (self.SIZE, 0) if not content else (self.SIZE,))
        return content[:1].decode()

    def read_again(self, path):
        """The first open may find pages of an old version; the next one must not."""
        content = self.read(path)
        return self.read(path) if content == "ESTALE" else content

    def test_replaced_before_it_is_read(self):
        self.write("file", "a")
        job = self.launch(nodes=2, trees=[self.original])
        os.stat(job.mirrored(1, f"{self.original}/file"))
        self.write("file", "b", replace=True)
        self.assertIn(self.read(job.mirrored(1, f"{self.original}/file")), ("a", "b"))
        self.assertIn(self.read(job.mirrored(0, f"{self.original}/file")), ("a", "b"))

    def test_replaced_in_the_middle_of_a_read(self):
        for replace in (True, False):
            with self.subTest(replace=replace):
                self.write("file", "a")
                job = self.launch(nodes=2, trees=[self.original])
                content = b""
                with open(job.mirrored(1, f"{self.original}/file"), "rb", buffering=0) as file:
                    content += file.read(4096)
                    self.write("file", "b", replace=replace)
                    with contextlib.suppress(OSError):  # ESTALE, as NFS says it
                        while piece := file.read(100_000):
                            content += piece
                self.assertEqual({ord("a")}, set(content))
                # If the old file is gone, the next open gets the new one.
                expected = ("a", "b") if replace else ("b",)
                for node in (1, 0):
                    self.assertIn(self.read_again(job.mirrored(node, f"{self.original}/file")), expected)
                self.assertEqual(0, sum(job.totals()["fallbacks"].values()))

    def test_vanished(self):
        self.write("file", "a")
        job = self.launch(nodes=2, trees=[self.original])
        path = job.mirrored(1, f"{self.original}/file")
        self.assertEqual(self.SIZE, os.stat(path).st_size)
        os.unlink(f"{self.original}/file")
        self.assertIn(self.read(path), ("ENOENT", "ESTALE"))
        self.assertIn(self.read(job.mirrored(0, f"{self.original}/file")), ("ENOENT", "ESTALE"))

    def test_directory_vanished(self):
        os.makedirs(f"{self.original}/directory")
        job = self.launch(nodes=2, trees=[self.original])
        self.assertEqual(["directory"], os.listdir(job.mirrored(1, self.original)))
        os.rmdir(f"{self.original}/directory")
        with self.assertRaises(OSError) as caught:
            os.listdir(job.mirrored(1, f"{self.original}/directory"))
        self.assertIn(caught.exception.errno, (errno.ENOENT, errno.ESTALE))

    def test_snapshot_stays(self):
        """A file that was read once stays the same, whatever happens to the original."""
        self.write("file", "a")
        job = self.launch(nodes=2, trees=[self.original])
        path = f"{self.original}/file"
        self.assertEqual("a", self.read(job.mirrored(1, path)))
        self.write("file", "b", replace=True)
        with open(f"{self.original}/later", "w", encoding="utf-8"):
            pass
        self.assertEqual("a", self.read(job.mirrored(1, path)))
        self.assertEqual("a", self.read(job.mirrored(0, path)))
        self.assertEqual(["file"], os.listdir(job.mirrored(0, self.original)))

    def test_writer_at_work(self):
        """A file that changes all the time: each read gives bytes of one version, or an error."""
        done = threading.Event()

        def rewrite():
            turn = 0
            while not done.is_set():
                self.write("file", "abcdefghij"[turn % 10], replace=True)
                turn += 1
        self.write("file", "a")
        writer = threading.Thread(target=rewrite)
        writer.start()
        try:
            for _ in range(5):
                job = self.launch(nodes=2, trees=[self.original])
                started = time.monotonic()
                for node in (1, 0, 1):
                    self.read(job.mirrored(node, f"{self.original}/file"))
                self.assertLess(time.monotonic() - started, 60)
        finally:
            done.set()
            writer.join()
        # Another job, now that nobody writes the file.
        for node in (0, 1):
            path = job.mirrored(node, f"{self.original}/file")
            for _ in range(10):
                if len(found := self.read(path)) == 1:
                    break
                time.sleep(0.2)  # a version that was not the wanted one is remembered for a second
            self.assertIn(found, "abcdefghij")


class RewrittenInPlace(MountTestCase):
    """While all nodes read it again and again: what a program gets must be one version that was whole by then, never a mix, and in
    the end the same everywhere, without another error."""

    NODES = 4

    def setUp(self):
        self.original = self.make_directory()
        self.path = f"{self.original}/file"

    def start(self, action, path):
        def start(word):
            return subprocess.Popen([sys.executable, file_history.__file__, action, path, word], stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, text=True)
        return start

    def check(self, looked_up_by=(), read_by=()):
        pathlib.Path(self.path).write_bytes(file_history.content_of(1))
        time.sleep(0.3)  # it is at rest
        job = self.launch(nodes=self.NODES, trees=[self.original])
        mirrored = [job.mirrored(node, self.path) for node in range(self.NODES)]
        for node in looked_up_by:
            os.stat(mirrored[node])
        for node in read_by:
            self.assertEqual("1", file_history.look(mirrored[node]))
        wrong, _ = file_history.rewrite_while_read(self.start("write", self.path), [self.start("read", path) for path in mirrored])
        self.assertEqual([set()] * self.NODES, wrong)
        time.sleep(2.5)
        expected = 1 if read_by else file_history.LAST  # the snapshot, once there is one
        for _ in range(2):
            self.assertEqual([str(expected)] * self.NODES, [file_history.look(path) for path in mirrored])
        for path in mirrored:
            self.assertEqual(len(file_history.content_of(expected)), os.stat(path).st_size)

    def test_that_nobody_knew_before(self):
        self.check()

    def test_that_some_nodes_had_looked_up(self):
        self.check(looked_up_by=(0, 2))

    def test_that_one_node_had_read(self):
        self.check(read_by=(1,))


class ChangeInStream(MountTestCase):
    """A long file that changes while it streams to a node that is not its reader: first bytes of the old version, then ESTALE, because
    more than the read-ahead is still to come. The next open gets the new version."""

    SIZE = 64 << 20
    PAGE = 4096
    READ_BEFORE = 8 << 20

    @classmethod
    def content(cls, version, begin, end):
        """Content that shows its version and offset everywhere."""
        return b"".join(b"%s%15d" % (version, page) * (cls.PAGE // 16) for page in range(begin // cls.PAGE, end // cls.PAGE))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.old = cls.content(b"a", 0, cls.SIZE)

    def read(self, path, meanwhile=None):
        """The versions in the file, and how reading it ends."""
        content = bytearray()
        try:
            with open(path, "rb", buffering=0) as file:
                while piece := file.read(100_000):
                    content += piece
                    if meanwhile and len(content) >= self.READ_BEFORE:
                        meanwhile()
                        meanwhile = None
        except OSError as error:
            return content, errno.errorcode[error.errno]
        return content, "end"

    def stream(self, change, new):
        original = self.make_directory()
        path = f"{original}/file"
        with open(path, "wb") as file:
            file.write(self.old)
        job = self.launch(nodes=3, trees=[original], options=["--readers", "1"])
        node = job.other_than_reader()
        content, ending = self.read(job.mirrored(node, path), meanwhile=lambda: change(path))
        self.assertGreaterEqual(len(content), self.READ_BEFORE)
        self.assertTrue(self.old.startswith(content), "bytes of another version, or of elsewhere")
        self.assertEqual("ESTALE", ending)
        content, ending = self.read(job.mirrored(node, path))
        self.assertEqual("end", ending)
        self.assertTrue(content == new, "not the new version")
        for other in range(3):
            content, ending = self.read(job.mirrored(other, path))
            if ending == "ESTALE":  # its node still held the beginning of the old version
                self.assertTrue(self.old.startswith(content), "bytes of another version, or of elsewhere")
                content, ending = self.read(job.mirrored(other, path))
            self.assertEqual("end", ending)
            self.assertTrue(content == new, "not the new version")
        self.assertEqual(0, sum(job.totals()["fallbacks"].values()))

    def test_shrinks(self):
        for size in (0, (4 << 20) + 777, (9 << 20) + 777, (40 << 20) + 777):
            with self.subTest(size):
                self.stream(lambda path, size=size: os.truncate(path, size), self.old[:size])

    def test_grows(self):
        more = self.content(b"b", self.SIZE, self.SIZE + (8 << 20))

        def change(path):
            with open(path, "ab") as file:
                file.write(more)
        self.stream(change, self.old + more)

    def test_rewritten_in_the_middle(self):
        for begin in (4 << 20, (9 << 20) + self.PAGE, 40 << 20):
            with self.subTest(begin):
                piece = self.content(b"b", begin, begin + (3 << 20))

                def change(path, begin=begin, piece=piece):
                    with open(path, "r+b") as file:
                        file.seek(begin)
                        file.write(piece)
                self.stream(change, self.old[:begin] + piece + self.old[begin + len(piece):])
