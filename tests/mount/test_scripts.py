"""launch_copper.sh and stop_copper.sh: job scripts for ALCF Copper 1.0 work unchanged."""

import csv
import os
import pathlib
import signal
import subprocess

from copper import a_document, build_directory, clean_environment, processes_of, wait_until
from mounted import MountTestCase
from pages import block_with

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "job"
MEBIBYTE = 1 << 20


class Scripts(MountTestCase):
    def setUp(self):
        self.job = self.prepare(nodes=2)
        self.tree = self.make_directory()
        for name, size in (("small", MEBIBYTE // 2), ("large", 2 * MEBIBYTE + 1)):
            with open(f"{self.tree}/{name}", "wb") as file:
                file.write(os.urandom(size))

    def script(self, name, *flags, expected=0, **environment):
        programs = build_directory() / "tools"
        environment = {"COPPER_LOCAL": self.job.nodes, "COPPER_TREE": self.tree, "HOME": self.job.directory,
                       "PBS_JOBID": "42.host", **environment}
        environment = clean_environment(**environment)
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        # Into files: with -t stdout the daemons keep this output open while they run.
        with open(f"{self.job.directory}/output", "w+", encoding="utf-8") as output:
            done = subprocess.run([SCRIPTS / name, *map(str, flags)], env=environment, stdout=output,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=120, check=False)
        self.assertEqual(expected, done.returncode, done.stderr)
        return done.stderr

    def output(self):
        return pathlib.Path(f"{self.job.directory}/output").read_text(encoding="utf-8")

    def launch(self, *flags, name="launch_copper.sh", **options):
        return self.script(name, "-v", self.job.mount, *flags, **options)

    def stop(self, *flags):
        return self.script("stop_copper.sh", "-v", self.job.mount, *flags)

    def logs(self, directory):
        found = sorted(pathlib.Path(directory).glob("*-output.log"))
        return [log.read_text(encoding="utf-8") for log in found]

    def test_all_flags_of_the_original(self):
        logs = f"{self.job.directory}/out"
        said = self.launch("-l", 4, "-t", "file", "-d", logs, "-T", 1, "-M", 10485760, "-E", 2000, "-P", "-N", 10, "-A",
                           "-I", 5, "-s", 10, "-b", "0", "-F", "book", "-a", "mode", "-n", "cxi")
        self.assertIn("not needed any more: -E -s -F -a -n\n", said)
        self.assertEqual(2, len(self.logs(f"{logs}/42/logs")))
        self.assertTrue(all("serves" in text for text in self.logs(f"{logs}/42/logs")))
        self.assertTrue(os.path.exists(f"{logs}/42/logs/node_file.txt"))
        self.assertIn("small", os.listdir(self.job.mirrored(1, self.tree)))
        self.stop("-d", logs)
        self.assertEqual([], self.job.leftovers())

    def profile(self, folder, name):
        with open(f"{self.job.directory}/copper-logs/42/profiling/{folder}/profiling_{name}.csv", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def use(self):
        for node in range(2):
            self.run_program("cmp", f"{self.tree}/small", self.job.mirrored(node, f"{self.tree}/small"))
            self.assertFalse(os.path.exists(self.job.mirrored(node, f"{self.tree}/absent")))

    def test_profiling_files(self):
        """With the names and columns of the original."""
        self.launch("-P", "-N", 1)
        self.use()
        self.stop()
        operations = {row["operation"]: row for row in self.profile("final", "operations")}
        self.assertEqual(["operation", "total_calls", "cache_hits", "cache_misses", "negative_results", "avg_latency_us",
                          "total_latency_s"], list(operations["read"]))
        self.assertEqual(2, int(operations["open"]["total_calls"]))
        aggregate = {row["metric"]: float(row["value"]) for row in self.profile("final", "aggregate")}
        self.assertEqual((2, 1), (aggregate["nodes"], aggregate["backing_file_opens"]))
        paths = self.profile("final", "top_paths")
        self.assertEqual(["category", "path", "total_events", "cache_hits", "cache_misses", "negative_results", "ttl_stores",
                          "ttl_serves", "ttl_expires", "ttl_clears"], list(paths[0]))
        self.assertEqual(1, len(paths))
        summary = pathlib.Path(f"{self.job.directory}/copper-logs/42/profiling/final/profiling_summary.md").read_text("utf-8")
        self.assertIn("| open | 2 |", summary)
        self.assertNotIn("{", summary)
        self.assertEqual([], self.job.leftovers())

    def test_all_paths_and_snapshots(self):
        self.launch("-A", "-I", 1)
        self.use()
        snapshots = pathlib.Path(f"{self.job.directory}/copper-logs/42/profiling")
        wait_until(lambda: (snapshots / "snapshot-0002" / "profiling_summary.md").exists(), 30, "the second snapshot")
        self.stop()
        paths = {row["path"]: row for row in self.profile("final", "top_paths")}
        self.assertEqual({"small", "absent"}, {"small", "absent"} & {os.path.basename(path) for path in paths})
        self.assertEqual("data", paths[f"{self.tree}/small"]["category"])
        self.assertEqual("2", paths[f"{self.tree}/absent"]["negative_results"])
        wait_until(lambda: not processes_of(f"{self.job.directory}/copper-logs"), 20, "the end of the snapshots")

    def test_job_script_for_alcf_copper(self):
        """One node of Aurora."""
        home = self.job.directory
        os.makedirs(f"{self.tree}/lus_custom_pip_env/torch")
        pathlib.Path(f"{self.tree}/lus_custom_pip_env/torch/__init__.py").touch()
        for name, text in (("job.sh", OF_ALCF), ("aurora", OF_AURORA), ("nodes", "this\n")):
            pathlib.Path(home, name).write_text(text, encoding="utf-8")
        for command in ("launch", "stop"):
            os.symlink(SCRIPTS / "launch_copper.sh", f"{home}/{command}_copper_aurora.sh")
        environment = clean_environment(
            BASH_ENV=f"{home}/aurora", HOME=home, PBS_JOBID="42.host", PBS_NODEFILE=f"{home}/nodes", PBS_O_WORKDIR=home,
            APP_BASE=self.tree, MY_COPPER_MOUNT=f"{home}/m.here", LOGDIR=f"{home}/logs", PYTHONPATH="", COPPER_LAUNCHER="none",
            COPPER_NODES_FROM=f"{home}/nodes", COPPER_TREE=self.tree)
        environment["PATH"] = f"{build_directory() / 'tools'}:{environment['PATH']}"
        done = self.run_program("bash", f"{home}/job.sh", env=environment)
        self.assertIn(f"{home}/m.here{self.tree}/lus_custom_pip_env/torch/__init__.py", done.stdout.decode())
        self.assertEqual("this\n", pathlib.Path(f"{home}/logs/42/logs/node_file.txt").read_text("utf-8"))
        self.assertEqual([], self.job.leftovers())

    def test_feature_examples_of_alcf_copper(self):
        """The flags in its examples/features_examples: test2, test3 and test5; with cores that this machine has."""
        cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:2]))
        for name, flags, files in (("aggregate", ["-P"], 1), ("top_path", ["-P", "-N", 20], 1),
                                   ("discover", ["-a", "discover", "-n", "cxi://cxi1"], 0)):
            with self.subTest(name):
                logs = f"{self.job.directory}/{name}"
                self.launch("-d", logs, "-s", 10, "-b", cores, "-l", 1, "-E", 2000, *flags, name="launch_copper_aurora.sh")
                self.use()
                self.script("stop_copper_aurora.sh", "-d", logs, "-v", self.job.mount)
                self.assertTrue(os.path.exists(f"{logs}/42/logs/node_file.txt"))
                summaries = list(pathlib.Path(f"{logs}/42").rglob("profiling/final/profiling_summary.md"))
                self.assertEqual(files, len(summaries))
                self.assertEqual([], self.job.leftovers())

    def test_no_profiling_files_without_asking(self):
        self.launch()
        self.stop()
        self.assertFalse(os.path.exists(f"{self.job.directory}/copper-logs/42/profiling"))

    def test_defaults(self):
        for machine in ("aurora", "frontier"):  # whose cores this machine may not have
            with self.subTest(machine):
                home = f"{self.job.directory}/{machine}"
                self.launch(name=f"launch_copper_{machine}.sh", HOME=home)
                self.assertEqual(2, len(self.logs(f"{home}/copper-logs/42/logs")))
                self.assertNotIn("serves", self.output())
                self.script(f"stop_copper_{machine}.sh", "-v", self.job.mount)
                self.assertEqual([], self.job.leftovers())

    def test_default_cores(self):
        programs = pathlib.Path(self.make_directory())
        for name, text in (("copper", 'echo "$@"'), ("nproc", 'echo "$CORES"')):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
            (programs / name).chmod(0o755)
        environment = clean_environment(HOME=self.job.directory)
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        for script, present, cores in (("launch_copper.sh", 208, "auto"), ("launch_copper_aurora.sh", 208, "48,49,50,51"),
                                       ("launch_copper_aurora.sh", 51, "auto"), ("launch_copper_frontier.sh", 3, "1,2"),
                                       ("launch_copper_frontier.sh", 2, "auto")):
            with self.subTest(script, present=present):
                said = self.run_program(SCRIPTS / script, env={**environment, "CORES": str(present)}).stdout.decode()
                self.assertIn(f" --cores {cores} ", said)

    def test_logs_on_standard_output(self):
        for where, in_files in (("stdout", 0), ("both", 2)):
            with self.subTest(where):
                logs = f"{self.job.directory}/{where}"
                self.launch("-l", 4, "-t", where, "-d", logs)
                wait_until(lambda: self.output().count("serves") == 2, 10, "the launcher's forwarding of both logs")
                self.assertEqual(in_files, len(self.logs(f"{logs}/42/logs")))
                self.stop()

    def test_size_limit(self):
        """-M: larger files are read by each node, smaller ones once."""
        for limit, opens in ((MEBIBYTE, 3), (4 * MEBIBYTE, 2)):
            with self.subTest(limit):
                self.launch("-M", limit)
                for node in range(2):
                    for name in ("small", "large"):
                        path = f"{self.tree}/{name}"
                        self.run_program("cmp", path, self.job.mirrored(node, path))
                totals = self.job.totals()
                self.assertEqual(opens, totals["backing"]["file_opens"])
                self.assertEqual(0, sum(totals["fallbacks"].values()))
                self.stop()


# The command lines of ALCF Copper's examples/aurora_examples/simple_with_copper.sh.
OF_ALCF = r"""#!/bin/bash -x
#PBS -l select=2
cd "${PBS_O_WORKDIR}"
NNODES=$(wc -l < "${PBS_NODEFILE}")
RANKS_PER_NODE=12
NRANKS=$((NNODES * RANKS_PER_NODE))
module load copper
SCRIPT_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
APP_BASE=${APP_BASE:-/lus/flare/projects/datascience/${USER}/exp1}
MY_COPPER_MOUNT=${MY_COPPER_MOUNT:-/tmp/${USER}/copper_mount}
LOGDIR=${LOGDIR:-${APP_BASE}/copper-logs-dir}
"${SCRIPT_DIR}/launch_copper_aurora.sh" -d "${LOGDIR}" -v "${MY_COPPER_MOUNT}"
time mpirun --np "${NRANKS}" --ppn "${RANKS_PER_NODE}" \
  --cpu-bind=list:4:56:9:61:14:66:19:71:20:74:25:79 --genvall \
  --genv=PYTHONPATH="${MY_COPPER_MOUNT}${APP_BASE}/lus_custom_pip_env:${PYTHONPATH}" \
  python3 -c "import torch; print(torch.__file__)"
"${SCRIPT_DIR}/stop_copper_aurora.sh" -d "${LOGDIR}" -v "${MY_COPPER_MOUNT}"
"""

# What that machine has, and this one has not: modules, and the mpirun of PALS, which runs the program here once.
OF_AURORA = """module() { :; }
mpirun() { env "${7#--genv=}" "${@:8}"; }
"""

# What pbs-hook.py uses of the module that PBS Pro gives to hooks. After a launch event, the MoM starts what the hook left. Before
# it, the shell of a script has no arguments yet.
PBS_MODULE = """import os, types
EXECJOB_PROLOGUE, EXECJOB_EPILOGUE, EXECJOB_END, EXECJOB_LAUNCH, LOG_ERROR = 0x80, 0x100, 0x200, 0x800, 1
def accept():
    if now.type == EXECJOB_LAUNCH:
        os.execve(now.progname, now.argv or ["-bash"], now.env)
    print("accepted")
now = types.SimpleNamespace(type={event}, job=types.SimpleNamespace(id="{job}", euser="root"), accept=accept,
                            progname="/bin/bash", argv=[], env=dict(os.environ))
def event():
    return now
def logmsg(level, text):
    print(text)
"""


class Sites(MountTestCase):
    """Prologues and epilogues, with the arguments and environment that the batch systems document. Slurm's run in
    tests/cluster/test_slurm.py."""

    alone = True  # they end what a user has on the machine outside any batch job

    def setUp(self):
        self.need_root()
        self.installed = self.make_directory()
        self.run_program("cmake", "--install", build_directory(), "--prefix", self.installed)
        self.site = f"{self.installed}/libexec/copper/site"
        self.copies = self.make_directory()  # instead of mom_priv
        self.run_program("bash", "-ec", block_with("docs/site.md", "torque.sh").replace("/opt/copper/current", self.installed),
                         cwd=self.copies)

    def torque(self, name, batch_job):
        """Its environment is empty. (COPPER, because the test does not install into /usr/local.)"""
        self.run_quietly([f"{self.copies}/{name}", batch_job, "root", "root", "name", "17", "nodes=2", "mem=1kb", "batch", ""],
                         COPPER=f"{self.installed}/bin/copper")

    def flux(self, name, batch_job):
        self.run_quietly([f"{self.site}/flux-{name}.sh"], FLUX_JOB_ID=batch_job, FLUX_JOB_USERID="0", PATH="/usr/bin:/bin")

    def pbs(self, event, batch_job):
        """The hook's command line, and its environment."""
        module = self.make_directory()
        pathlib.Path(module, "pbs.py").write_text(PBS_MODULE.format(event=event, job=batch_job), encoding="utf-8")
        return (["/usr/bin/python3", f"{self.site}/pbs-hook.py"],
                {"PYTHONPATH": module, "PYTHONDONTWRITEBYTECODE": "1", "COPPER_SITE": self.site})

    def pbs_hook(self, event, batch_job):
        words, environment = self.pbs(event, batch_job)
        self.assertEqual(b"accepted\n", self.run_quietly(words, **environment))

    def run_quietly(self, words, **environment):
        done = self.run_program(*words, env=environment)
        self.assertEqual(b"", done.stderr)
        return done.stdout

    def test_only_what_belongs_to_the_job_is_ended(self):
        # One node: Open MPI's mpirun takes FLUX_JOB_ID for a Flux that it can ask.
        for variable, job_id, other, before, after in (
                ("PBS_JOBID", "42.host", "43.host", [lambda job: self.torque("prologue", job),
                                                    lambda job: self.torque("prologue.parallel", job)],
                 lambda job: self.torque("epilogue.parallel", job)),
                ("PBS_JOBID", "42.host", "43.host", [lambda job: self.pbs_hook("EXECJOB_PROLOGUE", job)],
                 lambda job: self.pbs_hook("EXECJOB_EPILOGUE", job)),
                ("PBS_JOBID", "42.host", "43.host", [lambda job: self.pbs_hook("EXECJOB_EPILOGUE", job)],
                 lambda job: self.pbs_hook("EXECJOB_END", job)),
                ("FLUX_JOB_ID", "ƒ2oL", "f2oM", [lambda job: self.flux("prolog", job)],
                 lambda job: self.flux("epilog", job.replace("ƒ", "f"))),
                ("FLUX_JOB_ID", "f2oL", "ƒ2oM", [], lambda job: self.flux("epilog", job.replace("f", "ƒ")))):
            with self.subTest(variable):
                job = self.launch(nodes=1, trees=["/usr/share/doc"], environment={variable: job_id})
                for hook in (*before, after):
                    hook(other)
                    self.assertEqual(1, len(job.daemons()), "the other job's")
                after(job_id)
                self.assertEqual([], job.leftovers())

    def test_what_belongs_to_no_job_is_ended(self):
        job = self.launch(nodes=2, trees=["/usr/share/doc"])
        self.torque("epilogue", "43.host")
        self.assertEqual([], job.leftovers())

    def test_whatever_state_it_is_in(self):
        for hook in (lambda: self.torque("prologue", "42.host"), lambda: self.pbs_hook("EXECJOB_END", "42.host")):
            with self.subTest(hook):
                job = self.launch(nodes=3, trees=["/usr/share/doc"], environment={"PBS_JOBID": "42.host"})
                killed, stopped, _ = job.daemons()
                os.kill(killed, signal.SIGKILL)
                os.kill(stopped, signal.SIGSTOP)
                with open(job.mirrored(2, a_document()), "rb"):
                    hook()
                self.assertEqual([], job.leftovers())

    def start_shell(self, words, environment, also="", **variables):
        """What a job's shell says of itself and the mirror, and what was said beside it."""
        environment = clean_environment(**environment, **variables)
        environment["PYTHONPATH"] = f"{environment.get('PYTHONPATH', '')}:/usr/share/doc"
        script = f'echo "$0 $PYTHONPATH"; {self.installed}/bin/copper status 2>/dev/null | head -n 1; {also}'
        done = subprocess.run(words, env=environment, input=script, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout, done.stderr

    def test_mirror_by_asking(self):
        """As the MoM of PBS Pro and that of TORQUE start a job's shell, with the script as its input."""
        for name, words, environment in (("-bash", *self.pbs("EXECJOB_LAUNCH", "42.host")),
                                         ("/bin/bash", [f"{self.site}/job-starter.sh", "/bin/bash"], {})):
            job = self.prepare(nodes=1)
            first = {"COPPER_LOCAL": "1", "COPPER_TREE": "/usr/share/doc", "COPPER_MOUNT": job.mount, "PBS_NODENUM": "0",
                     "COPPER_LOG_TO_OUTPUT": "true", "PBS_JOBID": "42.host", "PBS_TASKNUM": "00000001"}
            asks = {**first, "COPPER_MIRROR": "1"}
            for variables in (first, {**asks, "PBS_TASKNUM": "0000001A"}, {**asks, "PBS_NODENUM": "1"}):
                with self.subTest(name, **variables):
                    said, wrong = self.start_shell(words, environment, **variables)
                    self.assertRegex(said, rf"^{name} \S*:/usr/share/doc\n$")
                    self.assertEqual("", wrong)
            with self.subTest(name, **asks):
                said, wrong = self.start_shell(words, environment, **asks)
                self.assertRegex(said, rf"^{name} \S*:{job.root(0)}/usr/share/doc\n1 of 1 nodes serve")
                self.assertEqual("", wrong)
                self.pbs_hook("EXECJOB_EPILOGUE", "42.host")
                self.assertEqual([], job.leftovers())

    def test_mirror_at_the_original_paths_by_asking(self):
        for words, environment in (self.pbs("EXECJOB_LAUNCH", "42.host"),
                                   ([f"{self.site}/job-starter.sh", "-a", "-bash", "/bin/bash"], {})):
            job = self.prepare(nodes=1)
            said, wrong = self.start_shell(
                words, environment, also="grep -c ' /usr/share/doc ' /proc/self/mountinfo", COPPER_MIRROR="view", COPPER_LOCAL="1",
                COPPER_TREE="/usr/share/doc", COPPER_MOUNT=job.mount, PBS_JOBID="42.host")
            self.assertRegex(said, r"^-bash \S*:/usr/share/doc\n1 of 1 nodes serve.*\n1\n$")
            self.assertEqual("", wrong)
            self.pbs_hook("EXECJOB_EPILOGUE", "42.host")
            self.assertEqual([], job.leftovers())

    def test_job_goes_on_if_its_mirror_cannot_start(self):
        words, environment = self.pbs("EXECJOB_LAUNCH", "42.host")
        said, wrong = self.start_shell(words, environment, COPPER_MIRROR="1", COPPER_LOCAL="1", COPPER_TREE="/nowhere")
        self.assertRegex(said, r"^-bash \S*:/usr/share/doc\n$")
        self.assertRegex(wrong, "^copper: this job runs without its mirror: copper: .*/nowhere")


class Setup(MountTestCase):
    """tools/setup with a package manager that says much, installs what it is told, and can fail."""

    APT = """#!/bin/sh
echo "noise about $*"
case $* in *install*) [ "$FAILS" = no ] && touch "$0.installed" ;; esac
"""
    QUERY = """#!/bin/sh
[ ! -e "$(dirname "$0")/apt-get.installed" ] || printf '%s ii \\n' "$@"
"""

    def setUp(self):
        self.need_root()
        self.directory = self.make_directory()
        for name, text in (("apt-get", self.APT), ("dpkg-query", self.QUERY)):
            with open(f"{self.directory}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(file.name, 0o755)

    def setup(self, fails, expected):
        environment = clean_environment(TMPDIR=self.directory, FAILS=fails)
        environment["PATH"] = f"{self.directory}:{environment['PATH']}"
        done = self.run_program(SCRIPTS.parent / "setup", "demo", env=environment, expected=expected)
        logs = list(pathlib.Path(self.directory).glob("*.log"))
        return done.stdout.decode() + done.stderr.decode(), logs

    def test_noise_goes_to_a_log(self):
        said, logs = self.setup(fails="no", expected=0)
        self.assertEqual("tools/setup: installing python3-numpy python3-scipy strace\n", said)
        self.assertEqual([], logs)
        self.assertEqual(("", []), self.setup(fails="no", expected=0), "nothing is missing any more")

    def test_log_is_named_if_installing_fails(self):
        said, logs = self.setup(fails="yes", expected=1)
        self.assertIn(f"all that it printed is in {logs[0]}\n", said)
        self.assertIn("noise about update\n", logs[0].read_text(encoding="utf-8"))
