"""Programs that draw on a terminal."""

import fcntl
import os
import pty
import select
import shlex
import struct
import subprocess
import termios
import time

from copper import clean_environment, kill_all, processes_of, wait_until


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words, columns=100, lines=30, **environment):
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.resize(columns, lines)
        self.process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                        env=clean_environment(**{"TERM": "xterm", **environment}))
        self.shown = ""

    def resize(self, columns, lines):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def wait_for(self, text, seconds=30):
        deadline = time.monotonic() + seconds
        while text not in self.shown:
            if time.monotonic() > deadline:
                raise AssertionError(f"{text!r} is not in {self.shown!r}")
            if select.select([self.master], [], [], 0.1)[0]:
                self.shown += os.read(self.master, 65536).decode(errors="replace")

    def end(self, text):
        """Waits for the end, after which the terminal must be as before."""
        self.wait_for(text)
        code = self.process.wait(30)
        same = termios.tcgetattr(self.slave) == self.before
        os.close(self.master)
        os.close(self.slave)
        return code, same


class Tmux:
    """A program in a tmux of its own, whose socket is in `directory`. After the program, its exit code is on the screen.
    A context manager: ends the tmux server."""

    def __init__(self, directory, words, columns=100, lines=30):
        self.socket = f"{directory}/tmux"
        # tmux 3.3 loses exit codes.
        self.words = ["new-session", "-d", "-x", str(columns), "-y", str(lines),
                      f'{shlex.join(words)}; echo "exit code $?"; exec sleep infinity']

    def __enter__(self):
        try:
            self.tmux(*self.words)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            self.tmux("kill-server")
            wait_until(lambda: not processes_of(self.socket), 30, "the end of tmux")
        finally:
            kill_all(processes_of(self.socket))

    def tmux(self, *words):
        return subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *words], env=clean_environment(TERM="xterm"),
                              capture_output=True, text=True, check=True, timeout=60).stdout

    def screen(self):
        return self.tmux("capture-pane", "-p").splitlines()

    def press(self, keys):
        self.tmux("send-keys", "-l", keys)

    def resize(self, columns, lines):
        self.tmux("resize-window", "-x", str(columns), "-y", str(lines))
