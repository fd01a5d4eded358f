"""fio, IOR with mdtest, and the programs of xfstests that read."""

import json
import os
import re
import shutil
import socket
import subprocess

from common import build, change, finish, in_view, start, unpack, why_no_archive, why_not_installed
from copper import Copper, CopperError

SECONDS_MAX = 300


class Fio:
    """Written with checksums on the original; they are verified there, and on two nodes at once."""
    NODES = 2

    def __init__(self, place, options):
        self.place = place

    @staticmethod
    def why_not():
        return None if shutil.which("fio") else "fio is not installed (tools/setup suites)"

    def words(self, block, *more):
        return ["fio", "--name=job", f"--filename=blocks-of-{block}", f"--bs={block}", "--size=40M", "--verify=crc32c",
                "--output-format=json", "--randseed=7", *more]

    def verify(self, directories, words):
        """What fio says of each job. All directories at once."""
        for process in [start(words, directory) for directory in directories]:
            code, output = finish(process, SECONDS_MAX)
            errors, _, report = output.partition("{")
            found = [f"exit code {code}"] if code == 0 else [f"exit code {code}", errors.strip()]
            if report:
                found += [f"error {job['error']}, {job['read']['io_bytes']} bytes" for job in json.loads("{" + report)["jobs"]]
            yield "\n".join(found)

    def run(self):
        tree = self.place / "original"
        tree.mkdir()
        cases = {}
        for block in ("4k", "1M"):
            build(self.words(block, "--rw=randwrite", "--do_verify=0", "--ioengine=psync"), tree)
            for engine in ("psync", "mmap", "libaio", "io_uring"):
                for order in ("read", "randread"):
                    for direct in (0, 1):
                        cases[f"{engine} {order} {block} direct={direct}"] = self.words(
                            block, f"--rw={order}", f"--ioengine={engine}", f"--direct={direct}", "--iodepth=8", "--numjobs=2",
                            "--readonly", "--verify_fatal=1")
        original = {case: next(self.verify([tree], words)) for case, words in cases.items()}
        mirrors = {f"node {node}": {} for node in range(self.NODES)}
        with Copper(nodes=self.NODES, trees=[tree]) as job:
            for case, words in cases.items():
                outcomes = self.verify([job.mirrored(node, tree) for node in range(self.NODES)], words)
                for mirror, outcome in zip(mirrors.values(), outcomes):
                    mirror[case] = outcome
        return original, mirrors


class Ior:
    """IOR and mdtest, whose ranks read through a node each what others have written on the original."""
    NODES = 4
    # What both phases have, and what only reading has.
    IOR = {"shared": ([], ["-C"]), "file per process": (["-F"], ["-C"]), "random": (["-z", "--random-offset-seed=7"], []),
           "segments": (["-s", "4"], ["-Z", "-X", "3"]), "direct": (["--posix.odirect"], ["-C"]), "mmap": (["-a", "MMAP"], ["-C"]),
           "MPI-IO": (["-a", "MPIIO"], ["-C"]),
           "MPI-IO, collective": (["-a", "MPIIO", "-c"], [])}
    MDTEST = {"files": (["-F", "-n", "200", "-N", "1"], ["-E", "-X"]), "directories": (["-D", "-n", "50", "-N", "1"], []),
              "deep": (["-z", "2", "-b", "3", "-n", "130", "-N", "1"], ["-E", "-X"]),
              "random": (["-F", "-n", "100", "-R", "--random-seed=5"], []), "one file": (["-F", "-S", "-n", "50"], ["-E"])}

    def __init__(self, place, options):
        self.place = place
        self.tree = place / "original"

    @staticmethod
    def why_not():
        missing = next((name for name in ("autoreconf", "mpicc", "mpirun") if not shutil.which(name)), None)
        return why_no_archive("ior") or (f"{missing} is not installed (tools/setup suites)" if missing else None)

    def run_ranks(self, words, job=None):
        launcher = ["mpirun", "-n", self.NODES]
        if "Open MPI" in subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True).stdout:
            launcher += ["--allow-run-as-root", "--oversubscribe"]
        if job:
            view = " ".join(in_view(job, 0)).replace(job.root(0), f"{job.mount}.${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}")
            launcher += ["sh", "-c", f'exec {view} "$@"', "sh"]
        code, output = finish(start([*launcher, *words], self.place, job and job.environment), SECONDS_MAX)
        complaints = re.findall(r"^.*(?:WARNING|ERROR|FAILED|rror:).*$", output, re.MULTILINE)
        rates = re.findall(r"^(read |   ?\w+ (?:stat|read)) +([\d.]+)", output, re.MULTILINE)
        return "\n".join([f"exit code {code}", *sorted(complaints), *(what.strip() for what, rate in rates if float(rate) > 0)])

    def run_on_original(self, words):
        if not (found := self.run_ranks(words)).startswith("exit code 0"):
            raise CopperError(f"{' '.join(map(str, words))}: {found}")
        return found

    def run(self):
        self.tree.mkdir()
        source = unpack("ior", self.place)
        # It means to read, but the number of O_RDONLY is none of its own flags, and so it opens for writing.
        change(source / "src/mdtest.c", ("backend->open (item, O_RDONLY,", "backend->open (item, IOR_RDONLY,"))
        for words in (["sh", "./bootstrap"], ["./configure", "--with-lustre=no"], ["make", f"-j{os.cpu_count()}"]):
            build(words, source)
        reads, written = {}, []
        for number, (case, (both, reading)) in enumerate(self.IOR.items()):
            common = [source / "src/ior", "-b", "5m", "-t", "256k", "-G", "1234", "-k", "-o", self.tree / f"ior-{number}", *both]
            written.append([*common, "-w"])
            reads[f"IOR {case}"] = [*common, "-r", "-R", *reading]
        for number, (case, (both, reading)) in enumerate(self.MDTEST.items()):
            (self.tree / f"mdtest-{number}").mkdir()
            common = [source / "src/mdtest", "-G", "1234", "-d", self.tree / f"mdtest-{number}", *both]
            written.append([*common, "-C", "-w", "5000"])
            reads[f"mdtest {case}"] = [*common, "-T", "-e", "5000", *reading]
        for words in written:
            self.run_on_original(words)
        original = {case: self.run_on_original(words) for case, words in reads.items()}
        with Copper(nodes=self.NODES, trees=[self.tree]) as job:
            mirror = {case: self.run_ranks(words, job) for case, words in reads.items()}
        return original, {f"{self.NODES} nodes": mirror}


# Programs that write what they read then find it written already: on a read-only filesystem, writing does nothing.
PRELOADED = r"""
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define IS_FOR_READING(fd) ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY)
#define ELSE(fd, done, name, ...) (fd > 2 && IS_FOR_READING(fd) ? (done) : NEXT(name)(__VA_ARGS__))
static int open_as_can_be(int at, const char *path, int flags, int mode) {
    const int fd = (int)syscall(SYS_openat, at, path, flags, mode);
    return fd >= 0 || (errno != EROFS && errno != EEXIST) ? fd
        : (int)syscall(SYS_openat, at, path, flags & ~(O_ACCMODE | O_CREAT | O_TRUNC | O_EXCL), 0);
}
#define OPEN(name, at, ...) int name(__VA_ARGS__ const char *path, int flags, ...) { \
    va_list more; va_start(more, flags); const int mode = va_arg(more, int); va_end(more); \
    return open_as_can_be(at, path, flags, mode); }
#define DIRECTORY int directory,
OPEN(open, AT_FDCWD) OPEN(open64, AT_FDCWD) OPEN(openat, directory, DIRECTORY) OPEN(openat64, directory, DIRECTORY)
FILE *fopen(const char *path, const char *mode) {
    FILE *file = NEXT(fopen)(path, mode);
    return file ? file : NEXT(fopen)(path, "r");
}
ssize_t write(int fd, const void *from, size_t size) { return ELSE(fd, (ssize_t)size, write, fd, from, size); }
ssize_t pwrite(int fd, const void *from, size_t size, off_t at) { return ELSE(fd, (ssize_t)size, pwrite, fd, from, size, at); }
ssize_t pwrite64(int fd, const void *from, size_t size, off_t at) { return ELSE(fd, (ssize_t)size, pwrite, fd, from, size, at); }
int ftruncate(int fd, off_t size) { return ELSE(fd, 0, ftruncate, fd, size); }
int ftruncate64(int fd, off_t size) { return ELSE(fd, 0, ftruncate, fd, size); }
int fallocate(int fd, int mode, off_t at, off_t size) { return ELSE(fd, 0, fallocate, fd, mode, at, size); }
int fallocate64(int fd, int mode, off_t at, off_t size) { return ELSE(fd, 0, fallocate, fd, mode, at, size); }
int mkdir(const char *path, mode_t mode) { NEXT(mkdir)(path, mode); return 0; }
int unlink(const char *path) { (void)path; return 0; }
"""


class Xfstests:
    """The original is what the programs have written when they ran there."""
    NODES = 2
    ENDLESS_SECONDS = 3
    # %: the directory; the working directory is elsewhere, and there may be written. (splice-test -r ends by SIGPIPE now and then,
    # also on the original.)
    PROGRAMS = """
        t_dir_offset2 %/names
        t_dir_offset2 %/names 128
        t_dir_offset2 %/names 4096 name-17
        t_dir_offset2 %/names 4096 absent
        t_dir_type %/types
        t_dir_type %/types d
        t_dir_type %/types f
        t_dir_type %/types l
        t_dir_type %/types c
        t_dir_type %/types b
        t_dir_type %/types p
        t_dir_type %/types s
        t_dir_type %/types INODE
        t_readdir_1 %/names
        t_readdir_2 %/names
        t_readdir_3 %/many 3000 7
        rewinddir-test %
        seek_copy_test %/sparse/holes copy && sha256sum copy
        splice-test %/splice-0
        splice-test -d %/splice-2
        splice2pipe %/types/file 1 x && sha256sum %/types/file
        mmapcat %/types/file
        t_mmap_write_ro %/types/file %/types/file
        uring_read_fault %/uring
        listxattr %/types/file
        listxattr %/types/file 4
        open_by_handle -cn %/handles 20
        stat_test %/types/file ts_order attr=-append attr=-immutable stx_type=file
        stat_test %/types/link ts_order stx_type=sym
        stat_test %/types ts_order stx_type=dir
        xfsfind %/types
        xfsfind -r -b %/types
        xfsfind -a %/types
        xfsfind -d %
        lstat64 %/types/file %/types/link %/types/fifo %/types/character %/sparse/holes
        fssum -cs -A -f %/types
        fssum -cs -A -f %/sparse
        fssum -c -A -f -x %/seek %
    """

    def __init__(self, place, options):
        self.place = place
        self.tree = place / "original"
        self.programs = place / "programs"

    @staticmethod
    def why_not():
        return (why_no_archive("xfstests") or
                why_not_installed("/usr/include/xfs/xfs.h") or why_not_installed("/usr/include/liburing.h") or
                (None if os.geteuid() == 0 else "needs root, for files of all types"))

    def prepare(self):
        """What the programs do not write themselves."""
        for name in ("names", "types", "types/directory", "sparse", "seek", "many", "handles"):
            (self.tree / name).mkdir(parents=True)
        for number in range(300):
            (self.tree / f"names/name-{number}").touch()
        types = self.tree / "types"
        (types / "file").write_text("a line of text\n" * 1000, encoding="ascii")
        os.setxattr(types / "file", "user.name", b"value")
        os.symlink("file", types / "link")
        os.mkfifo(types / "fifo")
        os.mknod(types / "character", 0o020644, os.makedev(1, 3))
        os.mknod(types / "block", 0o060644, os.makedev(7, 250))
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.fspath(types / "socket"))
        with open(self.tree / "sparse/holes", "wb") as file:
            for place in (0, 65536, 1 << 20, 7 << 20, (40 << 20) + 4096):
                file.seek(place)
                file.write(b"x" * 5000)
            file.truncate(50 << 20)

    def build(self, cases):
        source = unpack("xfstests", self.place) / "src"
        # The file by which it finds out what the filesystem can is written on each side.
        change(source / "seek_sanity_test.c", ("fd = do_create(base_file_path);", 'fd = do_create("base");'))
        change(source / "xfsfind.c", ("#include <stdio.h>", "#include <stdio.h>\n#include <errno.h>"))
        (source / "config.h").write_text("#define HAVE_XFS_XFS_H\n#define STDC_HEADERS\n", encoding="ascii")
        (source / "preloaded.c").write_text(PRELOADED, encoding="ascii")
        self.programs.mkdir()
        compiler = ["gcc", "-w", "-D_GNU_SOURCE", "-I", source]
        build([*compiler, "-shared", "-fPIC", "preloaded.c", "-o", self.programs / "preloaded.so", "-ldl"], source)
        for program in {case.split()[0] for case in cases}:
            more = {"fssum": ["md5.c"], "uring_read_fault": ["-luring"]}.get(program, [])
            build([*compiler, f"{program}.c", "-o", self.programs / program, *more], source)

    def outcomes(self, cases, name, root):
        """Of all programs on one side, whose tree is mirrored below `root`, or the original."""
        work = self.place / name
        work.mkdir()
        found = {}
        for case in cases:
            words = case.replace("%", root + str(self.tree)).replace("INODE", str(os.stat(self.tree / "types/file").st_ino))
            process = start(["bash", "-c", f"export LD_PRELOAD={self.programs}/preloaded.so; {words}"], work,
                            PATH=f"{self.programs}:{os.environ['PATH']}")
            is_endless = case.startswith(("t_readdir_1", "t_readdir_2"))
            code, output = finish(process, self.ENDLESS_SECONDS if is_endless else SECONDS_MAX)
            output = (output.replace(root, "") if root else output).replace(str(work), "")
            output = re.sub(r"Device: *\d+,\d+ *|^Access: .*\n|\(\d+\.[\d:]+\)$", "", output, flags=re.MULTILINE)
            if case.startswith(("t_dir_type", "xfsfind")):  # in any order
                output = "\n".join(sorted(output.splitlines()))
            found[case] = f"exit code {code}\n{output}"
        return found

    def run(self):
        cases = [line.strip() for line in self.PROGRAMS.strip().splitlines()]
        cases[17:17] = [f"seek_sanity_test -s {number} -e {number} %/seek/file" for number in range(1, 23)]
        self.build(cases)
        self.prepare()
        original = {case: outcome for case, outcome in self.outcomes(cases, "work", "").items() if "Test skipped" not in outcome}
        os.sync()
        with Copper(nodes=self.NODES, trees=[self.tree]) as job:
            return original, {f"node {node}": self.outcomes(original, f"work-{node}", job.root(node)) for node in range(self.NODES)}
