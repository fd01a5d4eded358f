#!/usr/bin/python3
"""N nodes x P processes import Python packages at once: directly, and through Copper.

The measuring half of tools/demo. Direct and mirrored imports both find the backing tree in the page cache of this
machine: what is compared is Copper's cost, not the disk's. What Copper spares a parallel filesystem are the operations.
"""

import argparse
import dataclasses
import mmap
import os
import pathlib
import re
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))

from copper import Copper, CopperError, clean_environment, copper_program, handle_termination, why_no_mount  # noqa: E402

PYTHON = "/usr/bin/python3"
IMPORT_SECONDS_MAX = 300
ROUNDS = 3
READY_BYTES = 4 << 30  # more than the pages, the caches and the processes of an import of torch take


def package_tree(package="numpy"):
    """The directory that the system's Python imports this package from."""
    code = f"import importlib.util as u; print(list(u.find_spec({package!r}).submodule_search_locations)[0])"
    found = subprocess.run([PYTHON, "-I", "-c", code], env=clean_environment(), capture_output=True, text=True,
                           check=False)
    if found.returncode != 0:
        raise CopperError(f"{PYTHON} has no {package}: {found.stderr.strip().splitlines()[-1]}")
    return os.path.dirname(os.path.realpath(found.stdout.strip()))


def mirrored_variables(root, variables, prefix=(), options=()):
    """What `copper env` changes of these variables, and adds to them."""
    done = subprocess.run([*prefix, copper_program(), "env", "--mount", root, *options], env=clean_environment(**variables),
                          check=True, capture_output=True, text=True)
    return dict(word.split("=", 1) for word in shlex.split(done.stdout) if word != "export")


@dataclasses.dataclass
class Workload:
    """What is imported, from where."""
    packages: list
    trees: list
    variables: dict = dataclasses.field(default_factory=dict)  # of the processes, besides the usual ones
    env_options: tuple = ()  # of `copper env`
    libraries: list = dataclasses.field(default_factory=list)  # directories of shared libraries that the packages need
    prefix: tuple = ()                                         # in front of each command: enters the namespace of a mirror

    def environment(self, root=""):
        """Of a process that imports below `root`: a mount (then as `copper env` makes it), or nothing for the direct way."""
        paths = {"PYTHONPATH": ":".join(self.trees)}
        if self.libraries:
            paths["LD_LIBRARY_PATH"] = ":".join(self.libraries)
        direct = clean_environment(**paths, PYTHONDONTWRITEBYTECODE=1, **self.variables)
        return {**direct, **mirrored_variables(root, paths, self.prefix, self.env_options)} if root else direct

    def command(self, root=""):
        # Packages of the standard library may be named too; all others must come from the trees.
        code = (f"import sys, {', '.join(self.packages)}\n"
                f"found = [getattr(sys.modules[name], '__file__', None) or '' for name in {self.packages!r}]\n"
                f"lost = [f for f in found if not f.startswith({tuple(root + tree for tree in self.trees)!r})]\n"
                "sys.exit(f'not imported from the tree: {lost}' if lost else 0)")
        return [*self.prefix, PYTHON, "-c", code]


@dataclasses.dataclass
class Storm:
    """What imports took that ran at once."""
    seconds: float               # until the last one had ended
    program_seconds: float = 0   # processor time of the importing processes
    machine_seconds: float = 0   # of all that ran on this machine meanwhile
    switches: int = 0            # of the machine's cores from one thread to another


def storm(workload, roots):
    """One import for each of `roots`, all at once. Returns the seconds until the last one has ended."""
    return storm_of([(workload, root) for root in roots]).seconds


def program_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def machine_use():
    """(processor seconds, context switches) since boot, from proc_stat(5): all but idle, iowait and what the host took (steal)."""
    with open("/proc/stat", encoding="ascii") as lines:
        found = {name: [int(word) for word in rest.split()] for name, _, rest in (line.partition(" ") for line in lines)}
    user, nice, system, _, _, irq, softirq = found["cpu"][:7]
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK"), found["ctxt"][0]


def storm_of(imports):
    """One import for each pair of a workload and a root, all at once."""
    environments = [workload.environment(root) for workload, root in imports]
    programs, (machine, switches), started = program_seconds(), machine_use(), time.perf_counter()
    running = [subprocess.Popen(workload.command(root), env=environment, cwd="/",
                                stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
               for (workload, root), environment in zip(imports, environments)]
    errors = []
    try:
        for process in running:
            _, text = process.communicate(timeout=IMPORT_SECONDS_MAX)
            if process.returncode != 0:
                errors.append(text.decode(errors="replace").strip())
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
    seconds, (machine_now, switches_now) = time.perf_counter() - started, machine_use()
    took = Storm(seconds, program_seconds() - programs, machine_now - machine, switches_now - switches)
    if errors:
        raise CopperError(f"{len(errors)} of {len(imports)} imports failed; the first: {errors[0]}")
    return took


def keep_memory_ready():
    """The host of a virtual machine takes back memory that was free for a second, and giving it again costs 2 ms per MiB. Nodes
    of a supercomputer have no such host, so what is timed begins with memory that is there."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        available_kib = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    size = min(READY_BYTES, available_kib * 1024 // 2)
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1


def storm_in_ready_memory(imports):
    """storm_of() for timing."""
    keep_memory_ready()
    return storm_of(imports)


def start_python(workload, root):
    """The interpreter alone. Files *.pth in its own directories may import something from the mirror already."""
    subprocess.run([PYTHON, "-c", ""], env=workload.environment(root), cwd="/", check=True)


def direct_operations(workload):
    """What one direct import asks of the filesystem within the trees: {listings, file_opens, stats, reads}."""
    counts = {"listings": 0, "file_opens": 0, "stats": 0, "reads": 0}
    calls = "trace=openat,open,stat,lstat,newfstatat,statx,access,faccessat,faccessat2,readlink,readlinkat,read,pread64"
    with tempfile.NamedTemporaryFile(prefix="copper-strace-") as log:
        subprocess.run(["strace", "-f", "-y", "-e", calls, "-o", log.name, *workload.command()],
                       env=workload.environment(), check=True, cwd="/")
        trees = tuple(tree.rstrip("/") for tree in workload.trees)
        for line in log.read().decode(errors="replace").splitlines():
            call = re.match(r'\d+ +(\w+)\((?:AT_FDCWD(?:<[^>]*>)?, )?(?:\d+<([^>]*)>|"([^"]*)")', line)
            path = (call[2] or call[3]) if call else None
            if not path or not (path in trees or path.startswith(tuple(tree + "/" for tree in trees))):
                continue
            if call[1].startswith("open"):
                counts["listings" if "O_DIRECTORY" in line else "file_opens"] += 1
            elif call[1] in ("read", "pread64"):
                counts["reads"] += 1
            elif '""' not in line:  # fstat of an open file costs no lookup
                counts["stats"] += 1
    return counts


@dataclasses.dataclass
class Measured:
    direct: float
    cold: float
    warm: float
    backing: dict  # operations on the backing filesystem, by the cold import
    first_requests: int
    second_requests: int
    terminal_questions: int  # among them: isatty(), which the kernel never answers itself


def measure(workload, nodes, processes, options=()):
    """One launch, one cold storm, one warm storm, and the same directly in between."""
    def ready_storm(roots):
        return storm_in_ready_memory([(workload, root) for root in roots]).seconds

    with Copper(nodes=nodes, trees=workload.trees, options=options) as job:
        roots = [job.root(node) for node in range(nodes) for _ in range(processes)]
        before = job.totals()
        cold = ready_storm(roots)
        first = job.totals()
        direct = ready_storm([""] * len(roots))
        between = job.totals()
        warm = ready_storm(roots)
        after = job.totals()
    return Measured(direct=direct, cold=cold, warm=warm,
                    backing={key: first["backing"][key] - before["backing"][key] for key in first["backing"]},
                    first_requests=first["fuse"]["requests"] - before["fuse"]["requests"],
                    second_requests=after["fuse"]["requests"] - between["fuse"]["requests"],
                    terminal_questions=after["fuse"]["ioctl"] - between["fuse"]["ioctl"])


def measure_cold(workload, nodes, processes):
    """What one cold storm asks of the backing filesystem."""
    with Copper(nodes=nodes, trees=workload.trees) as job:
        before = job.totals()["backing"]
        storm(workload, [job.root(node) for node in range(nodes) for _ in range(processes)])
        after = job.totals()["backing"]
    return {key: after[key] - before[key] for key in after}


def spread(numbers):
    """Their median, the least and the most."""
    numbers = list(numbers)
    return f"{statistics.median(numbers):.2f} ({min(numbers):.2f} to {max(numbers):.2f})"


def print_table(rows, out=sys.stdout):
    """Aligned columns; the first row is the head."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  " + "   ".join(cells).rstrip(), file=out)
        if number == 0:
            print("  " + "   ".join("-" * width for width in widths), file=out)
    out.flush()


def parse(arguments):
    parser = argparse.ArgumentParser(prog="tools/demo", description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--nodes", type=int, default=4, metavar="N")
    parser.add_argument("--procs", type=int, default=2, metavar="P")
    parser.add_argument("--packages", default="numpy scipy.stats", metavar="NAMES")
    parser.add_argument("--tree", action="append", metavar="DIR")
    parser.add_argument("--build", default=os.environ.get("COPPER_BUILD_DIR", "build"), metavar="DIR")
    options = parser.parse_args(arguments)
    if not 1 <= options.nodes <= 64 or not 1 <= options.procs <= 256:
        parser.error("--nodes takes 1 to 64, --procs 1 to 256")
    options.packages = options.packages.replace(",", " ").split()
    if not options.packages or not all(re.fullmatch(r"[A-Za-z_][\w.]*", name) for name in options.packages):
        parser.error("--packages takes names of Python packages")
    for tree in options.tree or []:
        if not os.path.isdir(tree):
            parser.error(f"--tree {tree}: no such directory")
    return options


def demo(options):
    os.environ["COPPER_BUILD_DIR"] = os.path.abspath(options.build)
    trees = [os.path.realpath(tree) for tree in options.tree or [package_tree(options.packages[0])]]
    workload = Workload(packages=options.packages, trees=trees)
    nodes, processes = options.nodes, options.procs
    together = nodes * processes

    print(f"{nodes} nodes x {processes} processes import {' '.join(workload.packages)} from {' '.join(trees)}")
    storm(workload, [""])  # the page cache holds the tree from here on
    rounds = []
    for number in range(ROUNDS):
        print(f"  round {number + 1} of {ROUNDS}: launch, cold import, direct import, warm import, stop", flush=True)
        rounds.append(measure(workload, nodes, processes))
    direct = statistics.median(one.direct for one in rounds)
    cold = statistics.median(one.cold for one in rounds)
    warm = statistics.median(one.warm for one in rounds)
    last = rounds[-1]

    rows = [("", "direct", "Copper", "")]
    rows.append((f"first import, {together} processes at once", f"{direct:.2f} s", f"{cold:.2f} s",
                 f"{cold / direct:.2f} x"))
    rows.append((f"second import, {together} processes at once", f"{direct:.2f} s", f"{warm:.2f} s",
                 f"{warm / direct:.2f} x"))
    if shutil.which("strace"):
        once = direct_operations(workload)
        for key, words in (("listings", "directories listed"), ("file_opens", "files opened"),
                           ("stats", "names looked up (stat)"), ("reads", "reads")):
            ours, theirs = last.backing[key], once[key] * together
            rows.append((f"backing filesystem: {words}", f"{theirs:,}", f"{ours:,}",
                         f"{theirs / ours:.0f} x fewer" if ours and theirs > ours else ""))
    rows.append(("requests to the daemons, first import", "-", f"{last.first_requests:,}", ""))
    rows.append(("requests to the daemons, second import", "-",
                 f"{last.second_requests - last.terminal_questions:,}", ""))
    rows.append(("  besides isatty(), asked of each open file", "-", f"{last.terminal_questions:,}", ""))
    print(f"\nTimes are medians of {ROUNDS} rounds, all with the backing tree in the page cache of this machine,\n"
          f"whose {os.cpu_count()} cores the {nodes} nodes share. Operations are counted by the daemons, and for the "
          "direct\nway by strace of one process, times the number of processes.\n")
    print_table(rows)


def main():
    handle_termination()
    options = parse(sys.argv[1:])
    reason = why_no_mount()
    if reason:
        print(f"tools/demo: cannot mount a FUSE filesystem: {reason}", file=sys.stderr)
        return 3
    try:
        demo(options)
    except KeyboardInterrupt:
        return 130
    except CopperError as error:
        print(f"tools/demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
