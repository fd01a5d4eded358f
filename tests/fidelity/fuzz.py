#!/usr/bin/python3
"""Makes the same system calls on a mirror and on a read-only bind mount of the original, and prints where they differ.

    tests/fidelity/fuzz.py [--seeds N] [--first S] [--calls N] [--user root|nobody] [--refreshes N] [--place DIR] [--verbose]
    tests/fidelity/fuzz.py [--seeds N] [--first S] ... --made DIR

Each seed is a tree and a list of calls (calls.py). The tree is mirrored on two nodes; each call is made on the original's bind mount
and on both mirrors, by one process, in a mount namespace where everything else is read-only. Needs root. The exit code is 1 if any
call gave something else than on the original, except what is_known() lists, which docs/use/trees.md tells users.

--refreshes: so often, the trees are changed and the mirror is refreshed, and other calls are made. --place: where to make the trees.
--made: they are there, made by make_trees().
"""

import argparse
import collections
import ctypes
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import typing

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]

from calls import NOBODY, Side, change_tree, libc, make_call, make_tree, perform
from copper import Copper, CopperError, as_nobody, device_for_everybody, handle_termination

MOUNT_SETATTR = 442  # of syscall(2), on all machines
NODES = 2
TREES_OF_A_LAUNCH = 50
# Names of extended attributes that no Linux filesystem has, but FUSE clients are asked for.
NO_NAMESPACE = ("system.other", "nonsense", "")


def dice_of(seed, what):
    return random.Random(f"{seed} {what}")


# What users are told of (docs/use/trees.md): a call, what the original gives, and what the mirror gives.
KNOWN = {
    # Each name of a file is locked for itself; and the reader may have the original open.
    ("lock", "EAGAIN", "ok"), ("lease", "EAGAIN", "ok"),
    # What only the original's filesystem answers: the map of its blocks, its flags.
    ("ioctl", "ok", "ENOTTY"), ("ioctl", "ok", "ENOTSUP"), ("ioctl", "EINVAL", "ENOTSUP"), ("ioctl", "EINVAL", "ENOTTY"),
    # The kernel passes poll(2) on to a FUSE filesystem, so epoll takes its files; none reads without waiting.
    ("epoll", "EPERM", "ok"), ("read_nowait", "ok", "ENOTSUP"), ("read_nowait", "EAGAIN", "ENOTSUP"),
    # The client may have opened it without the page cache (MooseFS).
    ("mmap", "ENODEV", "ok"),
}
# The mirror's filesystem is read-only, not just its mount. So the kernel says EROFS to these before it looks at rights.
CHANGES = {"access", "faccessat2", "connect", "truncate", "unlink", "rmdir", "mkdir", "mknod", "rename", "link", "symlink", "chmod", "lchown",
           "utimens", "setxattr", "removexattr"}


class Original(typing.NamedTuple):
    """What kind of filesystem it is."""
    checks_rights: bool  # FUSE: unless it leaves that to the kernel (default_permissions, fuse(4))
    has_numbers: bool  # but sshfs, which makes them up, others on each node

    @classmethod
    def at(cls, path):
        kind, options = subprocess.run(["findmnt", "-n", "-o", "FSTYPE,OPTIONS", "-T", path], capture_output=True, text=True,
                                       check=True).stdout.split()
        return cls(kind.startswith("fuse") and "default_permissions" not in options, kind != "fuse.sshfs")


def without_numbers(name, result):
    if result[0] != "ok" or name not in ("stat", "lstat", "fstat", "scandir"):
        return result
    return [(entry[0], *entry[2:]) for entry in result[1]] if name == "scandir" else (result[1][0], *result[1][2:])


def is_known(name, arguments, expected, found, original):
    if not original.has_numbers and without_numbers(name, expected) == without_numbers(name, found):
        return True
    if name == "listxattr" and os.geteuid() != 0 and expected[0] == found[0] == "ok":
        # Some filesystems list it to everybody (listxattr(2)).
        return expected[1][0] - found[1][0] == len(b"trusted.t\0")
    expected, found = gist(expected), gist(found)
    if name == "getxattr" and (arguments[1] == "security.selinux" or
                               arguments[1] in NO_NAMESPACE and (expected, found) == ("ENODATA", "ENOTSUP") or
                               arguments[1].startswith("security.") and (expected, found) == ("EACCES", "ENODATA")):  # CephFS
        return True
    if original.checks_rights and (name in ("access", "faccessat2") or found == "EACCES" or
                                   name == "open" and arguments[2] & os.O_APPEND and expected == "EACCES"):
        return True  # GlusterFS wants the right to write for O_RDONLY with O_APPEND, too
    if found == "EROFS":
        for_writing = name == "open" and arguments[2] & (os.O_ACCMODE | os.O_TRUNC | os.O_CREAT)
        return (name in CHANGES and expected in ("EACCES", "EPERM", "ECONNREFUSED") or
                for_writing and (expected in ("EACCES", "EPERM") or arguments[2] & os.O_ACCMODE == os.O_ACCMODE))
    if not original.has_numbers and (expected == "EBADMSG" or (name, expected) == ("fstatvfs", "ENOENT")):
        return True  # sshfs: a name that is too long; a path that it has forgotten
    return (name, expected, found) in KNOWN


def gist(result):
    return result[1] if result[0] == "error" else result[0]


def shut_in(original, reference, user):
    """Mounts `reference`, and makes everything read-only for this process, which becomes `user`."""
    for words in (["--bind", original, reference], ["-o", "remount,bind,ro,nosuid,nodev", reference]):
        subprocess.run(["mount", *words], check=True)
    # struct mount_attr: what to set is MOUNT_ATTR_RDONLY. -1: the current directory does not count. 0x8000: AT_RECURSIVE.
    setting = struct.pack("QQQQ", 1, 0, 0, 0)
    if libc.syscall(MOUNT_SETATTR, -1, b"/", 0x8000, setting, len(setting)) != 0:
        raise OSError(ctypes.get_errno(), "mount_setattr")
    if user == "nobody":
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def compare(options, original, roots):
    """As the user who makes the calls. Prints each difference; returns their number."""
    differences, good = collections.Counter(), 0
    kind = Original.at(original)
    for seed in range(options.first, options.first + options.seeds):
        place = os.path.join(b"%d" % seed)
        paths = paths_of(options.paths, seed)
        dice = dice_of(seed, f"calls {options.round}" if options.round else "calls")
        sides = [Side(os.path.join(os.fsencode(root), place)) for root in (original, *roots)]
        for number in range(options.calls):
            name, arguments = make_call(dice, paths)
            if options.verbose:
                print(f"{seed} {number}: {name}{tuple(arguments)!r:.200}", file=sys.stderr)
            expected, *answers = [perform(side, name, arguments) for side in sides]
            good += expected[0] == answers[0][0] == "ok"
            if name.startswith("open") and any(found != expected for found in answers):
                for side in sides:
                    side.close_one(arguments[0])
            if name == "lseek" and any(found != expected for found in answers):
                for side in sides:
                    perform(side, name, (arguments[0], 0, os.SEEK_SET))  # what follows depends on it
            for node, found in enumerate(answers):
                if found != expected and not is_known(name, arguments, expected, found, kind):
                    differences[name, gist(expected), gist(found)] += 1
                    if options.verbose:
                        print(f"seed {seed}, call {number}, node {node}: {name}{tuple(arguments)!r:.300}\n"
                              f"    {expected!r:.300}\n    {found!r:.300}")
        for side in sides:
            side.close()
            os.close(side.root)
    for (name, expected, found), count in sorted(differences.items()):
        print(f"{name}: {expected} on the original, {found} on the mirror: {count} times")
    print(f"{good} of {options.seeds * options.calls} calls succeeded", flush=True)
    return sum(differences.values()) + (good < options.seeds * options.calls / 10)


def make_trees(directory, seeds):
    """The trees, in directory/original, and what paths they have, in directory/paths."""
    for name in ("original", "paths"):
        os.mkdir(f"{directory}/{name}")
    for seed in seeds:
        root = os.fsencode(f"{directory}/original/{seed}")
        os.mkdir(root)
        keep_paths(directory, seed, make_tree(dice_of(seed, "tree"), root) or [b"."])


def change_trees(directory, seeds, number):
    for seed in seeds:
        root = os.fsencode(f"{directory}/original/{seed}")
        keep_paths(directory, seed, change_tree(dice_of(seed, f"change {number}"), root, paths_of(f"{directory}/paths", seed)))


def keep_paths(directory, seed, paths):
    pathlib.Path(directory, "paths", str(seed)).write_text("\0".join(path.decode("latin-1") for path in paths), encoding="latin-1")


def paths_of(directory, seed):
    return [path.encode("latin-1") for path in pathlib.Path(directory, str(seed)).read_text(encoding="latin-1").split("\0")]


def fuzz(options, user):
    """With one mirror. Returns whether calls differed."""
    prefix, keeper = [], None
    directory = tempfile.mkdtemp(prefix="copper-test-", dir="/tmp")
    software = options.made or tempfile.mkdtemp(prefix="copper-test-", dir=options.place)
    seeds = range(options.first, options.first + options.seeds)
    original, paths, reference = f"{software}/original", f"{software}/paths", f"{directory}/reference"
    try:
        for each in (reference, f"{directory}/job"):
            os.mkdir(each)
        os.chmod(directory, 0o755)
        if not options.made:
            os.chmod(software, 0o755)
            make_trees(software, seeds)
            os.sync()  # some filesystems allocate blocks late
        with device_for_everybody() as keeper:
            prefix = ["nsenter", "-t", str(keeper), "-m", "--"]
            if user == "nobody":
                os.chown(f"{directory}/job", NOBODY, NOBODY)
                prefix += as_nobody()
            with Copper(nodes=NODES, trees=[original], options=["--no-rewrite-symlinks"], prefix=prefix,
                        directory=f"{directory}/job", mounted_for=keeper) as job:
                words = [sys.executable, __file__, "--user", user, "--first", options.first, "--seeds", options.seeds, "--calls", options.calls,
                         "--paths", paths, *(["--verbose"] if options.verbose else []),
                         "--compare", original, reference, *(job.mirrored(node, original) for node in range(NODES))]
                alone = ["nsenter", "-t", str(keeper), "-m", "--", "unshare", "--mount", "--propagation", "private", "--"]
                codes = set()
                for number in range(1 + options.refreshes):
                    if number > 0:
                        change_trees(software, seeds, number)
                        os.sync()
                        done = job.command("refresh", "--mount", job.mount)
                        if done.returncode != 0:
                            raise CopperError(done.stdout + done.stderr)
                    codes.add(subprocess.run([*alone, *map(str, words), "--round", str(number)], check=False).returncode)
                if codes - {0, 1}:
                    print(f"ended by {codes}")
                return codes != {0}
    finally:
        for each in (directory, *([] if options.made else [software])):
            shutil.rmtree(each, ignore_errors=True)


def why_not():
    """The reason why this cannot be run here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if libc.syscall(MOUNT_SETATTR, -1, b"/", 0, struct.pack("QQQQ", 0, 0, 0, 0), 32) != 0:
        return "needs mount_setattr(2), of Linux 5.12"
    return None


def place_for_trees():
    """A directory of a filesystem whose files have the same blocks after they were read, unlike tmpfs; or None."""
    for place in ("/tmp", "/var/tmp", os.fspath(HERE)):
        kind = subprocess.run(["stat", "-f", "-c", "%T", place], capture_output=True, text=True, check=True).stdout.strip()
        if kind in ("ext2/ext3", "xfs"):
            return place
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1000)
    parser.add_argument("--refreshes", type=int, default=0, help="how often to change the trees and refresh the mirror")
    parser.add_argument("--round", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--user", choices=("root", "nobody"))
    parser.add_argument("--verbose", action="store_true", help="each call that differs")
    parser.add_argument("--compare", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--paths", help=argparse.SUPPRESS)
    parser.add_argument("--place", default=place_for_trees(), help="where to make the trees (default: an ext4 or XFS)")
    parser.add_argument("--made", help="where they are")
    options = parser.parse_args()
    if options.compare:
        original, reference, *roots = options.compare
        shut_in(original, reference, options.user)
        return 1 if compare(options, reference, roots) else 0
    if reason := why_not() or (None if options.made or options.place else "neither /tmp nor /var/tmp is an ext4 or XFS"):
        print(reason)
        return 77
    handle_termination()
    failed = 0
    last = options.first + options.seeds
    for user in [options.user] if options.user else ["root", "nobody"]:
        for first in range(options.first, last, TREES_OF_A_LAUNCH):
            seeds = min(TREES_OF_A_LAUNCH, last - first)
            print(f"{user}, seeds {first} to {first + seeds - 1}", flush=True)
            failed |= fuzz(argparse.Namespace(**{**vars(options), "first": first, "seeds": seeds}), user)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
