"""A filesystem that does not answer: what waits for it can be killed, and what is not killed gets its bytes."""

import mmap
import os
import pathlib
import re
import signal
import subprocess
import sys

from copper import state_of, wait_until
from slow_mounted import SlowTestCase

# Much longer than it takes (0.1 s), and much shorter than the deadlines for which a program would wait otherwise.
SECONDS_MAX = 20

READS = "import sys; open(sys.argv[1], 'rb').read()"
LOOKS_UP = "import os, sys; os.stat(sys.argv[1])"
LISTS = "import os, sys; os.listdir(os.path.dirname(sys.argv[1]))"
HANDLES_ONE = """
import os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: None)
print("begins", flush=True)
os.stat(sys.argv[1])
"""
# Signals come all the time, and the program handles them.
IS_DISTURBED = """
import mmap, signal, sys
def handler(*_):
    global count
    count += 1
count = 0
signal.signal(signal.SIGALRM, handler)
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    print("begins", flush=True)
    content = mapped[:]
    signal.setitimer(signal.ITIMER_REAL, 0)
sys.stdout.buffer.write(content)
"""


# Many programs, each of which waits for another directory. Prints what the first of them gets, when all have it.
WAITERS = """
import os, sys, threading
def wait(number):
    seen[number] = os.listdir(f"{sys.argv[1]}/{number}")
seen = {}
threads = [threading.Thread(target=wait, args=(number,)) for number in range(int(sys.argv[2]), int(sys.argv[3]))]
for thread in threads:
    thread.start()
print("begins", flush=True)
for thread in threads:
    thread.join()
print(len(seen), set(map(tuple, seen.values())), flush=True)
"""


class TwoFilesystems(SlowTestCase):
    PROGRAMS = 50  # a node

    def setUp(self):
        super().setUp()
        self.source = self.make_directory()
        for number in range(2 * self.PROGRAMS):
            os.mkdir(f"{self.source}/{number}")
            pathlib.Path(self.source, str(number), "file").write_text(str(number), encoding="ascii")
        hung, healthy = self.serve(), self.serve()
        trees = [hung.mount(), healthy.mount()]
        self.client = hung.clients[0].pid
        self.tree = trees[0]
        self.job = self.launch(nodes=2, trees=trees)
        self.hung, self.healthy = ([self.job.mirrored(node, tree) for node in range(2)] for tree in trees)

    def status(self):
        return self.job.command("status", "--mount", self.job.mount).stdout

    def test_one_that_hangs_is_not_the_others_wait(self):
        for mirror in self.hung:
            subprocess.run(["ls", "-l", mirror], stdout=subprocess.DEVNULL, check=True)
        os.kill(self.client, signal.SIGSTOP)
        self.addCleanup(os.kill, self.client, signal.SIGCONT)
        waiting = []
        for node, mirror in enumerate(self.hung):
            process = subprocess.Popen([sys.executable, "-c", WAITERS, mirror, str(node * self.PROGRAMS), str((node + 1) * self.PROGRAMS)],
                                       stdout=subprocess.PIPE, text=True)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            self.addCleanup(process.stdout.close)
            self.assertEqual("begins\n", process.stdout.readline())
            waiting.append(process)
        for mirror in self.healthy:
            for number in range(2 * self.PROGRAMS):
                done = subprocess.run(["cat", f"{mirror}/{number}/file"], capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
                self.assertEqual(str(number), done.stdout)
        told = rf"  {self.tree} has not answered [12] nodes? for \d+ s\n  {2 * self.PROGRAMS} requests of programs wait\n"
        wait_until(lambda: re.search(told, self.status()), SECONDS_MAX, lambda: f"{told} instead of {self.status()}")
        for process in waiting:
            self.assertIsNone(process.poll(), "it waits")
        os.kill(self.client, signal.SIGCONT)
        for process in waiting:
            self.assertEqual((f"{self.PROGRAMS} {{('file',)}}\n", None), process.communicate(timeout=SECONDS_MAX))


class HungFilesystem(SlowTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = cls.make_directory()
        os.mkdir(f"{cls.source}/directory")
        cls.content = os.urandom(3 * mmap.PAGESIZE)
        for name in ("file", "directory/file"):
            pathlib.Path(cls.source, name).write_bytes(cls.content)

    def setUp(self):
        super().setUp()
        slow = self.serve()
        original = slow.mount()
        self.client = slow.clients[0].pid
        job = self.launch(nodes=2, trees=[original])
        self.shown = job.mirrored(1, original)

    def hang(self):
        os.kill(self.client, signal.SIGSTOP)
        self.addCleanup(os.kill, self.client, signal.SIGCONT)

    def start_waiting(self, program, path):
        process = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_waiting_programs_can_be_killed(self):
        os.stat(f"{self.shown}/file")
        self.hang()
        # A signal that writes a core ends no wait for a page, on any filesystem (lock_page_killable of the kernel).
        ends = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
        for program, path, numbers in ((READS, "file", ends), (LOOKS_UP, "directory/file", (*ends, signal.SIGQUIT)),
                                       (LISTS, "directory/file", (*ends, signal.SIGQUIT))):
            for number in numbers:
                process = self.start_waiting(program, f"{self.shown}/{path}")
                wait_until(lambda pid=process.pid: state_of(pid) == "S" or state_of(pid) == "D", SECONDS_MAX, "a wait")
                process.send_signal(number)
                self.assertEqual(-number, process.wait(SECONDS_MAX), (program, number))

    def test_a_handled_signal_hides_no_other(self):
        self.hang()
        process = self.start_waiting(HANDLES_ONE, f"{self.shown}/directory/file")
        self.assertEqual(b"begins\n", process.stdout.readline())

        def is_interrupted():
            process.send_signal(signal.SIGUSR1)
            return state_of(process.pid) == "D"
        wait_until(is_interrupted, SECONDS_MAX, "a wait that was interrupted")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(-signal.SIGTERM, process.wait(SECONDS_MAX))

    def test_handled_signals_disturb_no_answer(self):
        os.stat(f"{self.shown}/file")
        self.hang()
        process = self.start_waiting(IS_DISTURBED, f"{self.shown}/file")
        self.assertEqual(b"begins\n", process.stdout.readline())
        wait_until(lambda: state_of(process.pid) == "D", SECONDS_MAX, "a wait that was interrupted")
        os.kill(self.client, signal.SIGCONT)
        content, errors = process.communicate(timeout=SECONDS_MAX)
        self.assertEqual((0, self.content, b""), (process.returncode, content, errors))
