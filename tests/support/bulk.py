"""A large file whose bytes tell which version and which place they are of."""

import os
import pathlib
import subprocess

PIECE = 1 << 20

# Prints the version that all pieces are of, or ESTALE. Fails if a piece is at a wrong place, or of another version than the first
# one. The kernel uses the memory of its pages again: new memory is slow on a virtual machine. Words: the path, how many pieces there
# are.
IN_ORDER = """
import errno, os, sys
try:
    with open(sys.argv[1], "rb", buffering=0) as file:
        piece = bytearray(1 << 20)
        number, versions = 0, set()
        while got := file.readinto(piece):
            assert got == 1 << 20 and int(piece[8:16]) == number, number
            versions |= {int(piece[:8]), int(piece[-8:])}
            number += 1
            if number % 16 == 0:
                os.posix_fadvise(file.fileno(), number - 16 << 20, 16 << 20, os.POSIX_FADV_DONTNEED)
    assert number == int(sys.argv[2]) and len(versions) == 1, (number, versions)
    print(*versions)
except OSError as error:
    assert error.errno == errno.ESTALE, error
    print("ESTALE")
"""


# Like programs that load safetensors: the file's beginning, then a share of its 1,000 parts in random order, of a mapping. Words: the
# path, how many pieces there are, which share of how many.
TENSORS = """
import mmap, random, sys
pieces, share, shares = map(int, sys.argv[2:])
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
    parts = 1000
    begins = [len(content) * part // parts for part in range(parts + 1)]
    mine = list(range(share, parts, shares))
    random.Random(share).shuffle(mine)
    versions = {int(content[:8])}
    for part in mine:
        data = content[begins[part]:begins[part + 1]]
        first = -begins[part] % (1 << 20)
        for at in range(first, len(data) - 16, 1 << 20):
            versions.add(int(data[at:at + 8]))
            assert int(data[at + 8:at + 16]) == (begins[part] + at) >> 20
assert len(versions) == 1
print(*versions)
"""


def write(path, pieces, version, in_place=False):
    """A new file in the place of an old one, or the old one with other bytes."""
    filling = os.urandom(PIECE - 24)
    written = pathlib.Path(path) if in_place else pathlib.Path(f"{path}.new")
    with open(written, "r+b" if in_place else "wb", buffering=0) as file:
        for number in range(pieces):
            file.write(b"%8d%8d" % (version, number) + filling + b"%8d" % version)
    written.replace(path)


def start_reading(path, pieces, prefix=(), script=IN_ORDER, words=()):
    return subprocess.Popen([*prefix, "/usr/bin/python3", "-c", script, path, str(pieces), *map(str, words)], stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def results(readings):
    """What each one printed. Fails if one failed."""
    found = []
    for reading in readings:
        output, errors = reading.communicate(timeout=600)
        if reading.returncode != 0:
            raise AssertionError(errors)
        found.append(output.strip())
    return found
