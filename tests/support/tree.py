"""Makes a directory tree with everything that a filesystem can hold, and compares it with its mirror."""

import os
import socket
import stat
import subprocess

# Sizes around an extent (1 MiB), around pages, and around nothing.
SIZES = (0, 1, 4095, 4096, 4097, 65_535, 131_073, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20, (3 << 20) + 4321)
HUGE_DIRECTORY = 9_000  # more entries than a Listing may have (8,192)


def pattern(size, seed):
    """`size` bytes that differ from place to place."""
    block = b"".join(((seed * 1_000_003 + i) & 0xFFFFFFFF).to_bytes(4, "little") for i in range(4099))
    return (block * (size // len(block) + 1))[:size]


def build(root):
    """Fills the directory `root`, which may be given as str."""
    root = os.fsencode(root)
    os.makedirs(root, exist_ok=True)

    def path(*parts):
        return os.path.join(root, *(os.fsencode(part) for part in parts))

    def write(name, content, mode=0o644):
        with open(path(name), "wb") as file:
            file.write(content)
        os.chmod(path(name), mode)

    for seed, size in enumerate(SIZES):
        write(f"size-{size}", pattern(size, seed))
    write("script.sh", b"#!/bin/sh\necho ran \"$@\"\n", 0o755)

    # Names
    for name in (b"with space", b"with\nnewline", b"with\ttab", b"\xff\xfe not utf-8 \x80", b"-rf", b"*", b"'\"\\$`",
                 "äöü-名前".encode(), b"n" * 255, b"..dots", b"...", b" "):
        write(name, b"content of " + name)
    deep = path("deep")
    for level in range(40):
        deep = os.path.join(deep, b"level%02d" % level)
    os.makedirs(deep)
    with open(os.path.join(deep, b"bottom"), "wb") as file:
        file.write(b"down here")

    # Links
    os.makedirs(path("target directory"))
    write("target directory/file", b"reached")
    os.link(path("size-4096"), path("hard link"))
    os.symlink(b"size-4097", path("relative link"))
    os.symlink(b"target directory", path("link to directory"))
    os.symlink(path("size-4097"), path("absolute link"))
    os.symlink(path("target directory"), path("absolute link to directory"))
    os.symlink(path("target directory") + b"//./file", path("absolute link, not tidy"))
    os.symlink(b"nowhere", path("dangling link"))
    os.symlink(path("nowhere"), path("absolute dangling link"))
    os.symlink(b"/etc/hostname", path("link that leaves the tree"))
    os.symlink(path("target directory/../../outside"), path("link that climbs out of the tree"))
    os.symlink(b"/usr/.." + path("size-4097"), path("link that climbs into the tree"))
    os.symlink(b"/proc/self/mounts", path("link to a kernel filesystem"))
    os.symlink(b"loop", path("loop"))
    os.symlink(b"x" * 4000, path("long link"))

    # Directories
    os.makedirs(path("empty directory"))
    os.makedirs(path("huge directory"))
    for number in range(HUGE_DIRECTORY):
        os.close(os.open(path("huge directory", f"entry-{number:05}"), os.O_CREAT | os.O_WRONLY, 0o644))
    os.makedirs(path("sticky"))
    os.chmod(path("sticky"), 0o1777)

    # Holes: at the front, in the middle, at the end, and nothing else
    with open(path("sparse"), "wb") as file:
        file.seek(5 << 20)
        file.write(b"island")
        file.truncate(12 << 20)
    with open(path("only a hole"), "wb") as file:
        file.truncate(64 << 20)

    # Special files
    os.mkfifo(path("fifo"))
    with socket.socket(socket.AF_UNIX) as listener:
        directory = os.open(root, os.O_PATH)  # a socket's path is short
        listener.bind(f"/proc/self/fd/{directory}/socket")
        os.close(directory)
    if os.geteuid() == 0:
        os.mknod(path("character device"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.mknod(path("block device"), stat.S_IFBLK | 0o600, os.makedev(7, 200))

    # Attributes
    write("set-user-id", b"", 0o4755)
    write("no rights at all", b"secret", 0)
    write("very old", b"old")
    os.utime(path("very old"), ns=(1, 1_000_000_001))
    write("before the epoch", b"older")
    os.utime(path("before the epoch"), ns=(-5_000_000_000, -4_999_999_999))
    write("far future", b"new")
    os.utime(path("far future"), ns=(4_000_000_000_123_456_789, 4_000_000_000_123_456_789))
    if os.geteuid() == 0:
        write("other owner", b"theirs")
        os.chown(path("other owner"), 12345, 54321)
    write("with attributes", b"x")
    os.setxattr(path("with attributes"), "user.small", b"value")
    os.setxattr(path("with attributes"), "user.binary", bytes(range(256)))
    os.setxattr(path("with attributes"), "user.empty", b"")
    os.setxattr(path("target directory"), "user.of-directory", b"value")
    write("with list", b"x")
    subprocess.run(["setfacl", "-m", "u:12345:rw", path("with list")], check=True)


def attributes(entry):
    """The result of stat(2) without the device number, which a mirror cannot keep, and the access time, which it must not."""
    return {name: getattr(entry, name) for name in (
        "st_mode", "st_nlink", "st_uid", "st_gid", "st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_rdev",
        "st_blocks", "st_blksize")}


def list_names(directory):
    """Names with the types and inode numbers from the directory itself."""
    with os.scandir(directory) as entries:
        return {entry.name: (entry.inode(), entry.is_dir(follow_symlinks=False), entry.is_symlink(),
                             entry.is_file(follow_symlinks=False)) for entry in entries}


class Comparison:
    """Walks an original and its mirror side by side and collects the `differences`."""

    def __init__(self, mount, tree, rewritten_links):
        self.mount = os.fsencode(mount)
        self.tree = os.fsencode(tree)
        self.rewritten_links = rewritten_links
        self.differences = []
        self.entries = 0
        self.bytes = 0

    def run(self):
        self.compare_entry(self.tree)
        return self.differences

    def differ(self, path, what):
        self.differences.append(f"{os.fsdecode(path)!r}: {what}")

    def link_told(self, target):
        place = os.path.realpath(target)
        inside = target.startswith(b"/") and (place == self.tree or place.startswith(self.tree + b"/"))
        return self.mount + target if self.rewritten_links and inside else target

    def compare_entry(self, path):
        mirror = self.mount + path
        self.entries += 1
        try:
            ours, theirs = os.lstat(mirror), os.lstat(path)
        except OSError as error:
            self.differ(path, error)
            return
        told, real = attributes(ours), attributes(theirs)
        if stat.S_ISLNK(theirs.st_mode):
            target = self.link_told(os.readlink(path))
            real["st_size"] = len(target)
            if os.readlink(mirror) != target:
                self.differ(path, f"link to {os.readlink(mirror)!r} instead of {target!r}")
        for name, value in real.items():
            if told[name] != value:
                self.differ(path, f"{name} is {told[name]} instead of {value}")
        self.compare_extended(path, mirror)
        if stat.S_ISDIR(theirs.st_mode):
            self.compare_directory(path, mirror)
        elif stat.S_ISREG(theirs.st_mode):
            self.compare_bytes(path, mirror)

    def compare_directory(self, path, mirror):
        told, real = list_names(mirror), list_names(path)
        if told != real:
            names = sorted(name for name in told.keys() | real.keys() if told.get(name) != real.get(name))
            self.differ(path, f"lists {len(told)} instead of {len(real)} entries, or others: {names[:5]}")
        for name in sorted(real):
            self.compare_entry(os.path.join(path, name))

    def compare_bytes(self, path, mirror):
        with open(path, "rb") as theirs, open(mirror, "rb") as ours:
            while True:
                expected, found = theirs.read(1 << 20), ours.read(1 << 20)
                self.bytes += len(found)
                if expected != found:
                    self.differ(path, f"other bytes before {theirs.tell()}")
                    return
                if not expected:
                    return

    def compare_extended(self, path, mirror):
        """Extended attributes, including access control lists (which are system attributes)."""
        def read(where):
            return {name: os.getxattr(where, name, follow_symlinks=False)
                    for name in os.listxattr(where, follow_symlinks=False)}
        try:
            expected, found = read(path), read(mirror)
        except OSError as error:
            self.differ(path, f"extended attributes: {error}")
            return
        if expected != found:
            self.differ(path, f"extended attributes {found} instead of {expected}")
