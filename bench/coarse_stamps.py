#!/usr/bin/env python3
"""Rewrites files in place while they are read through Copper, on a filesystem whose time stamps are whole seconds (ext4
with inodes of 128 bytes, on a loop device), and counts files that Copper then holds as a mix of two versions.

    bench/coarse_stamps.py [--runs N] [--files N]

Each file is written twice within one second, so its stamps do not tell the versions apart. Needs root and a loop device.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))

from copper import Copper  # noqa: E402

FILE_BYTES = 1 << 20
PIECE_BYTES = 16 << 10
FILES_AT_ONCE = 16


class CoarseFilesystem:
    """Mounted as long as the block lasts."""

    def __init__(self, files):
        self.mebibytes = files + files // 4 + 64

    def __enter__(self):
        self.directory = tempfile.mkdtemp(prefix="copper-coarse-", dir="/tmp")
        self.image = f"{self.directory}/image"
        self.point = f"{self.directory}/fs"
        os.mkdir(self.point)
        with open(self.image, "wb") as image:
            image.truncate(self.mebibytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-I", "128", "-m", "0", self.image], check=True)
        subprocess.run(["mount", "-o", "loop", self.image, self.point], check=True)
        return self.point

    def __exit__(self, kind, error, trace):
        subprocess.run(["umount", "-l", self.point], check=False)
        os.unlink(self.image)
        os.rmdir(self.point)
        os.rmdir(self.directory)


def write_in_place(path, byte):
    file = os.open(path, os.O_WRONLY)
    for at in range(0, FILE_BYTES, PIECE_BYTES):
        os.pwrite(file, byte * PIECE_BYTES, at)
    os.close(file)


def is_mixed(path):
    """A read that fails is not a mix: ESTALE says that the file changed."""
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError:
        return False
    return content.count(content[:1]) != FILE_BYTES


def rewrite_while_read(job, paths):
    """Returns how many of the files some node then sees as a mix."""
    now = time.time()
    time.sleep(1.005 - now % 1)
    for path in paths:
        write_in_place(path, b"a")
    time.sleep(0.04)
    readers = [threading.Thread(target=is_mixed, args=(job.mirrored(0, path),)) for path in paths]
    for reader in readers:
        reader.start()
    for path in paths:
        write_in_place(path, b"b")
    for reader in readers:
        reader.join()
    return sum(any(is_mixed(job.mirrored(node, path)) for node in range(job.nodes)) for path in paths)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--files", type=int, default=320)
    arguments = parser.parse_args()
    for _ in range(arguments.runs):
        mixed = 0
        with CoarseFilesystem(arguments.files) as point:
            paths = [f"{point}/{number}" for number in range(arguments.files)]
            for path in paths:
                pathlib.Path(path).write_bytes(bytes(FILE_BYTES))
            with Copper(nodes=2, trees=[point]) as job:
                for begin in range(0, len(paths), FILES_AT_ONCE):
                    mixed += rewrite_while_read(job, paths[begin:begin + FILES_AT_ONCE])
        print(f"{arguments.files} files of 1 MiB rewritten in place while read, 1 s stamps: mixed | {mixed}", flush=True)


if __name__ == "__main__":
    main()
