"""The ways in which programs read files, with their results: all bytes of one version, or an error."""

import errno
import mmap
import os
import signal

PIECE = 64 << 10
BLOCK = 4096  # alignment of O_DIRECT reads


def content(version, size):
    """Content that shows its version and offset everywhere, without NULs. `version` is one letter."""
    return b"".join(b"%s%14d\n" % (version.encode(), record) for record in range(size // 16 + 1))[:size]


def until_end(read):
    """All bytes, by successive read() calls."""
    whole = b""
    while piece := read():
        whole += piece
    return whole


def sequential(file):
    return until_end(lambda: os.read(file, PIECE))


def positioned(file):
    """Reads by the file's stat size, the last part first."""
    size = os.fstat(file).st_size
    middle = size // 2
    end = os.pread(file, size - middle, middle)
    return os.pread(file, middle, 0) + end


def direct(file):
    with mmap.mmap(-1, PIECE) as aligned:
        def read():
            return aligned[:os.readv(file, [aligned])]
        return until_end(read)


def mapped(file):
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as pages:
        return pages[:]


WAYS = {"read": (sequential, 0), "pread": (positioned, 0), "mmap": (mapped, 0), "O_DIRECT": (direct, os.O_DIRECT)}


def read_in_child(way, path, to):
    read, flags = WAYS[way]
    try:
        file = os.open(path, os.O_RDONLY | flags)
        os.write(to, b"+")
        whole = read(file)
        with os.fdopen(to, "wb") as pipe:
            pipe.write(whole)
    except OSError as error:
        return error.errno
    return 0


class Reader:
    """A process that reads a file. (A failing mapping kills it.)"""

    def __init__(self, way, path):
        self.pipe, to = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 255
            try:
                os.close(self.pipe)
                code = read_in_child(way, path, to)
            finally:
                os._exit(code)
        os.close(to)

    def result(self):
        """All bytes, or the name of the error or signal. Once."""
        with os.fdopen(self.pipe, "rb") as pipe:
            opened_and_read = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if status < 0:
            return signal.Signals(-status).name
        return errno.errorcode.get(status, f"exit code {status}") if status else opened_and_read[1:]


def read(way, path):
    return Reader(way, path).result()


def change(path, new, how):
    """Replaces the file under its name, or rewrites it in place."""
    if how == "rename":
        with open(f"{path}.new", "xb") as file:
            file.write(new)
        os.rename(f"{path}.new", path)
    else:
        with open(path, "r+b") as file:
            file.truncate(len(new))
            file.write(new)


ERRORS = ("ESTALE", "SIGBUS")


def verdict(found, old, new):
    """A reader's result in a word: "old", "new", an allowed error, or what is wrong."""
    if found == old:
        return "old"
    if found == new:
        return "new"
    if isinstance(found, str):
        return found if found in ERRORS else f"wrong error {found}"
    kind = "padded" if found.rstrip(b"\0") in (old, new) else "cut" if found in (old[:len(found)], new[:len(found)]) \
        else "mixed"
    return f"wrong bytes: {kind} ({len(found)} bytes)"
