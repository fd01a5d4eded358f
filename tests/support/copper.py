"""Starts a Copper on this machine for tests and measurements, and leaves nothing of it behind.

    with Copper(nodes=4, trees=["/usr/lib/python3"]) as job:
        os.stat(job.mirrored(2, "/usr/lib/python3"))
        print(job.totals()["backing"])

A private directory holds everything of a job: mounts, logs, files of the test. The directory's name identifies the job's
processes and mounts, so nothing else on the machine is ever touched.
"""

import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
COMMAND_SECONDS_MAX = 120

# A launcher and its daemon on each node: Open MPI up to version 4, from version 5 on, and MPICH.
LAUNCHERS = ("mpirun", "prterun", "mpiexec")
LAUNCH_DAEMONS = ("orted", "prted", "hydra_pmi_proxy")


class CopperError(Exception):
    """A command of Copper failed, or left something behind."""


def build_directory():
    return pathlib.Path(os.environ.get("COPPER_BUILD_DIR", REPOSITORY / "build"))


def copper_program():
    return str(build_directory() / "tools" / "copper")


def daemon_program():
    return str(build_directory() / "daemon" / "copperd")


@functools.cache
def is_built_with_mpich():
    return "MPICH" in subprocess.run([daemon_program(), "--version"], capture_output=True, text=True, check=True).stdout


def is_built_with_thread_sanitizer():
    cache = build_directory() / "CMakeCache.txt"
    return "COPPER_SANITIZE:STRING=thread\n" in cache.read_text(encoding="utf-8")


def why_no_mount():
    """The reason why this user cannot mount a FUSE filesystem here, or None."""
    if not os.path.exists("/dev/fuse"):
        return "there is no /dev/fuse"
    if os.geteuid() == 0:
        try:
            os.close(os.open("/dev/fuse", os.O_RDWR))
        except OSError as error:
            return f"/dev/fuse: {error.strerror}"
    elif not shutil.which("fusermount3"):
        return "not root, and fusermount3 is not installed"
    return None


def mounts_below(directory, process="self"):
    """Mount points at or below a directory, innermost first. Reads the mount table (of the mount namespace that
    `process` is in), never the mounts."""
    found = []
    with open(f"/proc/{process}/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            point = line.split()[4].encode("utf-8", "surrogateescape").decode("unicode_escape")
            if point == str(directory) or point.startswith(f"{directory}/"):
                found.append(point)
    return found[::-1]


def processes_of(text):
    """Processes, other than this one, whose command line names `text` (a private directory), as {pid: words}."""
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            with open(f"/proc/{entry}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        if state != b"Z" and any(str(text).encode() in word for word in words):
            found[int(entry)] = [word.decode(errors="replace") for word in words if word]
    return found


def stat_of(pid):
    """The fields of /proc/PID/stat after the command: the state, the parent, ... (proc(5))."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()


def state_of(pid):
    """As in proc(5): "S" is asleep."""
    return stat_of(pid)[0]


def comm_of(pid):
    """The name of its main thread; nothing if it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def nice_values(pid):
    """Those of all threads of a process; the main thread is the first one."""
    threads = [pid, *(thread for thread in map(int, os.listdir(f"/proc/{pid}/task")) if thread != pid)]
    return [int(stat_of(f"{pid}/task/{thread}")[16]) for thread in threads]


def kill_all(processes):
    """Kills processes that would replace each other: stops all of them before the first one dies."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in processes:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def key_of_job(processes):
    """The key (bytes) in the environment of the launcher among these processes. No other process has it there."""
    name = b"COPPER_JOB_KEY="
    found = set()
    for pid in processes:
        try:
            variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found |= {variable.removeprefix(name) for variable in variables if variable.startswith(name)}
    found.discard(b"-" * 64)  # the daemons overwrite it with this
    if len(found) != 1:
        raise CopperError(f"{len(found)} keys in the environment of the processes {sorted(processes)}")
    return found.pop()


def command_lines():
    """Of all processes, as bytes."""
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            yield pathlib.Path(f"/proc/{entry}/cmdline").read_bytes()
        except OSError:
            continue


def nodes_of(status):
    """The output of `copper status --nodes` for each node, by column."""
    # (Behind the table: the filesystems that are slow or silent.)
    status = re.split(r"\n  /", status)[0]
    names, *rows = (line.split() for line in status.splitlines()[1:])
    return [dict(zip(names, row)) for row in rows]


def lone_reads(totals):
    """How often a node had a reason to read a file for itself, perhaps one that another node read, too."""
    # A node without a processor looks dead or slow to others.
    reasons = {"fabric": ("passed_on", "unshared_reads"), "fallbacks": ("peer_lost", "direct_reads")}
    return sum(totals[group][why] for group, whys in reasons.items() for why in whys)


def disturbances(totals):
    """What a job did because a node looked dead or slow to others, or the filesystem so slow that nodes guessed what would be read
    next, perhaps in vain. On a busy machine, that can be."""
    return lone_reads(totals) + sum(totals["fuse"][f"{guesser}_fetched"] for guesser in ("siblings", "imports", "libraries"))


def undisturbed(run):
    """The totals that `run` returns, of a new job, once nothing disturbed it. That can take some."""
    for _ in range(8):
        totals = run()
        if disturbances(totals) == 0:
            return totals
    raise AssertionError(f"each of 8 jobs was disturbed, the last with {totals}")


def wait_until(condition, seconds, what):
    """Polls until condition() is true: nothing wakes a test when another process acts. `what`: a text, or a function that makes it
    when it did not happen."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise CopperError(f"{what() if callable(what) else what} did not happen within {seconds} s")
        time.sleep(0.02)


def clean_environment(**more):
    """This process's environment without variables that change the behaviour of Python or Copper. What one job uses must
    not help the next one, unless it asks for that."""
    steering = ("PYTHON", "COPPER_", "LD_", "PBS_", "SLURM_", "FLUX_", "LSB_", "SGE_", "JOB_ID", "PE_HOSTFILE",
                "VIRTUAL_ENV", "CONDA_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(steering)}
    environment["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    environment["COPPER_PROFILE"] = "off"
    environment.update({key: str(value) for key, value in more.items()})
    return environment


NOBODY = 65534


def as_nobody(*more):
    """The prefix of a command that makes it run as a user other than root."""
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *more]


@contextlib.contextmanager
def device_for_everybody():
    """A process (its id) in a mount namespace where /dev/fuse has its usual mode, unlike on some machines."""
    with tempfile.TemporaryDirectory(prefix="copper-test-", dir="/tmp") as place:
        script = f'mknod -m 666 "{place}/fuse" c 10 229 && mount --bind "{place}/fuse" /dev/fuse && echo ready && read end'
        with subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", script], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as keeper:
            if keeper.stdout.readline() != b"ready\n":
                raise CopperError("/dev/fuse cannot be had with its usual mode")
            yield keeper.pid


DOCUMENTS = "/usr/share/doc"


def a_document():
    """A file in a directory of DOCUMENTS. Which files exist depends on the machine's packages."""
    return next(str(path) for path in sorted(pathlib.Path(DOCUMENTS).glob("*/*"))
                if path.is_file() and not path.is_symlink() and path.stat().st_size > 10)


class Copper:
    """A job of `nodes` daemons on this machine. A context manager: stops the job at the end of the block."""

    longest_turn_ms = 0.0  # of the progress loop, of all jobs that were asked for statistics

    def __init__(self, nodes=1, trees=(), options=(), environment=None, prefix=(), directory=None, mounted_for="self"):
        self.nodes = nodes
        self.trees = [str(tree) for tree in trees]
        self.options = list(options)
        self.environment = clean_environment(**(environment or {}))
        self.prefix = list(prefix)  # in front of each command: to run as another user, for instance
        self.given_directory = directory
        self.mounted_for = mounted_for  # a process in the mount namespace that `prefix` enters
        self.directory = None

    def __enter__(self):
        self.open()
        try:
            self.launch()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind, error, trace):
        leftovers = self.close()
        if leftovers and kind is None:
            raise CopperError("; ".join(leftovers))

    def open(self):
        """Makes the private directory without launching."""
        self.directory = self.given_directory or tempfile.mkdtemp(prefix="copper-test-", dir="/tmp")
        return self

    def program(self):
        return copper_program()

    @property
    def mount(self):
        """The argument of --mount; node r's mirror is at mount.r."""
        return f"{self.directory}/m"

    def root(self, node):
        return f"{self.mount}.{node}"

    def mirrored(self, node, path):
        return self.root(node) + str(path)

    def command(self, *words, seconds=COMMAND_SECONDS_MAX, environment=None):
        """Runs `copper WORDS...`; returns the finished process, whatever its exit code."""
        return subprocess.run(
            [*self.prefix, self.program(), *map(str, words)],
            env=environment or self.environment, capture_output=True, text=True, timeout=seconds,
            stdin=subprocess.DEVNULL, cwd="/")

    def launch_words(self):
        words = ["launch", "--local", str(self.nodes), "--mount", self.mount, "--log-dir", f"{self.directory}/logs"]
        for tree in self.trees:
            words += ["--tree", tree]
        return words + self.options

    def launch(self):
        done = self.command(*self.launch_words())
        if done.returncode != 0:
            raise CopperError(f"copper launch: exit code {done.returncode}\n{done.stdout}{done.stderr}{self.logs()}")

    def stop(self, *words):
        return self.command("stop", "--mount", self.mount, *words)

    def stats(self):
        done = self.command("stats", "--json", "--mount", self.mount)
        if done.returncode != 0:
            raise CopperError(f"copper stats: exit code {done.returncode}\n{done.stderr}")
        found = json.loads(done.stdout)
        turns = found["totals"].get("latency_us", {}).get("turn", {"max": 0})  # builds of 2026-11-21 and earlier have none
        Copper.longest_turn_ms = max(Copper.longest_turn_ms, turns["max"] / 1000)
        return found

    def status(self):
        """All nodes; also if not all of them serve."""
        done = self.command("status", "--nodes", "--mount", self.mount)
        if done.returncode not in (0, 1) or not done.stdout:
            raise CopperError(f"copper status: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def other_than_reader(self):
        """A node that does not read the backing filesystem unless something fails."""
        return next(int(node["RANK"]) for node in nodes_of(self.status()) if node["READER"] == "no")

    def totals(self):
        return self.stats()["totals"]

    def lone_reads(self):
        return lone_reads(self.totals())

    def daemons(self):
        """The daemons' pids by rank, from their own records."""
        found = {}
        for record in pathlib.Path("/tmp").glob("copper-[0-9]*/*/record.json"):
            try:
                content = json.loads(record.read_text())
            except (OSError, ValueError):
                continue
            if content["mount"].rpartition(".")[0] == self.mount:
                found[content["rank"]] = content["pid"]
        return [found[rank] for rank in sorted(found)]

    def logs(self):
        """The daemons' logs, for the message of a failed test."""
        text = ""
        for log in sorted(pathlib.Path(self.directory).glob("logs/**/*.log")):
            text += f"--- {log}\n{log.read_text(errors='replace')[-4000:]}"
        return text

    def own_processes(self):
        """The job's processes, {pid: words}, without those of the test."""
        def own():
            # A launcher's command line contains the daemon's program.
            return {pid: words for pid, words in processes_of(self.directory).items()
                    if any(os.path.basename(word) in ("copper", "copperd") for word in words)}

        def may_still_be_ending(pid, words):
            # (A node without a mirror has no record by which `copper stop` could wait for its supervisor.)
            is_launcher = os.path.basename(words[0]) not in ("copper", "copperd")
            return is_launcher or comm_of(pid) in ("copperd-uncover", "copperd-superv", None)
        deadline = time.monotonic() + 2
        while (found := own()) and all(may_still_be_ending(*one) for one in found.items()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def leftovers(self):
        """What a stopped job has left, in words."""
        mounts = mounts_below(self.directory, self.mounted_for)
        found = [f"mounted: {point}" for point in mounts]
        found += [f"running: {pid} {' '.join(words)}" for pid, words in self.own_processes().items()]
        for pattern in ("*/record.json", "launch-*.json"):
            for record in pathlib.Path("/tmp").glob(f"copper-[0-9]*/{pattern}"):
                try:
                    if json.loads(record.read_text())["mount"].startswith(self.directory):
                        found.append(f"recorded: {record}")
                except (OSError, ValueError):
                    continue
        if not mounts:
            found += [f"left: {path}" for path in pathlib.Path(self.directory).glob("m.*")]
        return found

    def close(self):
        """Stops the job, by force if needed. Returns what `copper stop` left behind."""
        if self.directory is None:
            return []
        found = []
        if os.path.exists(copper_program()):
            try:
                done = self.stop()
                if done.returncode != 0:
                    found.append(f"copper stop: exit code {done.returncode} {done.stderr.strip()}")
            except subprocess.TimeoutExpired:
                found.append("copper stop did not end")
        found += self.leftovers()
        kill_all(processes_of(self.directory))
        for point in mounts_below(self.directory):
            subprocess.run(["umount", "-l", point], check=False)
        # Only if nothing is mounted there: removing must never enter a mirror.
        if self.given_directory is None and not mounts_below(self.directory):
            make_removable(self.directory)
            shutil.rmtree(self.directory, ignore_errors=True)
        self.directory = None
        return found


def make_removable(directory):
    """Restores the owner's rights, so that files that tests made unreadable can be removed."""
    if os.geteuid() == 0:
        return
    for path, names, _ in os.walk(directory):
        for name in names:
            if not os.path.islink(os.path.join(path, name)):
                os.chmod(os.path.join(path, name), 0o700)


def handle_termination():
    """Makes SIGTERM end the program like Ctrl-C: `with` and `finally` blocks clean up."""
    def leave(number, frame):
        sys.exit(128 + number)
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
