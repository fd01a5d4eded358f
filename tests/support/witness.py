#!/usr/bin/python3
"""A program that uses a mirror all the time and records each failed system call, each byte that differs from the original, and
the longest time of a call. It prints a line when it begins. At the end of its standard input it prints one line of JSON, and
ends.

    witness.py ROOT TREE        ROOT + TREE mirrors TREE
"""

import fcntl
import json
import mmap
import os
import random
import select
import sys
import termios
import time


class Witness:
    def __init__(self, root, tree):
        self.root = root
        self.calls = 0
        self.failed = []
        self.wrong = []
        self.longest = 0.0
        self.files = [os.path.join(directory, name) for directory, _, names in os.walk(tree) for name in names
                      if not os.path.islink(os.path.join(directory, name))]
        self.random = random.Random(os.getpid())

    def call(self, function, *arguments, expected=None):
        self.calls += 1
        started = time.monotonic()
        try:
            return function(*arguments)
        except OSError as error:
            if expected is None or not isinstance(error, expected):
                self.failed.append(f"{function.__name__}{arguments}: {error}")
            return None
        finally:
            self.longest = max(self.longest, time.monotonic() - started)

    def look_at(self, original):
        mirrored = self.root + original
        descriptor = self.call(os.open, mirrored, os.O_RDONLY)
        if descriptor is None:
            return
        try:
            found = b""
            while piece := self.call(os.read, descriptor, 100_000):
                found += piece
            with open(original, "rb") as file:
                if file.read() != found and piece is not None:
                    self.wrong.append(mirrored)
            if found:
                with mmap.mmap(descriptor, 0, prot=mmap.PROT_READ) as mapped:
                    if mapped[:] != found:
                        self.wrong.append(mirrored + " (mapped)")
            self.call(os.fstat, descriptor)
            self.call(fcntl.ioctl, descriptor, termios.TCGETS, b"\0" * 64, expected=OSError)
        finally:
            os.close(descriptor)

    def look_around(self, original):
        directory = os.path.dirname(original)
        names = self.call(os.listdir, self.root + directory)
        if names is not None and sorted(names) != sorted(os.listdir(directory)):
            self.wrong.append(self.root + directory)
        self.call(os.stat, f"{self.root}{directory}/absent {self.calls}", expected=FileNotFoundError)

    def run(self):
        print("begins", flush=True)
        while True:
            original = self.random.choice(self.files)
            self.look_at(original)
            self.look_around(original)
            if select.select([sys.stdin], [], [], 0)[0]:
                break
        print(json.dumps({"calls": self.calls, "failed": self.failed[:10], "wrong": self.wrong[:10],
                          "longest": self.longest}))


if __name__ == "__main__":
    ROOT, TREE = sys.argv[1:]
    Witness(ROOT, TREE).run()
