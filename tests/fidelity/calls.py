"""Trees and system calls by seed: what a differential fuzzer does to two filesystems that should be equal.

A call is a name and arguments without any state, so it can be made on each side, and printed to be made again. A Side is a
directory that takes the calls, with the files that earlier calls have opened there.
"""

import array
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import select
import shutil
import socket
import stat
import struct

libc = ctypes.CDLL(None, use_errno=True)
OPENAT2, FACCESSAT2 = 437, 439  # of syscall(2), on all machines

NOBODY = 65534
MODES = (0o644, 0o600, 0o400, 0o000, 0o755, 0o711, 0o4755, 0o2755, 0o1777, 0o060, 0o006)
OWNERS = ((0, 0), (NOBODY, NOBODY), (1234, 5678), (NOBODY, 0))
SIZES = (0, 1, 10, 4095, 4096, 4097, 100_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_500_000)
LENGTHS = (0, 1, 7, 512, 4096, 70_000, 1 << 20, (1 << 20) + 4096)
STAMPS = (0, 1, 999_999_999, 1_600_000_000_123_456_789, 4_000_000_000_000_000_000, 1_700_000_000_000_000_000)
NAMES = (b"a", b"b.py", b"lib.so.1", "\u00fc\u4e2d".encode(), b"\xff\xfe", b"new\nline", b"sp ace", b"x" * 255, b"-", b".hidden", b"%s")
# Of F_GETFL: O_LARGEFILE, which depends on the machine, and O_ASYNC, which the kernel drops for some files and not for others.
FLAGS_IGNORED = 0o100000 | 0o20000
# FIONREAD, TCGETS, TIOCGWINSZ, one that is none, FS_IOC_GETFLAGS, FS_IOC_FIEMAP
IOCTLS = (0x541B, 0x5401, 0x5413, 0x1234, 0x8008_6601, 0xC020_660B)
XATTRS = ("user.a", "user.long", "user.empty", "trusted.t")


def make_tree(dice, root):
    """Fills the directory, as root. Returns all paths below it, relative."""
    directories, files, paths = [b""], [], []
    for _ in range(dice.randrange(5, 60)):
        parent = dice.choice(directories)
        path = os.path.join(parent, dice.choice(NAMES) + (b"" if dice.random() < 0.5 else b"%d" % dice.randrange(100)))
        if len(os.path.basename(path)) > 255 or os.path.lexists(os.path.join(root, path)):
            continue
        make_file(dice, root, path, directories, files)
        paths.append(path)
    if dice.random() < 0.1:  # more names than travel together
        os.mkdir(os.path.join(root, b"many"))
        for number in range(3000):
            os.close(os.open(os.path.join(root, b"many/%d" % number), os.O_CREAT))
        paths += [b"many", *(b"many/%d" % number for number in (0, 1, 999, 2999))] * 3
    for path in reversed(paths):
        dress(dice, os.path.join(root, path))
    return paths


def change_tree(dice, root, paths):
    """As root: some of `paths` become other files, are renamed, or are gone. Returns all paths below it, and those that were there."""
    for _ in range(dice.randrange(5, 30)):
        path = os.path.join(root, dice.choice(paths))
        try:
            dice.choice((remove, replace, rename, rewrite, dress))(dice, path, os.path.join(root, dice.choice(paths)))
        except OSError as error:  # what is gone, is no directory any more, or would lie in itself
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ENOTEMPTY, errno.EEXIST, errno.ENXIO,
                                   errno.EBUSY, errno.ELOOP, errno.ENAMETOOLONG):
                raise
    found = {os.path.relpath(os.path.join(place, name), root) for place, *lists in os.walk(root) for name in sum(lists, [])}
    return sorted(found | set(paths))


def remove(_, path, __):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def replace(dice, path, other):
    with contextlib.suppress(FileNotFoundError):
        remove(dice, path, other)
    root, name = os.path.split(path)
    make_file(dice, root, name, [os.path.relpath(other, root)], [])


def rename(_, path, other):
    os.rename(path, other)


def rewrite(dice, path, _):
    """In place, as long as it is a file."""
    if stat.S_ISREG(os.lstat(path).st_mode):
        with open(path, "r+b") as file:
            file.truncate()
            fill(dice, file, dice.choice(SIZES))


def make_file(dice, root, path, directories, files):
    place = os.path.join(root, path)
    kind = dice.random()
    if kind < 0.25:
        os.mkdir(place)
        directories.append(path)
    elif kind < 0.6 or not files:
        with open(place, "wb") as file:
            fill(dice, file, dice.choice(SIZES))
        files.append(path)
    elif kind < 0.7:
        os.link(os.path.join(root, dice.choice(files)), place)
        files.append(path)
    elif kind < 0.92:
        try:
            os.symlink(link_text(dice, root, path, directories + files), place)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # XFS: above 1,024 bytes
                raise
            os.symlink(b"nothing", place)
    else:
        kind = dice.choice((stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFBLK))
        os.mknod(place, kind | 0o666, os.makedev(1, 3) if kind == stat.S_IFCHR else os.makedev(7, 200))


def fill(dice, file, size):
    if dice.random() < 0.3:  # with holes
        file.truncate(size)
        for _ in range(3):
            if size > 10_000:
                file.seek(dice.randrange(0, size - 5000))
                file.write(dice.randbytes(dice.randrange(1, 5000)))
    else:
        file.write(dice.randbytes(min(size, 5000)) * (size // 5000 + 1))
        file.truncate(size)


def link_text(dice, root, path, others):
    other = dice.choice(others)
    return dice.choice((os.path.relpath(os.path.join(b"/", other), os.path.dirname(os.path.join(b"/", path))), b"nothing",
                        b".." if b"/" in path else b".", b"/etc/hostname", os.path.join(root, other), os.path.basename(path), b"a/" * 1000 + b"b",
                        b"../" * 20 + b"etc", b"/" + b"y" * 4000))


def dress(dice, place, _=None):
    """Owner, rights, extended attributes and time stamps."""
    if not os.path.islink(place):
        if dice.random() < 0.3:
            os.chown(place, *dice.choice(OWNERS))
        if dice.random() < 0.5:
            os.chmod(place, dice.choice(MODES))
        if dice.random() < 0.2:
            for name in dice.sample(XATTRS, 2):
                try:
                    os.setxattr(place, name, dice.randbytes({"user.long": 2000, "user.empty": 0}.get(name, 5)))
                except OSError as error:
                    if error.errno not in (errno.EOPNOTSUPP, errno.EPERM):
                        raise
    if dice.random() < 0.7:
        stamp = dice.choice(STAMPS)
        os.utime(place, ns=(stamp, stamp), follow_symlinks=False)


class Side:
    def __init__(self, root):
        self.path = os.fsencode(root)
        self.root = os.open(root, os.O_PATH | os.O_DIRECTORY)
        self.files = {}

    def enter(self):
        os.fchdir(self.root)

    def close(self):
        for file in self.files.values():
            os.close(file)
        self.files = {}

    def close_one(self, slot):
        if slot in self.files:
            os.close(self.files.pop(slot))

    def file(self, slot):
        return self.files.get(slot, -1)

    def has(self, slot):
        """Whether the slot's file lies here: links may lead out, to a file that all sides have open."""
        place = os.readlink(b"/proc/self/fd/%d" % self.file(slot)) if slot in self.files else b""
        return place.startswith(self.path + b"/")

    def keep(self, slot, file):
        self.close_one(slot)
        self.files[slot] = file
        return "open"


def perform(side, name, arguments):
    """What the call gives on this side, in a form that can be compared."""
    side.enter()
    try:
        return "ok", CALLS[name][1](side, *arguments)
    except OSError as error:
        return "error", errno.errorcode.get(error.errno, error.errno)
    except ValueError as error:  # of Python, before any call
        return "refused", str(error)


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result


# --- what calls give


def attributes(found):
    """All but st_dev and the time of the last access, which a mirror does not have."""
    return (found.st_mode, found.st_ino, found.st_nlink, found.st_uid, found.st_gid, found.st_rdev, found.st_size, found.st_blocks,
            found.st_blksize, found.st_mtime_ns, found.st_ctime_ns)


def names(side, path):
    with os.scandir(path) as found:
        return sorted((entry.name, entry.inode(), entry.is_dir(follow_symlinks=False), entry.is_symlink()) for entry in found)


def statx(side, path, flags, mask):
    buffer = ctypes.create_string_buffer(256)
    checked(libc.statx(-100, path, flags, mask, buffer))
    mode, size, blocks = struct.unpack_from("H", buffer, 28)[0], *struct.unpack_from("QQ", buffer, 40)
    return mode, size, blocks, struct.unpack_from("II", buffer, 128)


def statfs(side, path):
    found = os.statvfs(path)
    return found.f_bsize, found.f_frsize, found.f_blocks, found.f_files, found.f_namemax, found.f_flag


def open_file(side, slot, path, flags, mode):
    return side.keep(slot, os.open(path, flags | os.O_NONBLOCK, mode))


def openat2(side, slot, path, flags, resolve):
    how = struct.pack("QQQ", flags | os.O_NONBLOCK, 0, resolve)
    for _ in range(100):
        file = libc.syscall(OPENAT2, -100, path, how, len(how))
        if file >= 0 or ctypes.get_errno() != errno.EAGAIN:
            break  # EAGAIN: somebody renamed or mounted something, anywhere (openat2(2))
    return side.keep(slot, checked(file))


def close(side, slot):
    os.close(side.files.pop(slot, -1))


def lseek(side, slot, offset, whence):
    """Of files: offsets of directories are whatever their filesystem likes. Holes are known where fewer blocks than bytes say so
    (ext4 also counts a block of extended attributes)."""
    found = os.fstat(side.file(slot))
    if not stat.S_ISREG(found.st_mode) or (whence in (os.SEEK_DATA, os.SEEK_HOLE) and found.st_blocks * 512 >= found.st_size):
        return None
    return os.lseek(side.file(slot), offset, whence)


def read(side, slot, length):
    found = os.read(side.file(slot), length)
    return len(found), hash(found)


def pread(side, slot, length, offset):
    found = os.pread(side.file(slot), length, offset)
    return len(found), hash(found)


def preadv(side, slot, lengths, offset):
    buffers = [bytearray(length) for length in lengths]
    return os.preadv(side.file(slot), buffers, offset), hash(bytes().join(buffers))


def map_file(side, slot, length, offset, rights, flags):
    file = side.file(slot)
    if stat.S_ISDIR(os.fstat(file).st_mode):
        raise OSError(errno.ENODEV, "")
    # Only what lies in the file: behind it is SIGBUS.
    size = os.fstat(file).st_size
    with mmap.mmap(file, length, flags=flags, prot=rights, offset=offset) as mapped:
        return hash(mapped[:max(0, min(length, size - offset))]) if rights & mmap.PROT_READ else None


def sendfile(side, slot, length, offset):
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        sent = os.sendfile(writing, side.file(slot), offset, min(length, 4096))
        return sent, hash(os.read(reading, 4096)) if sent else None
    finally:
        os.close(reading)
        os.close(writing)


def splice(side, slot, length, offset):
    reading, writing = os.pipe2(os.O_NONBLOCK)
    try:
        sent = os.splice(side.file(slot), writing, min(length, 4096), offset_src=offset)
        return sent, hash(os.read(reading, 4096)) if sent else None
    finally:
        os.close(reading)
        os.close(writing)


def copy_range(side, slot, length, offset):
    target = os.memfd_create("copy")
    try:
        # Across filesystems, of another or the same type: EXDEV in either case, or a copy.
        return os.copy_file_range(side.file(slot), target, min(length, 4096), offset)
    finally:
        os.close(target)


def ioctl(side, slot, request, bytes_given):
    buffer = array.array("B", bytes(bytes_given))
    fcntl.ioctl(side.file(slot), request, buffer, True)
    return bytes(buffer) if request in (0x541B, 0x5401) else None


def lock(side, slot, kind, way):
    if not side.has(slot):
        return None
    if way == "flock":
        return fcntl.flock(side.file(slot), kind | fcntl.LOCK_NB)
    return fcntl.lockf(side.file(slot), kind | fcntl.LOCK_NB)


def lease(side, slot, kind):
    """Given back at once: whoever opens the file otherwise waits, the mirror's reader included."""
    if not side.has(slot):
        return
    fcntl.fcntl(side.file(slot), fcntl.F_SETLEASE, kind)
    fcntl.fcntl(side.file(slot), fcntl.F_SETLEASE, fcntl.F_UNLCK)


def read_nowait(side, slot, length, offset):
    # Not -1: that would move the position, but only where the call succeeds.
    return os.preadv(side.file(slot), [bytearray(length)], max(offset, 0), os.RWF_NOWAIT)


def epoll(side, slot):
    with select.epoll() as waiting:
        waiting.register(side.file(slot) if slot in side.files else 10_000, select.EPOLLIN)
        return [events for _, events in waiting.poll(0)]


def poll(side, slot):
    poller = select.poll()
    poller.register(side.file(slot) if slot in side.files else 10_000, select.POLLIN | select.POLLOUT)
    return [events for _, events in poller.poll(0)]


def handle(side, path, flags):
    buffer = ctypes.create_string_buffer(struct.pack("Ii", 128, 0), 256)
    where = ctypes.c_int()
    checked(libc.name_to_handle_at(-100, path, buffer, ctypes.byref(where), flags))


def watch(side, path, mask):
    file = checked(libc.inotify_init1(os.O_CLOEXEC))
    try:
        checked(libc.inotify_add_watch(file, path, mask))
    finally:
        os.close(file)


def faccessat2(side, path, mode, flags):
    return checked(libc.syscall(FACCESSAT2, -100, path, mode, flags))


def connect(side, path):
    if len(path) > 100:
        return None
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(path)


def execute(side, path):
    """Of what nobody can execute; what can be executed is not."""
    if not hasattr(libc, "execveat"):  # of glibc 2.34
        return None
    if os.access(path, os.X_OK) and stat.S_ISREG(os.stat(path).st_mode):
        return "could be executed"
    nothing = (ctypes.c_char_p * 1)(None)
    return checked(libc.execveat(-100, path, nothing, nothing, 0))


def xattr(side, path, name, size, follow):
    call = libc.getxattr if follow else libc.lgetxattr
    buffer = ctypes.create_string_buffer(max(size, 1))
    length = checked(call(path, name.encode(), buffer if size else None, size))
    return length, buffer.raw[:length] if size else None


def xattrs(side, path, size, follow):
    call = libc.listxattr if follow else libc.llistxattr
    buffer = ctypes.create_string_buffer(max(size, 1))
    length = checked(call(path, buffer if size else None, size))
    return length, sorted(buffer.raw[:length].split(b"\0")) if size else None


def list_by_descriptor(side, slot):
    if not stat.S_ISDIR(os.fstat(side.file(slot)).st_mode):
        raise OSError(errno.ENOTDIR, "")
    return sorted(os.listdir(side.file(slot)))


# --- which arguments


class Arguments:
    def __init__(self, dice, paths):
        self.dice = dice
        self.paths = paths

    def path(self):
        dice = self.dice
        path = dice.choice(self.paths) if dice.random() < 0.93 else dice.choice((b"", b".", b"nothing", b"z" * 256, b"q/" * 2100))
        kind = dice.random()
        if kind < 0.85:
            return path
        if kind < 0.97:
            return path + dice.choice((b"/", b"/.", b"/..", b"//nothing", b"/nothing/more", b"/" + b"z" * 256, b"\0"))
        return b"./" + path

    def slot(self):
        return self.dice.randrange(4)

    def length(self):
        return self.dice.choice(LENGTHS)

    def offset(self):
        size = self.dice.choice(SIZES)
        return self.dice.choice((0, 0, max(0, size - 3), size, size + 5, self.dice.randrange(4_000_000), 1 << 40, -1))

    def flags(self):
        dice = self.dice
        flags = dice.choice((os.O_RDONLY,) * 12 + (os.O_WRONLY, os.O_RDWR, os.O_PATH, os.O_PATH, 3))
        for more in (os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND, os.O_DIRECTORY, os.O_NOFOLLOW, os.O_NOATIME, os.O_SYNC, os.O_TMPFILE,
                     os.O_ASYNC):
            flags |= more if dice.random() < 0.06 else 0
        return flags

    def mode(self):
        return self.dice.choice(MODES)

    def access(self):
        return self.dice.randrange(8)

    def at_flags(self):
        return self.dice.choice((0, 0x100, 0x200, 0x1000, 0x300, 0x800))

    def follow(self):
        return self.dice.random() < 0.5

    def xattr_name(self):
        return self.dice.choice((*XATTRS, "user.none", "security.selinux", "security.capability", "system.posix_acl_access",
                                 "system.posix_acl_default", "system.other", "nonsense", "", "user." + "n" * 300))

    def owner(self):
        return self.dice.choice((-1, 0, NOBODY))

    def stamp(self):
        return self.dice.choice(STAMPS)

    def of(self, *choices):
        return self.dice.choice(choices)


def change(function):
    """A call that changes something, which must fail. If it does not, the difference is in what comes after."""
    return lambda side, *arguments: function(*arguments)


A = Arguments
CALLS = {
    # name: (arguments, call, weight)
    "lstat": (lambda a: (a.path(),), lambda side, path: attributes(os.lstat(path)), 8),
    "stat": (lambda a: (a.path(),), lambda side, path: attributes(os.stat(path)), 8),
    "statx": (lambda a: (a.path(), a.at_flags(), a.of(0x7FF, 0x1, 0x200, 0)), statx, 2),
    "statvfs": (lambda a: (a.path(),), statfs, 2),
    "access": (lambda a: (a.path(), a.access()), lambda side, path, mode: os.access(path, mode), 5),
    "faccessat2": (lambda a: (a.path(), a.access(), a.at_flags()), faccessat2, 5),
    "readlink": (lambda a: (a.path(),), lambda side, path: os.readlink(path), 5),
    "scandir": (lambda a: (a.path(),), names, 5),
    "open": (lambda a: (a.slot(), a.path(), a.flags(), a.mode()), open_file, 20),
    "openat2": (lambda a: (a.slot(), a.path(), a.of(os.O_RDONLY, os.O_PATH, os.O_DIRECTORY), a.of(0, 1, 2, 4, 8, 16, 24)), openat2, 3),
    "close": (lambda a: (a.slot(),), close, 2),
    "read": (lambda a: (a.slot(), a.length()), read, 8),
    "pread": (lambda a: (a.slot(), a.length(), a.offset()), pread, 10),
    "preadv": (lambda a: (a.slot(), [a.length(), 100], a.offset()), preadv, 2),
    "lseek": (lambda a: (a.slot(), a.offset(), a.of(0, 0, 1, 2, 3, 4, 3, 4, 9)), lseek, 8),
    "mmap": (lambda a: (a.slot(), a.length(), a.of(0, 4096, 1 << 20, 4), a.of(1, 3, 2, 5, 7), a.of(1, 2)), map_file, 5),
    "fstat": (lambda a: (a.slot(),), lambda side, slot: attributes(os.fstat(side.file(slot))), 4),
    "fstatvfs": (lambda a: (a.slot(),), lambda side, slot: os.fstatvfs(side.file(slot)).f_flag, 1),
    "flistdir": (lambda a: (a.slot(),), list_by_descriptor, 3),
    "sendfile": (lambda a: (a.slot(), a.length(), a.offset()), sendfile, 2),
    "splice": (lambda a: (a.slot(), a.length(), a.offset()), splice, 2),
    "copy_file_range": (lambda a: (a.slot(), a.length(), a.offset()), copy_range, 1),
    "readahead": (lambda a: (a.slot(), a.length(), a.of(0, 1, 2, 3, 4, 5)),
                  lambda side, slot, length, advice: os.posix_fadvise(side.file(slot), 0, length, advice), 1),
    "fsync": (lambda a: (a.slot(),), lambda side, slot: os.fsync(side.file(slot)), 1),
    "fdatasync": (lambda a: (a.slot(),), lambda side, slot: os.fdatasync(side.file(slot)), 1),
    "write": (lambda a: (a.slot(),), lambda side, slot: os.write(side.file(slot), b"x"), 1),
    "ftruncate": (lambda a: (a.slot(), a.length()), lambda side, slot, length: os.ftruncate(side.file(slot), length), 1),
    "fallocate": (lambda a: (a.slot(), a.length()), lambda side, slot, length: os.posix_fallocate(side.file(slot), 0, length), 1),
    "fchmod": (lambda a: (a.slot(), a.mode()), lambda side, slot, mode: os.fchmod(side.file(slot), mode), 1),
    "fchown": (lambda a: (a.slot(), a.owner(), a.owner()), lambda side, slot, user, group: os.fchown(side.file(slot), user, group), 1),
    "fcntl": (lambda a: (a.slot(), a.of(1, 3, 9, 1025, 1034, 1032)),
              lambda side, slot, what: fcntl.fcntl(side.file(slot), what) & ~FLAGS_IGNORED, 2),
    "lock": (lambda a: (a.slot(), a.of(1, 2, 8), a.of("flock", "posix")), lock, 2),
    "lease": (lambda a: (a.slot(), a.of(0, 1, 2)), lease, 1),
    "ioctl": (lambda a: (a.slot(), a.of(*IOCTLS), 64), ioctl, 2),
    "poll": (lambda a: (a.slot(),), poll, 1),
    "epoll": (lambda a: (a.slot(),), epoll, 1),
    "read_nowait": (lambda a: (a.slot(), a.length(), a.offset()), read_nowait, 1),
    "fchdir": (lambda a: (a.slot(),), lambda side, slot: os.fchdir(side.file(slot)), 1),
    "chdir": (lambda a: (a.path(),), lambda side, path: os.chdir(path), 2),
    "getxattr": (lambda a: (a.path(), a.xattr_name(), a.of(0, 1, 5, 100, 70_000), a.follow()), xattr, 5),
    "listxattr": (lambda a: (a.path(), a.of(0, 3, 1000, 70_000), a.follow()), xattrs, 4),
    "name_to_handle_at": (lambda a: (a.path(), a.of(0, 0x400)), handle, 1),
    "inotify": (lambda a: (a.path(), a.of(0xFFF, 0x1000_0000 | 0x2)), watch, 1),
    "connect": (lambda a: (a.path(),), connect, 1),
    "execveat": (lambda a: (a.path(),), execute, 1),
    # What changes something.
    "unlink": (lambda a: (a.path(),), change(os.unlink), 2),
    "rmdir": (lambda a: (a.path(),), change(os.rmdir), 2),
    "mkdir": (lambda a: (a.path(), a.mode()), change(os.mkdir), 2),
    "mknod": (lambda a: (a.path(), a.of(stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK) | 0o644), change(os.mknod), 1),
    "rename": (lambda a: (a.path(), a.path()), change(os.rename), 2),
    "link": (lambda a: (a.path(), a.path()), lambda side, old, new: os.link(old, new), 2),
    "symlink": (lambda a: (a.path(), a.path()), change(os.symlink), 1),
    "truncate": (lambda a: (a.path(), a.length()), change(os.truncate), 2),
    "chmod": (lambda a: (a.path(), a.mode()), change(os.chmod), 1),
    "lchown": (lambda a: (a.path(), a.owner(), a.owner()), change(os.lchown), 1),
    "utimens": (lambda a: (a.path(), a.stamp(), a.follow()),
                lambda side, path, stamp, follow: os.utime(path, ns=(stamp, stamp), follow_symlinks=follow), 2),
    "setxattr": (lambda a: (a.path(), a.xattr_name(), a.of(0, 1, 2)),
                 lambda side, path, name, flags: os.setxattr(path, name, b"v", flags), 1),
    "removexattr": (lambda a: (a.path(), a.xattr_name(), a.follow()),
                    lambda side, path, name, follow: os.removexattr(path, name, follow_symlinks=follow), 1),
}
NAMES_OF_CALLS = list(CALLS)
WEIGHTS = [weight for _, _, weight in CALLS.values()]


def make_call(dice, paths):
    name = dice.choices(NAMES_OF_CALLS, WEIGHTS)[0]
    return name, CALLS[name][0](Arguments(dice, paths))
