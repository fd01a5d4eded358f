"""`copper run` in the node's view: the mirror lies over the original paths."""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import time
import unittest

from copper import LAUNCHERS, NOBODY, as_nobody, clean_environment, copper_program, mounts_below, processes_of, wait_until
from import_storm import PYTHON
from mounted import MountTestCase
from pythons import copy_python

# What a program of the tree sees: all files that Python has opened or mapped, by device; links, ids, errors.
LOOK = """
import asyncio, decimal, email.message, http.client, json, logging.handlers, multiprocessing.pool, os, sqlite3, sys, unittest.mock
tree, mirror = sys.argv[1:3]
places = {m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)} | {sys.executable}
places |= {m.__cached__ for m in sys.modules.values() if getattr(m, '__cached__', None) and os.path.exists(m.__cached__)}
with open('/proc/self/maps') as maps:
    places |= {line.split(None, 5)[5].rstrip() for line in maps if tree in line}
device = os.stat(mirror).st_dev
try:
    open(tree + '/new', 'w')
except OSError as error:
    refused = error.errno
print(json.dumps({'around': sorted(p for p in places if p.startswith(tree) and os.stat(p).st_dev != device),
                  'through': len([p for p in places if p.startswith(tree)]), 'elsewhere': [p for p in places if mirror in p],
                  'ids': [os.getuid(), os.getgid(), os.stat(tree).st_uid], 'refused': refused, 'prefix': sys.prefix,
                  'cwd': os.getcwd(), 'path': os.environ['PATH'], 'namespaces': [os.readlink('/proc/self/ns/mnt'),
                  os.readlink('/proc/self/ns/user')]}))
"""
# Reads a word from the memory of another process of the same user, as MPI does within a node.
PEEK = """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
class iovec(ctypes.Structure):
    _fields_ = [('base', ctypes.c_void_p), ('bytes', ctypes.c_size_t)]
here = ctypes.create_string_buffer(8)
local, remote = iovec(ctypes.addressof(here), 8), iovec(int(sys.argv[2]), 8)
got = libc.process_vm_readv(int(sys.argv[1]), ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
print(here.raw.decode() if got == 8 else ctypes.get_errno())
"""
SHOW = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER: any
word = ctypes.create_string_buffer(b'COPPERED', 8)
print(os.getpid(), ctypes.addressof(word), flush=True)
sys.stdin.read()
"""
# Then runs its arguments. (BPF of seccomp(2); the numbers of unshare are those of asm/unistd.h.)
FORBID_UNSHARE = """
import ctypes, os, platform, struct, sys
unshare = {'x86_64': 272, 'aarch64': 97}[platform.machine()]
code = [(0x20, 0, 0, 0), (0x15, 0, 1, unshare), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000)]  # EPERM; else allowed
filter = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *line) for line in code))
class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_ushort), ('filter', ctypes.c_void_p)]
program = Program(len(code), ctypes.addressof(filter))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0  # PR_SET_SECCOMP
os.execvp(sys.argv[1], sys.argv[1:])
"""


class ViewTestCase(MountTestCase):
    user = 0
    links_as_they_are = False

    def setUp(self):
        self.directory = self.make_directory()
        self.tree = f"{self.directory}/software"
        self.python, self.version = copy_python(f"{self.tree}/python")
        self.write("tool", f"#!{self.python}\n{LOOK}", 0o755)
        self.write("value", "1\n")
        os.symlink(f"{self.tree}/value", f"{self.directory}/link")
        os.symlink(self.tree, f"{self.directory}/other way")
        os.makedirs(f"{self.tree}/src/by_path")
        pathlib.Path(f"{self.tree}/src/by_path/__init__.py").touch()
        subprocess.run([self.python, "-I", "-m", "venv", "--without-pip", f"{self.tree}/venv"], check=True, env=clean_environment())
        self.write(f"venv/lib/{self.version}/site-packages/by.pth", f"{self.tree}/src\n")
        self.write("venv/bin/tool", f"#!{self.tree}/venv/bin/python3\nimport by_path\n{LOOK}", 0o755)
        self.options = self.job_options()
        self.job = self.launch(nodes=1, trees=[self.tree], **self.options)

    def job_options(self):
        return {}

    def write(self, name, text, mode=0o644):
        pathlib.Path(f"{self.tree}/{name}").write_text(text, encoding="utf-8")
        os.chmod(f"{self.tree}/{name}", mode)

    def words(self, *words, view="auto", cwd="/"):
        # (nsenter leads to the root directory.)
        there = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", cwd]
        return [*self.job.prefix, *there, copper_program(), "run", "--mount", self.job.root(0), "--view", view, "--", *words]

    def popen(self, *words, **options):
        process = subprocess.Popen(self.words(*words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
                                   env=self.job.environment, **options)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdin.close)
        return process

    def in_view(self, *words, cwd="/", view="auto", expected=0, environment=None):
        done = subprocess.run(self.words(*words, view=view, cwd=cwd), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env=environment or self.job.environment, timeout=60, check=False)
        self.assertEqual(expected, done.returncode, done.stdout + done.stderr)
        return done.stdout if expected == 0 else done.stderr

    def look(self, program, **options):
        return json.loads(self.in_view(program, self.tree, self.job.root(0), **options))

    def supervisor(self):
        return next(pid for pid in processes_of(self.job.directory) if
                    pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8") == "copperd-superv\n")

    def lose_daemon(self):
        daemon = self.job.daemons()[0]
        os.kill(daemon, signal.SIGKILL)
        wait_until(lambda: self.job.daemons() not in ([], [daemon]), 20, "its successor")

    def namespace(self):
        return self.in_view("readlink", "/proc/self/ns/mnt").strip()

    def check_all(self):
        """In one test: making the tree takes longer than all of this."""
        self.check_programs()
        self.check_one_for_all()
        self.check_working_directory()
        self.check_environment()
        self.check_memory_of_others()
        self.check_loss()
        self.check_stop()

    def check_programs(self):
        for program, prefix in ((f"{self.tree}/tool", "python"), (f"{self.tree}/venv/bin/tool", "venv"),
                                (f"{self.directory}/other way/venv/bin/tool", "venv")):
            found = self.look(program)
            self.assertEqual([], found["around"])
            self.assertGreater(found["through"], 100)
            if self.links_as_they_are:
                self.assertEqual([], found["elsewhere"])
            self.assertEqual([self.user, self.user, self.user], found["ids"])
            self.assertEqual(30, found["refused"])  # EROFS
            self.assertEqual(f"{self.tree}/{prefix}", found["prefix"])
        self.assertEqual("1\n", self.in_view("cat", f"{self.directory}/link"))
        # Once more: only pages that the kernel has dropped meanwhile are asked for. (And Python asks whether its own first modules,
        # before the one that prevents it, are terminals.)
        before = self.job.totals()["fuse"]
        self.look(f"{self.tree}/venv/bin/tool")
        asked = {name: count - before[name] for name, count in self.job.totals()["fuse"].items() if name != "bytes_read"}
        self.assertEqual(0, asked["requests"] - asked["read"] - asked["readdir"] - asked["ioctl"], asked)
        self.assertLess(asked["ioctl"], 20)
        # The mirror's own paths go on to lead there.
        self.assertEqual("1\n", self.in_view("cat", self.job.mirrored(0, f"{self.tree}/value")))
        self.assertEqual("copper: nothing-there: not found, or not executable\n", self.in_view("nothing-there", expected=127))

    def check_one_for_all(self):
        programs = [self.popen("sh", "-c", "readlink /proc/self/ns/mnt /proc/self/ns/user") for _ in range(16)]
        self.assertEqual({f"{self.namespace()}\n{self.look(f'{self.tree}/tool')['namespaces'][1]}\n"},
                         {program.communicate(timeout=60)[0] for program in programs})
        # A program in the view stays in it.
        self.assertEqual(self.namespace(), self.in_view(*self.words("readlink", "/proc/self/ns/mnt")[len(self.job.prefix):]).strip())

    def check_working_directory(self):
        self.assertEqual(f"{self.directory}\n", self.in_view("pwd", cwd=self.directory))
        # Programs may want to write there.
        home = {**self.job.environment, "HOME": f"{self.tree}/home"}
        for options in ({"cwd": f"{self.tree}/src"}, {"environment": home}):
            self.assertNotEqual(self.namespace(), self.in_view("readlink", "/proc/self/ns/mnt", **options).strip())
            self.assertEqual(self.namespace(), self.in_view("readlink", "/proc/self/ns/mnt", view="bind", **options).strip())
        self.assertEqual(f"{self.tree}/src\nby_path\n", self.in_view("sh", "-c", "pwd; ls", cwd=f"{self.tree}/src", view="bind"))
        self.assertNotEqual(self.namespace(), self.in_view("readlink", "/proc/self/ns/mnt", view="paths").strip())

    def check_environment(self):
        """Also after `copper env`, programs of the view have their own paths."""
        path = f"{self.tree}/venv/bin:/usr/bin:/bin"
        own = {**self.job.environment, "PATH": path, "VIRTUAL_ENV": f"{self.tree}/venv"}
        script = 'eval "$("$1" env --mount "$2")"; "$1" run --mount "$2" -- tool "$3" "$2"; echo "$PATH"'
        done = subprocess.run([*self.job.prefix, "sh", "-c", script, "sh", copper_program(), self.job.root(0), self.tree],
                              capture_output=True, text=True, env=own, cwd="/", check=True)
        found, changed = done.stdout.splitlines()
        self.assertTrue(changed.startswith(self.job.root(0)), changed)
        self.assertEqual((path, []), tuple(json.loads(found)[key] for key in ("path", "around")), done.stderr)

    def check_memory_of_others(self):
        program = self.popen(PYTHON, "-c", SHOW)
        process, address = program.stdout.readline().split()
        self.assertEqual("COPPERED\n", self.in_view(PYTHON, "-c", PEEK, process, address))
        if self.user != 0:
            self.assertEqual("1\n", self.in_view("unshare", "--user", PYTHON, "-c", PEEK, process, address))  # EPERM
        program.communicate(timeout=20)

    def check_loss(self):
        namespace = self.namespace()
        program = self.popen("sh", "-c", f'cat "{self.tree}/value"; read go; "{self.python}" -c "print(2)"; cat "{self.tree}/tool"')
        self.assertEqual("1\n", program.stdout.readline())
        self.lose_daemon()
        self.assertEqual(namespace, self.namespace())
        self.assertEqual(f"2\n#!{self.python}\n{LOOK}", program.communicate("go\n", timeout=60)[0])

    def check_stop(self):
        """What still runs then sees the originals."""
        program = self.popen("sh", "-c", f'cat "{self.tree}/value"; read go; cat "{self.tree}/value"')
        self.assertEqual("1\n", program.stdout.readline())
        self.write("value", "2\n")
        self.assertEqual("", self.job.stop().stderr)
        wait_until(lambda: not any(point.startswith(self.tree) for point in mounts_below(self.directory, program.pid)), 20,
                   "the originals in the view")
        self.assertEqual("2\n", program.communicate("go\n", timeout=60)[0])
        self.assertEqual([], self.job.leftovers())


class View(ViewTestCase):
    def setUp(self):
        self.need_root()
        super().setUp()

    def test_all(self):
        self.check_all()

    def test_unmounted_by_others(self):
        """The view does not keep the daemon."""
        program = self.popen("sh", "-c", f'cat "{self.tree}/value"; read go; cat "{self.tree}/value"')
        self.assertEqual("1\n", program.stdout.readline())
        self.write("value", "2\n")
        subprocess.run(["umount", self.job.root(0)], check=True)
        wait_until(lambda: not self.job.own_processes(), 20, "the daemon's end")
        self.assertEqual("2\n", program.communicate("go\n", timeout=20)[0])

    def test_launcher_ends_its_processes(self):
        """A program in the view uses the mirror, although it asks the daemon for nothing."""
        self.job.stop()
        self.job = self.launch(nodes=2, trees=[self.tree])
        program = self.popen("sh", "-c", f'cat "{self.tree}/value"; read go; cat "{self.tree}/value"')
        self.assertEqual("1\n", program.stdout.readline())
        launcher, = (pid for pid, words in processes_of(self.job.directory).items() if os.path.basename(words[0]) in LAUNCHERS)
        os.kill(launcher, signal.SIGTERM)
        wait_until(lambda: mounts_below(self.job.directory) == [self.job.root(0)], 90, "the end of the mirror that is not used")
        self.write("value", "2\n")
        self.assertEqual("1\n", program.communicate("go\n", timeout=60)[0])
        wait_until(lambda: not mounts_below(self.job.directory) and not self.job.own_processes(), 90, "the end of the other one")

    def test_in_other_files(self):
        """A container's program does not leave it for the view, and does not make the view for others."""
        place = f"{self.directory}/place"
        os.mkdir(place)
        pathlib.Path(place, "file").write_text("outside\n", encoding="utf-8")
        inside = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && echo inside >"$0/file" && exec "$@"', place]
        for _ in range(2):
            for prefix, sees in ((inside, "inside\n"), ([], "outside\n"), (["chroot", "/"], "outside\n")):
                self.job.prefix = prefix
                self.assertEqual(sees, self.in_view("cat", f"{place}/file"))
        self.job.prefix = inside
        self.assertIn("sees other files than the daemon", self.in_view("true", view="bind", expected=3))
        self.job.prefix = []

    def test_daemon_that_is_stopped(self):
        """Many first programs wait once, not one after the other, and go on without a view."""
        daemon = self.job.daemons()[0]
        os.kill(daemon, signal.SIGSTOP)
        self.addCleanup(os.kill, daemon, signal.SIGCONT)
        started = time.monotonic()
        programs = [self.popen("cat", f"{self.tree}/value") for _ in range(4)]
        self.assertEqual(["1\n"] * 4, [program.communicate(timeout=60)[0] for program in programs])
        self.assertLess(time.monotonic() - started, 40)

    def test_supervisor_that_answers_late(self):
        supervisor = self.supervisor()
        os.kill(supervisor, signal.SIGSTOP)
        self.assertIn("its supervisor does not take it", self.in_view("true", view="bind", expected=3))
        os.kill(supervisor, signal.SIGCONT)
        self.assertNotEqual("", self.namespace())
        self.in_view("true", view="bind")
        self.assertEqual(supervisor, self.supervisor())

    def test_without_standard_streams(self):
        self.in_view("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *self.words("true"), view="paths")
        self.in_view("true", view="bind")

    def test_stop_warns_of_mapped_files(self):
        program = self.popen(PYTHON, "-c", "import mmap, sys; file = open(sys.argv[1], 'rb'); "
                             "mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); print('mapped', flush=True); sys.stdin.read()",
                             f"{self.tree}/tool")
        self.assertEqual("mapped\n", program.stdout.readline())
        self.assertRegex(self.job.stop().stderr, rf"still run from the mirror on this node, .* \({program.pid}\)")

    def test_no_view(self):
        job = self.launch(nodes=1, trees=[self.directory, "/tmp"])
        self.job.stop()
        self.job = job
        self.assertEqual("1\n", self.in_view("cat", f"{self.tree}/value"))
        self.assertEqual("copper: no view on this node: the mirror's own mount lies in the tree /tmp\n",
                         self.in_view("true", view="bind", expected=3))


class ViewOfAUser(ViewTestCase):
    user = NOBODY
    links_as_they_are = True

    def setUp(self):
        self.need_root()
        super().setUp()

    def job_options(self):
        subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", self.tree], check=True)
        self.keeper = self.device_for_everybody()
        # Many sites hide other users' processes, and the kernel then all of them in a user namespace.
        subprocess.run(["nsenter", "-t", str(self.keeper), "-m", "mount", "-t", "proc", "-o", "hidepid=2", "proc", "/proc"], check=True)
        home = self.make_directory(owner=NOBODY)
        return {"prefix": ["nsenter", "-t", str(self.keeper), "-m", "--", *as_nobody()], "directory": home,
                "mounted_for": self.keeper, "options": ["--no-rewrite-symlinks"], "environment": {"HOME": home, "USER": "nobody", "TMPDIR": home}}

    def test_all(self):
        self.check_all()

    def test_set_user_id(self):
        place = self.make_directory()
        shutil.copy2("/usr/bin/id", place)
        os.chmod(f"{place}/id", 0o4755)
        self.assertEqual("0\n", self.in_view(f"{place}/id", "-u"))
        self.assertEqual(f"{NOBODY}\n", self.in_view(f"{place}/id", "-u", view="bind"))
        # Capabilities of the file (linux/capability.h: struct vfs_cap_data): CAP_DAC_READ_SEARCH, effective.
        shutil.copy2("/usr/bin/cat", place)
        os.setxattr(f"{place}/cat", "security.capability", struct.pack("<5I", 0x02000001, 1 << 2, 0, 0, 0))
        pathlib.Path(place, "secret").write_text("secret\n", encoding="utf-8")
        os.chmod(f"{place}/secret", 0)
        with_place = {**self.job.environment, "PATH": f"{place}:{self.job.environment['PATH']}"}
        self.assertEqual("secret\n", self.in_view("cat", f"{place}/secret", environment=with_place))

    def test_program_that_mounts_with_fusermount(self):
        for program in ("mksquashfs", "squashfuse"):
            if not shutil.which(program):
                self.skipTest(f"optional: {program}")
        place = self.make_directory(owner=NOBODY)
        mounted = self.make_directory(owner=NOBODY)
        pathlib.Path(place, "file").write_text("text", encoding="ascii")
        self.run_program("mksquashfs", place, f"{place}/image", "-quiet", "-no-progress")
        self.in_view("squashfuse", f"{place}/image", mounted)
        try:
            self.assertEqual("text", self.in_view("cat", f"{mounted}/file", view="paths"))
        finally:
            self.in_view("fusermount3", "-u", mounted, view="paths")

    def test_other_groups(self):
        """A user namespace knows none of them; docs/use/view.md says what follows."""
        main, other = NOBODY, 50
        member = [*self.options["prefix"][:-len(as_nobody())], "setpriv", f"--reuid={NOBODY}", f"--regid={main}", f"--groups={main},{other}"]
        self.job.prefix = member
        place = self.make_directory(owner=NOBODY)
        os.mkdir(f"{place}/project")
        os.chown(f"{place}/project", NOBODY, other)
        os.chmod(f"{place}/project", 0o2775)
        self.in_view("touch", f"{place}/project/new", f"{place}/own", view="bind")
        self.assertEqual([other, main], [os.stat(f"{place}/{name}").st_gid for name in ("project/new", "own")])
        self.assertIn("Invalid argument", self.in_view("chgrp", str(other), f"{place}/own", view="bind", expected=1))
        self.in_view("chgrp", str(other), f"{place}/own", view="paths")
        self.assertEqual(other, os.stat(f"{place}/own").st_gid)
        os.chmod(f"{place}/own", 0o040)
        os.chown(f"{place}/own", 0, other)
        self.in_view("cat", f"{place}/own", view="bind")
        tells = "'copper run' can show the mirror at the original paths (chgrp to another group than your main one needs '--view paths')"
        for prefix, says in ((member, True), (self.options["prefix"], False)):
            self.job.prefix = prefix
            doctor = self.job.command("doctor", "--mount", f"{self.job.directory}/other", "--tree", self.tree)
            self.assertEqual(says, tells in doctor.stdout, doctor.stdout)

    def test_directory_that_cannot_be_opened(self):
        """The program stays there, like one of `sudo -u` in root's home."""
        place = self.make_directory()
        os.chmod(place, 0o700)
        there = ["sh", "-c", 'cd "$0" && exec "$@"', place]
        words = [copper_program(), "run", "--mount", self.job.root(0)]
        prefix = ["nsenter", "-t", str(self.keeper), "-m", "--", *there, *as_nobody()]
        self.assertEqual(f"{place}\n".encode(), self.run_program(*prefix, *words, "readlink", "/proc/self/cwd",
                                                                 env=self.job.environment).stdout)
        self.run_program(*prefix, *words, "--view", "bind", "true", env=self.job.environment, expected=1)

    def test_in_another_user_namespace(self):
        """It could make a view, but not for the other programs of this node."""
        self.job.prefix = [*self.options["prefix"], "unshare", "--user", "--map-current-user"]
        self.assertIn("sees other files than the daemon", self.in_view("true", view="bind", expected=3))
        self.assertEqual("1\n", self.in_view("cat", f"{self.tree}/value"))
        self.job.prefix = self.options["prefix"]
        self.assertNotIn("changes paths", self.job.status())
        self.assertEqual("1\n", self.in_view("cat", f"{self.tree}/value", view="bind"))

    def test_where_users_have_no_namespaces(self):
        """As in many containers, where a filter of system calls forbids them."""
        self.job.prefix = [*self.options["prefix"], PYTHON, "-c", FORBID_UNSHARE]
        self.assertTrue(self.in_view("sh", "-c", "echo $PATH", environment={
            **self.job.environment, "PATH": f"{self.tree}/venv/bin:/usr/bin:/bin"}).startswith(self.job.root(0)))
        self.assertRegex(self.in_view("true", view="bind", expected=3), "no view on this node: this node gives users no namespaces")
        self.job.prefix = self.options["prefix"]
        self.assertIn("\n  'copper run' changes paths on 1 node: this node gives users no namespaces (", self.job.status())
        doctor = self.job.command("doctor", "--mount", f"{self.job.directory}/other", "--tree", self.tree)
        self.assertIn("'copper run' can show the mirror at the original paths", doctor.stdout)


if __name__ == "__main__":
    unittest.main()
