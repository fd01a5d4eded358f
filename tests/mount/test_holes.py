"""Files with holes: the mirror tells them as the original does, and they cost neither the network nor the caches."""

import errno
import os

from mounted import MountTestCase

MIB = 1 << 20
HUGE = 5 << 30
STEP = 64 << 10  # no filesystem's blocks are larger
SEGMENTS_MAX = 4096  # of a DataMap

# name: size, and where it has data
FILES = {
    "empty": (0, []),
    "full": (3 * MIB + 5, [(0, 3 * MIB + 5)]),
    "small and full": (100, [(0, 100)]),
    "only a hole": (8 * MIB + 7, []),
    "small hole": (3 * STEP, [(0, STEP)]),
    "at the beginning": (6 * MIB, [(5 * MIB, MIB)]),
    "in the middle": (8 * MIB, [(0, STEP), (6 * MIB - STEP, 2 * MIB + STEP)]),
    "at the end": (9 * MIB + 1, [(0, MIB + 1)]),
    "segments": (300 * STEP + 1, [(number * STEP, 10) for number in range(0, 300, 2)]),
    "too many segments": ((SEGMENTS_MAX + 100) * 2 * STEP,
                          [(number * STEP, 1) for number in range(0, (SEGMENTS_MAX + 100) * 2, 2)]),
}


def make(path, size, data):
    with open(path, "wb") as file:
        for begin, length in data:
            file.seek(begin)
            file.write(b"d" * length)
        file.truncate(size)
        file.flush()
        os.fsync(file.fileno())  # until then, st_blocks may change


def sought(path, places):
    """What lseek answers from each place: an offset, or an error."""
    found = []
    with open(path, "rb") as file:
        for place in places:
            for whence in (os.SEEK_DATA, os.SEEK_HOLE, os.SEEK_SET):
                try:
                    found.append((place, whence, os.lseek(file.fileno(), place, whence)))
                except OSError as error:
                    found.append((place, whence, errno.errorcode[error.errno]))
    return found


def read_whole(path):
    """Reads without keeping pages; returns how many bytes are not zero."""
    others = 0
    zeros = bytes(MIB)
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(MIB):
            others += len(piece) - piece.count(0) if piece != zeros else 0
            os.posix_fadvise(file.fileno(), 0, file.tell(), os.POSIX_FADV_DONTNEED)
    return others


class Holes(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.original = cls.make_directory() + "/tree"
        os.makedirs(cls.original)
        for name, (size, data) in FILES.items():
            make(f"{cls.original}/{name}", size, data)
        cls.job = cls.launch_for_class(nodes=2, trees=[cls.original])

    def pairs(self, *without):
        for name in FILES:
            for node in range(2):
                if name not in without:
                    yield f"{self.original}/{name}", self.job.mirrored(node, f"{self.original}/{name}")

    def test_lseek(self):
        for original, mirrored in self.pairs("too many segments"):
            with self.subTest(mirrored):
                size = os.stat(original).st_size
                edges = {edge for begin, length in FILES[os.path.basename(original)][1] for edge in (begin, begin + length)}
                places = {place for edge in (edges | {0, size, MIB, size // 2})
                          for place in (edge - 1, edge, edge + 1)} | {-5, size + MIB, 1 << 40, -(1 << 62)}
                self.assertEqual(sought(original, sorted(places)), sought(mirrored, sorted(places)))

    def test_more_segments_than_a_map_holds(self):
        for original, mirrored in self.pairs(*FILES.keys() - {"too many segments"}):
            self.run_program("cmp", original, mirrored)
            early = [number * STEP for number in range(100)]
            self.assertEqual(sought(original, early), sought(mirrored, early))
            late = FILES["too many segments"][0] - 2 * STEP
            self.assertEqual(late + 5, dict((whence, found) for _, whence, found in sought(mirrored, [late + 5]))[os.SEEK_DATA])

    def test_programs(self):
        copies = self.make_directory()
        programs = {
            "cp --sparse=auto": lambda path, to: self.run_program("cp", "--sparse=auto", path, to),
            "tar -S": lambda path, to: self.run_program(
                "sh", "-ec", 'tar -C "$(dirname "$1")" -cSf - --transform "s,.*,$(basename "$2")," "$(basename "$1")" | '
                'tar -C "$(dirname "$2")" -xSf -', "sh", path, to),
            "rsync -S": lambda path, to: self.run_program("rsync", "-S", path, to),
        }
        for original, mirrored in self.pairs():
            for program, copy in programs.items():
                with self.subTest(f"{program}, {mirrored}"):
                    taken = []
                    for source in (original, mirrored):
                        copy(source, f"{copies}/copy")
                        self.run_program("cmp", original, f"{copies}/copy")
                        taken.append(os.stat(f"{copies}/copy").st_blocks)
                        os.unlink(f"{copies}/copy")
                    if not original.endswith("too many segments"):
                        self.assertEqual(taken[0], taken[1])
            self.assertEqual(os.stat(original).st_blocks, os.stat(mirrored).st_blocks)

    def test_files_with_all_blocks_are_not_asked_about(self):
        path = f"{self.original}/full"
        self.run_program("cmp", path, self.job.mirrored(0, path))
        before = self.job.totals()
        found = sought(self.job.mirrored(0, path), [0, MIB, 2 * MIB])
        after = self.job.totals()
        self.assertEqual(9, len(found))
        self.assertEqual(before["backing"], after["backing"])
        self.assertEqual(before["cache"]["objects"], after["cache"]["objects"])


class CostOfHoles(MountTestCase):
    def costs(self, job, act):
        """Bytes read from the filesystem, sent, and kept more than before, on all nodes together."""
        before = job.totals()
        act()
        after = job.totals()
        return {what: after[group][key] - before[group][key] for what, group, key in (
            ("read", "backing", "bytes"), ("sent", "fabric", "bytes_sent"), ("kept", "cache", "bytes"))}

    def start(self, name, size, data, **options):
        original = self.make_directory()
        make(f"{original}/{name}", size, data)
        job = self.launch(nodes=2, trees=[original], **options)
        return job, [job.mirrored(node, f"{original}/{name}") for node in range(2)]

    def test_a_huge_hole(self):
        job, paths = self.start("hole", HUGE, [])
        costs = self.costs(job, lambda: [self.assertEqual(0, read_whole(path)) for path in paths])
        print(f"5 GiB of holes, read whole on 2 nodes: {costs['read']} bytes read from the filesystem, "
              f"{costs['sent']} sent, {costs['kept']} kept")
        for what, most in (("read", 0), ("sent", 10_000), ("kept", 10_000)):
            self.assertLessEqual(costs[what], most, what)
        # The kernel asks for pages once more that it has dropped before they were read.
        self.assertLessEqual(2 * HUGE, job.totals()["fuse"]["bytes_read"])
        self.assertEqual(0, sum(job.totals()["fallbacks"].values()))

    def test_zeros_that_are_no_hole(self):
        job, paths = self.start("zeros", 0, [])
        with open(os.path.join(job.trees[0], "written"), "wb") as file:
            file.write(bytes(16 * MIB))
            os.fsync(file.fileno())
        paths = [os.path.join(os.path.dirname(path), "written") for path in paths]
        costs = self.costs(job, lambda: [self.assertEqual(0, read_whole(path)) for path in paths])
        self.assertEqual(16 * MIB, costs["read"])
        self.assertLess(costs["sent"], 100_000)
        self.assertLess(costs["kept"], 100_000)
        self.assertEqual(0, job.totals()["fabric"]["bytes_saved_by_compression"])

    def test_prefetch(self):
        job, paths = self.start("hole", HUGE, [(HUGE // 2, MIB), (HUGE - MIB, 5)])

        def prefetch():
            done = job.command("prefetch", "--wait", "--mount", job.mount, job.trees[0])
            self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        costs = self.costs(job, prefetch)
        self.assertLessEqual(costs["read"], 2 * MIB)
        costs = self.costs(job, lambda: [self.assertEqual(MIB + 5, read_whole(path)) for path in paths])
        self.assertEqual(0, costs["read"])
        self.assertLess(costs["sent"], 10_000)
        self.assertEqual(0, job.totals()["fallbacks"]["direct_reads"])
