"""Compares a tree with everything in it with its mirrors, entry by entry and byte by byte."""

import ctypes
import os
import pathlib
import shutil
import stat
import subprocess

import tree
from copper import NOBODY, as_nobody, clean_environment
from mounted import MountTestCase


class Identity(MountTestCase):
    """The mirror is the original, on every node."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.original = cls.make_directory() + "/tree"
        tree.build(cls.original)
        cls.job = cls.launch_for_class(nodes=4, trees=[cls.original])

    def compare(self, node):
        comparison = tree.Comparison(self.job.root(node), self.original, rewritten_links=True)
        self.assertEqual([], comparison.run())
        self.assertGreater(comparison.entries, tree.HUGE_DIRECTORY)

    def test_node_0(self):
        self.compare(0)

    def test_node_1(self):
        self.compare(1)

    def test_node_2(self):
        self.compare(2)

    def test_node_3(self):
        self.compare(3)

    def test_find_prints_the_same(self):
        # %i, %D and %a left out as in tree.attributes; links are compared there
        words = ["-mindepth", "1", "-printf", r"%P\0%y\0%m\0%n\0%U\0%G\0%T@\0"]
        expected = self.run_program("find", self.original, *words).stdout
        for node in range(4):
            found = self.run_program("find", self.job.mirrored(node, self.original), *words).stdout
            self.assertEqual(sorted(expected.split(b"\0")), sorted(found.split(b"\0")))

    def test_copies_are_identical(self):
        copies = self.make_directory()
        for name in ("sparse", "only a hole"):
            for how in ("always", "auto", "never"):
                copy = f"{copies}/{how}"
                self.run_program("cp", f"--sparse={how}", self.job.mirrored(1, f"{self.original}/{name}"), copy)
                self.run_program("cmp", f"{self.original}/{name}", copy)

    def test_holes_can_be_sought(self):
        path = self.job.mirrored(2, f"{self.original}/sparse")
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            self.assertLessEqual(os.lseek(file.fileno(), 0, os.SEEK_HOLE), size)
            self.assertLessEqual(os.lseek(file.fileno(), 0, os.SEEK_DATA), 5 << 20)
            island = os.lseek(file.fileno(), 5 << 20, os.SEEK_DATA)
            self.assertEqual(5 << 20, island)
            self.assertGreater(os.lseek(file.fileno(), island, os.SEEK_HOLE), island)
            with self.assertRaises(OSError):
                os.lseek(file.fileno(), size, os.SEEK_DATA)

    def test_reads_at_any_place(self):
        path = f"{self.original}/size-{(3 << 20) + 4321}"
        with open(path, "rb") as original, open(self.job.mirrored(3, path), "rb") as mirror:
            for offset in (0, 1, 4095, (1 << 20) - 1, (1 << 20) + 7, (2 << 20) - 3, (3 << 20) + 4320, (3 << 20) + 4321,
                           1 << 40):
                for size in (1, 10, 5000, (1 << 20) + 1):
                    self.assertEqual(os.pread(original.fileno(), size, offset), os.pread(mirror.fileno(), size, offset))

    def test_links_lead_where_they_should(self):
        root = self.job.mirrored(1, self.original)
        for name in ("absolute link to directory", "link to directory"):
            self.assertEqual(f"{root}/target directory", os.path.realpath(f"{root}/{name}"))
            with open(f"{root}/{name}/file", "rb") as file:
                self.assertEqual(b"reached", file.read())
        with open(f"{root}/absolute link, not tidy", "rb") as file:
            self.assertEqual(b"reached", file.read())
        for name in ("dangling link", "absolute dangling link"):
            with self.assertRaises(FileNotFoundError):
                os.stat(f"{root}/{name}")
        with self.assertRaisesRegex(OSError, "Too many levels"):
            os.stat(f"{root}/loop")

    def test_links_by_another_name_of_the_tree(self):
        """Sites have aliases: /soft -> /lus/soft. A link through an alias into the tree stays in the mirror."""
        directory = self.make_directory()
        tree_root, alias = f"{directory}/lustre/soft", f"{directory}/soft"
        os.makedirs(f"{tree_root}/lib")
        os.symlink("lustre/soft", alias)
        with open(f"{tree_root}/lib/file", "w", encoding="utf-8") as file:
            file.write("reached")
        os.symlink(f"{alias}/lib/file", f"{tree_root}/link")
        job = self.launch(nodes=2, trees=[alias])
        for node in range(2):
            root = job.root(node)
            self.assertEqual(f"{root}{alias}/lib/file", os.readlink(f"{root}{tree_root}/link"))
            for way in (tree_root, alias):
                self.assertEqual(f"{root}{tree_root}/lib/file", os.path.realpath(f"{root}{way}/link"))
                with open(f"{root}{way}/link", encoding="utf-8") as file:
                    self.assertEqual("reached", file.read())

    def test_doubled_slashes(self):
        with open(f"{self.job.root(0)}//{self.original}//target directory///file", "rb") as file:
            self.assertEqual(b"reached", file.read())

    def test_names_too_long(self):
        root = self.job.mirrored(0, self.original)
        with self.assertRaisesRegex(OSError, "File name too long"):
            os.stat(f"{root}/{'n' * 256}")
        self.assertEqual(255, os.statvfs(root).f_namemax)

    def test_directory_positions(self):
        """telldir and seekdir: a listing can continue where it stopped."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.opendir.restype = ctypes.c_void_p
        libc.readdir.restype = ctypes.c_void_p
        libc.telldir.restype = ctypes.c_long
        handle = ctypes.c_void_p(libc.opendir(os.fsencode(self.job.mirrored(1, f"{self.original}/huge directory"))))
        self.assertTrue(handle.value)

        def name():
            entry = libc.readdir(handle)
            return ctypes.string_at(entry + 19) if entry else None  # struct dirent on 64-bit Linux
        for _ in range(5000):
            name()
        place = libc.telldir(handle)
        rest = [name() for _ in range(10)]
        libc.seekdir(handle, ctypes.c_long(place))
        self.assertEqual(rest, [name() for _ in range(10)])
        libc.rewinddir(handle)
        count = 0
        while name():
            count += 1
        self.assertEqual(tree.HUGE_DIRECTORY + 2, count)
        libc.closedir(handle)


class MadeUpNumbers(MountTestCase):
    """squashfuse numbers files as they are looked up, and anew when it is mounted again."""

    def setUp(self):
        for program in ("mksquashfs", "squashfuse"):
            if not shutil.which(program):
                self.skipTest(f"optional: {program}")
        self.place = self.make_directory()
        for number in range(200):
            path = pathlib.Path(f"{self.place}/source/d{number % 8}/{number}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(number), encoding="ascii")
        self.run_program("mksquashfs", f"{self.place}/source", f"{self.place}/image", "-quiet", "-no-progress")
        self.tree = f"{self.place}/tree"
        os.mkdir(self.tree)
        self.mount()

    def mount(self):
        self.run_program("squashfuse", f"{self.place}/image", self.tree)
        self.addCleanup(lambda: os.path.ismount(self.tree) and self.unmount())

    def unmount(self):
        self.run_program("umount", self.tree)

    def test_no_number_means_two_files(self):
        job = self.launch(nodes=2, trees=[self.tree])

        def numbers(node, directories):
            root = pathlib.Path(job.mirrored(node, self.tree))
            return {f"d{d}/{path.name}": path.stat().st_ino for d in directories for path in root.joinpath(f"d{d}").iterdir()}
        found = numbers(0, range(4))
        self.unmount()
        self.mount()
        found |= numbers(1, reversed(range(4, 8)))
        self.assertEqual(200, len(found))
        self.assertEqual(200, len(set(found.values())))
        self.assertEqual(numbers(0, range(8)), numbers(1, range(8)))


class WithoutLinks(MountTestCase):
    def test_directories(self):
        """archivemount says of all that no name leads there."""
        if not shutil.which("archivemount"):
            self.skipTest("optional: archivemount")
        place = self.make_directory()
        os.makedirs(f"{place}/source/d")
        pathlib.Path(f"{place}/source/d/file").write_text("text", encoding="ascii")
        self.run_program("tar", "-cf", f"{place}/archive.tar", "-C", f"{place}/source", ".")
        tree_of_archive = f"{place}/tree"
        os.mkdir(tree_of_archive)
        self.run_program("archivemount", "-o", "readonly,nobackup", f"{place}/archive.tar", tree_of_archive)
        self.addCleanup(self.run_program, "umount", tree_of_archive)
        self.assertEqual(0, os.stat(f"{tree_of_archive}/d").st_nlink)
        job = self.launch(nodes=1, trees=[tree_of_archive])
        shown = job.mirrored(0, tree_of_archive)
        self.assertEqual([["d"], ["file"]], [os.listdir(shown), os.listdir(f"{shown}/d")])
        self.assertEqual("text", pathlib.Path(f"{shown}/d/file").read_text(encoding="ascii"))


class RawLinks(MountTestCase):
    """--no-rewrite-symlinks shows links as they are."""

    def test_tree(self):
        original = self.make_directory() + "/tree"
        tree.build(original)
        job = self.launch(nodes=2, trees=[original], options=["--no-rewrite-symlinks"])
        comparison = tree.Comparison(job.root(1), original, rewritten_links=False)
        self.assertEqual([], comparison.run())


class OtherUser(MountTestCase):
    """A user may read the mirror exactly if the user may read the original."""

    def setUp(self):
        self.need_root()
        self.original = self.make_directory() + "/tree"
        os.makedirs(f"{self.original}/closed")
        os.makedirs(f"{self.original}/search only")
        for name in ("open", "hidden", "closed/file", "search only/known"):
            with open(f"{self.original}/{name}", "w", encoding="utf-8") as file:
                file.write(name)
        os.chmod(f"{self.original}/hidden", 0)
        os.chmod(f"{self.original}/closed", 0)
        os.chmod(f"{self.original}/search only", 0o711)

    def test_daemon_of_that_user(self):
        directory = self.make_directory(owner=NOBODY)
        keeper = self.device_for_everybody()
        prefix = ["nsenter", "-t", str(keeper), "-m", "--", *as_nobody()]
        job = self.prepare(nodes=2, trees=[self.original], prefix=prefix, directory=directory, mounted_for=keeper,
                           environment={"HOME": directory, "USER": "nobody", "TMPDIR": directory})
        job.launch()
        # As that user: root itself may not enter the mount of another.
        for node in range(2):
            self.assertEqual(self.look_inside(self.original, prefix),
                             self.look_inside(job.mirrored(node, self.original), prefix))

    def look_inside(self, root, prefix=None):
        """What a user sees: outputs, errors and exit codes."""
        script = ('cd "$1" && for f in open hidden closed/file "search only/known" "search only/unknown"; do '
                  'cat "$f"; echo "$? $f"; done; ls closed; echo $?; ls "search only"; echo $?; '
                  'stat -c "%n %s %a %U" * "search only/known"; test -r hidden; echo $?; test -x closed; echo $?')
        done = subprocess.run([*(prefix or as_nobody()), "sh", "-c", script, "sh", root], capture_output=True,
                              text=True, cwd="/", env=clean_environment(LC_ALL="C"), check=False)
        self.assertIn("0 open", done.stdout, done.stderr)
        return done.stdout, done.stderr

    def test_daemon_of_root_for_others(self):
        job = self.launch(nodes=2, trees=[self.original], options=["--allow-other"])
        os.chmod(job.directory, 0o755)
        for node in range(2):
            self.assertEqual(self.look_inside(self.original), self.look_inside(job.mirrored(node, self.original)))

    def test_daemon_of_root_is_private(self):
        job = self.launch(nodes=1, trees=[self.original])
        os.chmod(job.directory, 0o755)
        done = subprocess.run([*as_nobody(), "ls", job.mirrored(0, self.original)], capture_output=True, text=True,
                              check=False)
        self.assertNotEqual(0, done.returncode)
        self.assertIn("Permission denied", done.stderr)
