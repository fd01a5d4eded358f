"""Copper in jobs of a real Slurm over four hosts: started by srun, cleaned up by the epilogue."""

import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import unittest

from copper import NOBODY, REPOSITORY, CopperError, as_nobody, command_lines, key_of_job, undisturbed, wait_until
from import_storm import Workload
from pages import PROGRAM, in_place, make_software, script_of, write
from slurm import Slurm as Batch, why_no_slurm
from slurm_kills import PARTS, Kills
from test_mpirun import MOUNT, ClusterTestCase

JOB_SECONDS_MAX = 180

# The import runs twice on each node. After `stopped`, the job stays, so that the test can look before the epilogue cleans up.
IMPORT = """set -eux
cd {directory}
copper launch --launcher srun --tree {tree}
copper status >status
export PYTHONPATH={tree} PYTHONDONTWRITEBYTECODE=1
eval "$(copper env)"
srun {command}
copper stats --json >stats
copper stop
touch stopped
sleep 600
"""

# The mount is in use when the job is cancelled.
USE = """set -eux
copper launch --tree {tree}
srun sh -c 'cd {mount}{tree} && exec 3<numpy/__init__.py && touch {directory}/used-$SLURM_PROCID && exec sleep 600'
"""

# The job does nothing of its own for Copper.
ASKING = """set -eux
cd {directory}
export PYTHONPATH={tree} PYTHONDONTWRITEBYTECODE=1
srun --nodes=4 --ntasks-per-node=1 python3 -c 'import numpy, os; print(os.uname().nodename, numpy.__file__)' >imported
copper stats --json >stats || true
touch stopped
sleep 600
"""

# The command lines of ALCF Copper's own scripts for Frontier, examples/frontier_examples/simple_with_copper.sh and (launch)
# examples/features_examples/test4_profiling_full_path_list. Only /usr/bin/time, the daemon's cores and where Copper is are those
# of this machine.
OF_ALCF = r"""
module load ums ums046 copper
module list
export COPPER_ROOT="${COPPER_DEV_ROOT}"
COPPER_LAUNCH="${COPPER_DEV_ROOT}/bin/launch_copper_frontier.sh"
COPPER_STOP="${COPPER_DEV_ROOT}/bin/stop_copper_frontier.sh"
APP_BASE=${APP_BASE:-/lustre/orion/proj-shared/ums046/${USER}/exp1}
LOGDIR=${LOGDIR:-${APP_BASE}/copper_logs}
COPPER_MOUNT_PATH=${COPPER_MOUNT_PATH:-/mnt/bb/$USER/copper_mount}
if ! "${COPPER_LAUNCH}" -d "${LOGDIR}" -v "${COPPER_MOUNT_PATH}" -s 10 -b "0,1" -l 1 -E 2000 -P -N 20 -A; then
  echo "Copper launch failed; aborting before conda/import phase"
  exit 1
fi
JOB_OUT_DIR="${LOGDIR}/${SLURM_JOB_ID}"
JOB_LOG_DIR="${JOB_OUT_DIR}/logs"
NODEFILE="${JOB_LOG_DIR}/node_file.txt"
conda activate "${COPPER_MOUNT_PATH}${APP_BASE}/conda_env"
CPU_BINDING_MAP=verbose,map_cpu:9,17,25,33,41,49,57,73
time srun --overlap -N "${SLURM_NNODES}" -n $((SLURM_NNODES * 8)) \
  --ntasks-per-node=8 --cpu-bind="${CPU_BINDING_MAP}" \
  python3 -c "import torch; print('torch imported from:', torch.__file__)"
conda deactivate
if [ -f "${NODEFILE}" ]; then
  "${COPPER_STOP}" -d "${LOGDIR}" -v "${COPPER_MOUNT_PATH}" || true
fi
find "${JOB_LOG_DIR}" -maxdepth 1 -type f -name '*-output.log' 2>/dev/null | wc -l > "${JOB_OUT_DIR}/output-log-count.txt"
find "${JOB_OUT_DIR}/profiling" -type f | sort > "${JOB_OUT_DIR}/profiling-file-list.txt" || true
touch "${LOGDIR}/../../stopped"
sleep 600
"""

# What that machine has, and this one has not: modules, and a conda environment with torch.
OF_FRONTIER = """module() { :; }
conda() { if [ "$1" = activate ]; then export PYTHONPATH=$2; else unset PYTHONPATH; fi; }
"""

# What a task sees: its host, its user, whether the trees are the mirror's, and whether it can become another user.
SEEN = """import os, sys
mount, *trees = sys.argv[1:]
mirrored = [os.path.ismount(tree) and os.stat(tree).st_dev == os.stat(mount + tree).st_dev for tree in trees]
print("seen", os.uname().nodename, os.getuid(), *mirrored)
"""

# The job does nothing of its own for Copper, and asks on its command line.
PLUGIN = """set -eu
{before}
python3 {directory}/seen.py {mount} {trees}
srun python3 {directory}/seen.py {mount} {trees}
copper stats --json >{results}/stats || true
touch {results}/stopped
sleep 600
"""

KILLS = 6


class SlurmTestCase(ClusterTestCase):
    proctrack = None
    private_tmp = False
    plugin_trees = None

    @classmethod
    def setUpClass(cls):
        reason = why_no_slurm(plugin=cls.plugin_trees is not None)
        if reason:
            raise unittest.SkipTest(reason)
        super().setUpClass()
        cls.slurm = Batch(cls.hosts, cpus=8, proctrack=cls.proctrack, private_tmp=cls.private_tmp,
                          plugin_trees=cls.plugin_trees and cls.plugin_trees(cls))
        cls.slurm.start()
        print(f"proctrack/{cls.slurm.proctrack}", flush=True)

    def wait_for(self, condition, what, said):
        """`said`: a function that returns what the job has said so far."""
        try:
            wait_until(condition, JOB_SECONDS_MAX, what)
        except CopperError as error:
            self.fail(f"{self.slurm.logs()}\n{said()}\n{error}")

    def end_of(self, job):
        """Returns what the job says until it ends."""
        self.wait_for(lambda: not self.slurm.is_there(job), "the end of the job", lambda: self.slurm.output(job))
        return self.slurm.output(job)


class Slurm(SlurmTestCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.slurm.end_jobs)
        self.forget_files()

    def forget_files(self):
        """Removes the files of an earlier job."""
        for name in os.listdir(self.slurm.directory):
            if name in ("status", "stats", "stopped", "imported") or name.startswith("used-"):
                os.unlink(f"{self.slurm.directory}/{name}")

    def check_nothing_left(self):
        """Of a job that still runs, or whose end was awaited: its epilogue is a `copper`, too."""
        super().check_nothing_left()
        self.assertEqual({}, self.hosts.processes("srun"))

    def read(self, name):
        with open(f"{self.slurm.directory}/{name}", encoding="utf-8") as file:
            return file.read()

    def run_until(self, names, script, nodes, *options, **variables):
        """Submits the job and waits until it has made these files."""
        job = self.slurm.submit(script, nodes, *options, **variables)

        def is_over():
            return names <= set(os.listdir(self.slurm.directory)) or not self.slurm.is_there(job)
        self.wait_for(is_over, str(names), lambda: self.slurm.output(job))
        if not names <= set(os.listdir(self.slurm.directory)):
            self.fail(f"the job ended\n{self.slurm.output(job)}")

    def import_and_count(self, nodes):
        totals = undisturbed(lambda: self.import_totals(nodes))
        self.assertEqual(0, sum(totals["fallbacks"].values()), totals["fallbacks"])
        return totals["backing"]["listings"], totals["backing"]["file_opens"]

    def import_totals(self, nodes):
        load = Workload(packages=["numpy"], trees=[self.tree])
        self.run_until({"stopped"}, IMPORT.format(directory=self.slurm.directory, tree=self.tree,
                                                  command=shlex.join(load.command(MOUNT))), nodes)
        self.check_nothing_left()
        self.slurm.end_jobs()
        self.assertIn(f"{nodes} of {nodes} nodes serve", self.read("status"))
        stats = json.loads(self.read("stats"))
        self.assertEqual(self.hosts.names[:nodes], [node["host"] for node in stats["per_node"]])
        self.forget_files()
        return stats["totals"]

    def test_each_file_is_read_once_by_all(self):
        alone = self.import_and_count(1)
        self.assertGreater(min(alone), 0)
        self.assertEqual(alone, self.import_and_count(4))

    def test_variables_that_shape_the_steps_of_the_user(self):
        """A job has them in its environment that asked for such steps. What Copper starts is none of these."""
        directory = self.slurm.directory
        self.run_until({"stopped"}, f"""set -eux
cd {directory}
export SLURM_NTASKS_PER_GPU=1 SLURM_STDOUTMODE=/nowhere/out SLURM_THREADS_PER_CORE=1 SLURM_CPU_FREQ_REQ=high
copper launch --launcher srun --tree {self.tree}
copper status >status
copper stop
touch stopped
sleep 600
""", 2)
        self.assertIn("2 of 2 nodes serve", self.read("status"))
        self.check_nothing_left()

    def in_heterogeneous_job(self, script, names):
        """In one of two components with two nodes each, until it has made these files."""
        self.run_until(names, f"set -eux\ncd {self.slurm.directory}\n{script}", 2, ":", "--nodes=2", "--ntasks-per-node=2")

    def test_heterogeneous_job(self):
        """One mirror for all of its components, which the first one's script launches, looks at and stops."""
        # A step for each component: srun 22.05 with several may wait for ever, although all tasks have ended (seen once).
        look = f"copper run -- sh -c 'cat {self.tree}/numpy/version.py >/dev/null; echo looked on $(hostname)'"
        self.in_heterogeneous_job(f"""
copper launch --tree {self.tree}
copper status >status
srun --het-group=0 --nodes=2 --ntasks=2 --ntasks-per-node=1 {look} >imported
srun --het-group=1 --nodes=2 --ntasks=2 --ntasks-per-node=1 {look} >>imported
copper stats --json >stats
copper stop
copper launch --tree {self.tree} --nodes-from cn1,cn3
srun --het-group=1 --nodelist=cn3 --nodes=1 --ntasks=1 --ntasks-per-node=1 {look} >used-there
copper status 2>used-elsewhere || true
sh -c "$(sed "s/.*: use '\\(.*\\)'$/\\1/" used-elsewhere)" >used-as-told
copper stop
touch stopped
sleep 600
""", {"stopped"})
        self.assertIn("4 of 4 nodes serve", self.read("status"))
        self.assertEqual([f"looked on {host}" for host in self.hosts.names], sorted(self.read("imported").splitlines()))
        self.assertEqual(self.hosts.names, [node["host"] for node in json.loads(self.read("stats"))["per_node"]])
        self.assertEqual("looked on cn3\n", self.read("used-there"))
        self.assertIn("not this node: use 'srun --het-group=0 --nodelist=cn1 -n 1 --overlap copper status'",
                      self.read("used-elsewhere"))
        self.assertIn("2 of 2 nodes serve", self.read("used-as-told"))
        self.check_nothing_left()

    def test_job_submitted_in_a_heterogeneous_one(self):
        """It has the variables of that one, which say nothing about it."""
        self.slurm.write("plain.sh", f"#!/bin/sh\ncd {self.slurm.directory}\nenv >used-there\ncopper launch --tree {self.tree}\n"
                                     "copper status >status\ncopper stop\ntouch stopped\nsleep 600\n")
        submit = f"sbatch --nodes=1 --nodelist=cn3 --output=/dev/null {self.slurm.directory}/plain.sh\ntouch imported\nsleep 600"
        self.in_heterogeneous_job(submit, {"imported"})
        self.wait_for(lambda: os.path.exists(f"{self.slurm.directory}/stopped"), "the plain job", self.slurm.logs)
        self.assertIn("SLURM_JOB_NODELIST_HET_GROUP_0=cn[0-1]", self.read("used-there"))
        self.assertIn("1 of 1 nodes serve", self.read("status"))
        self.check_nothing_left()

    def test_heterogeneous_job_that_does_not_stop_its_mirror(self):
        self.in_heterogeneous_job(f"copper launch --tree {self.tree}\ntouch stopped", {"stopped"})
        self.slurm.wait_until_idle()
        self.check_nothing_left()

    def test_scripts_of_the_documentation(self):
        directory = self.slurm.directory
        make_software(directory)
        write(pathlib.Path(directory) / "train.py", PROGRAM)
        for page in ("docs/use/slurm.md", "README.md"):
            with self.subTest(page):
                script = "\n".join(line for line in script_of(page).splitlines() if not line.startswith("#"))
                job = self.slurm.submit(f"cd {directory}\nset -e\n{in_place(script, directory)}", 4)
                said = self.end_of(job)
                self.assertEqual(8, said.count("trained\n"), said)
                self.assertIn("4 of 4 serve", said)
                self.assertNotIn("hardly any program used the mirror", said)
                self.check_nothing_left()

    def shell(self, *options):
        """The environment of a shell of salloc, which runs on the first host until end_jobs()."""
        place = f"{self.slurm.directory}/used-shell"
        self.slurm.write("shell.sh", f"env -0 >{place}.new; mv {place}.new {place}; exec sleep 600")
        self.hosts.check("cn0", "sh", "-c", f"salloc {' '.join(options)} sh {self.slurm.directory}/shell.sh >/dev/null 2>&1 &",
                         **self.slurm.environment)
        wait_until(lambda: os.path.exists(place), JOB_SECONDS_MAX, "the shell")
        environment = dict(entry.split("=", 1) for entry in self.read("used-shell").rstrip("\0").split("\0"))
        os.unlink(place)
        return {name: value for name, value in environment.items() if name.startswith("SLURM_")} | self.slurm.environment

    def test_outside_the_jobs_nodes(self):
        """What the commands print can be run as it is: in the shell of salloc, in one without a job, and in another job's."""
        own = self.shell("--nodelist=cn1,cn2", "--exclusive")
        self.hosts.check("cn0", "copper", "launch", "--tree", self.tree, **own)
        into_job = f"--jobid={own['SLURM_JOB_ID']} "
        one = "--nodelist=cn1 -n 1 --overlap copper"
        # What it says, and what that does, with these words for the dots.
        commands = {"status": (f"{one} status", "", "2 of 2 nodes serve"),
                    "stats": (f"{one} stats", "", "2 of 2 serve"),
                    "top --once": (f"{one} top --once", "", "2 of 2 nodes serve"),
                    "report -o -": (f"{one} report", "", "wrote "),
                    "check -- true": (f"{one} check -- ...", f"cat {MOUNT}{self.tree}/numpy/version.py", "version"),
                    f"prefetch {self.tree}": (f"{one} prefetch ...", f"{self.tree}/numpy", ""),
                    "run -- true": ("copper run -- ...", "hostname", "cn1\n")}
        outside = self.slurm.environment
        for environment, option in ((own, ""), (outside, into_job), (self.shell("--nodelist=cn3"), into_job)):
            for words, (says, dots, does) in commands.items():
                with self.subTest(words=words, option=option):
                    done = self.hosts.run("cn0", "copper", *words.split(), **environment)
                    self.assertEqual(f"copper: {MOUNT} serves cn1,cn2, not this node: use 'srun {option}{says}'\n", done.stderr)
                    line = done.stderr.split("'")[1].replace("...", dots)
                    self.assertIn(does, self.hosts.check("cn0", "sh", "-ec", f"cd {self.slurm.directory}\n{line}", **environment))
        done = self.hosts.run("cn0", "copper", "stop", **outside)
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertEqual({}, self.hosts.processes("copperd", "copperd-superv", "srun"))

    def test_stop_on_another_node_outside_the_job(self):
        """As in a shell of ssh."""
        self.run_until({"stopped"}, f"copper launch --tree {self.tree} && touch {self.slurm.directory}/stopped && sleep 600", 4,
                       "--exclusive")
        done = self.hosts.run("cn2", "copper", "stop", **self.slurm.environment)
        self.assertEqual((0, ""), (done.returncode, done.stderr), done.stdout)
        self.check_nothing_left()

    def use(self):
        names = {f"used-{rank}" for rank in range(8)}
        self.run_until(names, USE.format(directory=self.slurm.directory, tree=self.tree, mount=MOUNT), 4)
        self.assertEqual(sorted(self.hosts.names), sorted(self.hosts.processes("copperd").values()))

    def test_key_shows_nowhere(self):
        self.use()
        key = key_of_job(self.hosts.processes("srun"))
        for line in command_lines():
            self.assertNotIn(key, line)
        for words in (["show", "job", "--details"], ["show", "step"]):
            self.assertNotIn(key.decode(), self.hosts.check("cn0", "scontrol", *words, **self.slurm.environment))
        self.assertNotIn(key.decode(), self.slurm.logs())
        self.slurm.end_jobs()

    def test_daemons_leave_mpi_init_together(self):
        """Because of this variable. Without it, about one launch in 30 failed."""
        self.use()
        for pid in self.hosts.processes("copperd"):
            self.assertIn(b"SLURM_PMIX_FENCE=tree", pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))

    def test_cancelled_job(self):
        self.use()
        self.slurm.end_jobs()
        self.check_nothing_left()

    def test_cancelled_job_with_daemons_that_cannot_end_themselves(self):
        """One was killed and left its mount, one hangs."""
        self.use()
        daemons = {host: pid for pid, host in self.hosts.processes("copperd").items()}
        os.kill(daemons["cn1"], signal.SIGSTOP)
        os.kill(daemons["cn2"], signal.SIGKILL)
        self.slurm.end_jobs()
        self.check_nothing_left()

    def ask(self, *options, **variables):
        """Runs a job that may ask for a mirror. Returns what its tasks imported, by host."""
        self.run_until({"stopped"}, ASKING.format(directory=self.slurm.directory, tree=self.tree), 4, *options,
                       COPPER_TREE=self.tree, **variables)
        return dict(line.split() for line in self.read("imported").splitlines())

    def test_mirror_by_asking(self):
        for options, variables in ((["--comment=copper"], {}), ([], {"COPPER_MIRROR": "1"})):
            with self.subTest(options=options, variables=variables):
                imported = self.ask(*options, COPPER_LOG_TO_OUTPUT="true", **variables)
                self.assertEqual({host: f"{MOUNT}{self.tree}/numpy/__init__.py" for host in self.hosts.names}, imported)
                self.assertEqual(4, json.loads(self.read("stats"))["alive"])
                self.slurm.end_jobs()
                self.check_nothing_left()
                self.assertEqual("", "".join(self.hosts.check(host, "sh", "-c", "ls /run/copper-asked 2>/dev/null; true")
                                             for host in self.hosts.names))
                self.forget_files()

    def test_job_goes_on_if_its_mirror_cannot_start(self):
        self.run_until({"stopped"}, ASKING.format(directory=self.slurm.directory, tree=self.tree), 4, "--comment=copper",
                       COPPER_TREE="/nowhere", COPPER_LOG_TO_OUTPUT="true")
        self.assertNotIn(MOUNT, self.read("imported"))
        job = self.hosts.check("cn0", "squeue", "-h", "-o", "%A", **self.slurm.environment).strip()
        self.assertRegex(self.slurm.output(job), "copper: this job runs without its mirror: copper: .*/nowhere")

    def test_no_mirror_without_asking(self):
        imported = self.ask("--comment=copperfield")
        self.assertEqual({host: f"{self.tree}/numpy/__init__.py" for host in self.hosts.names}, imported)

    def test_daemon_that_ends_at_once(self):
        """The others wait for it in MPI_Init, and srun waits for them."""
        program = f"{self.hosts.directory}/bin/copperd"
        shutil.copy2(program, f"{program}.whole")
        self.hosts.write("unlucky", f"#!/bin/sh\n[ \"$1\" != --version ] || exec {program}.whole --version\nkill -KILL $$\n")
        os.chmod(f"{self.hosts.directory}/unlucky", 0o755)
        self.hosts.check("cn2", "mount", "--bind", f"{self.hosts.directory}/unlucky", program)
        try:
            job = self.slurm.submit(f"SECONDS=0; copper launch --tree {self.tree}; echo code $? after $SECONDS s", 4)
            said = self.end_of(job)
        finally:
            self.hosts.check("cn2", "umount", program)
        self.assertIn("copper: cn2: copperd ended there before all nodes served", said)
        self.assertRegex(said, r"\| srun: error: cn2: task 2: Killed")
        self.assertNotIn("cn1: copperd", said)
        self.assertLess(int(re.search("code 1 after ([0-9]+) s", said)[1]), 60, said)

    def test_job_script_for_alcf_copper(self):
        tree = f"{self.slurm.directory}/exp1"
        os.makedirs(f"{tree}/conda_env/torch")
        self.slurm.write("exp1/conda_env/torch/__init__.py", "")
        self.slurm.write("frontier", OF_FRONTIER)
        for name, source in (("bin/launch_copper_frontier.sh", "launch_copper.sh"),
                             ("bin/stop_copper_frontier.sh", "launch_copper.sh"),
                             ("libexec/copper/profiling.py", "profiling.py")):
            shutil.copy2(REPOSITORY / "tools" / "job" / source, f"{self.hosts.directory}/{name}")
        for host in self.hosts.names:
            self.hosts.check(host, "sh", "-ec", "mount -t tmpfs tmpfs /mnt; mkdir -p /mnt/bb/root")
        self.run_until({"stopped"}, OF_ALCF, 4, "--exclusive", BASH_ENV=f"{self.slurm.directory}/frontier", APP_BASE=tree,
                       COPPER_DEV_ROOT=self.hosts.directory, COPPER_TREE=tree)
        job = max(os.listdir(f"{tree}/copper_logs"))
        said = self.slurm.output(job)
        self.assertEqual(32, said.count(f"torch imported from: /mnt/bb/root/copper_mount{tree}/conda_env/torch"), said)
        out = pathlib.Path(tree, "copper_logs", job)
        self.assertEqual("4\n", (out / "output-log-count.txt").read_text())
        self.assertEqual(self.hosts.names, (out / "logs/node_file.txt").read_text().split())
        self.assertEqual(["aggregate.csv", "operations.csv", "summary.md", "top_paths.csv"],
                         [line.rpartition("/final/profiling_")[2]
                          for line in (out / "profiling-file-list.txt").read_text().splitlines()])

    def test_killed_at_random_moments(self):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}", end=" ", flush=True)
        kills = Kills(self.slurm, random.Random(seed))
        for number in range(KILLS):
            how, left, _ = kills.kill(PARTS[number % len(PARTS)])
            self.assertEqual([], left, f"{how} (seed {seed})")


class PrivateTmp(Slurm):
    """Run by hand only. On a busy machine, Slurm 22.05 often cannot make a job's /tmp ("ns base mount failed" in slurmd's log), with
    Copper or without. The job then goes back into the queue, and the test waits for it in vain."""
    private_tmp = True


class Plugin(SlurmTestCase):
    """A site with the SPANK plugin and none of the scripts."""

    def plugin_trees(self):
        return [self.tree, f"{self.hosts.directory}/allowed"]

    def setUp(self):
        super().setUp()
        self.addCleanup(self.slurm.end_jobs)
        self.results = f"{self.slurm.directory}/results"
        self.slurm.write("seen.py", SEEN)
        for host in self.hosts.names:
            self.hosts.check(host, "sh", "-ec", "test -e /run/fuse || mknod -m 666 /run/fuse c 10 229; mount --bind /run/fuse /dev/fuse")

    def run_job(self, *options, by=(), user="root", trees=None, before="", **variables):
        """Returns what the job has printed. Then it sleeps."""
        shutil.rmtree(self.results, ignore_errors=True)
        os.mkdir(self.results)
        os.chmod(self.results, 0o777)
        text = PLUGIN.format(directory=self.slurm.directory, results=self.results, mount=f"/tmp/{user}/copper",
                             trees=" ".join(trees or [self.tree]), before=before)
        job = self.slurm.submit(text, 4, f"--output={self.results}/output", *options, by=by, USER=user, **variables)
        output = pathlib.Path(self.results, "output")
        self.wait_for(lambda: os.path.exists(f"{self.results}/stopped") or not self.slurm.is_there(job), "the job",
                      lambda: output.read_text(encoding="utf-8") if output.exists() else "")
        return output.read_text(encoding="utf-8")

    def seen(self, output):
        return sorted(line for line in output.splitlines() if line.startswith("seen "))

    def all_see(self, user, *mirrored):
        """The script, and two tasks on each node."""
        return sorted(" ".join(map(str, ("seen", host, user, *mirrored))) for host in [*self.hosts.names * 2, "cn0"])

    def test_tasks_see_the_mirror(self):
        for by, name, user in ((as_nobody(), "nobody", NOBODY), ((), "root", 0)):
            with self.subTest(user=user):
                output = self.run_job(f"--copper={self.tree}", by=by, user=name)
                self.assertEqual(self.all_see(user, True), self.seen(output), output)
                self.assertEqual(4, json.loads(pathlib.Path(self.results, "stats").read_text(encoding="utf-8"))["alive"])
                self.slurm.end_jobs()
                self.check_nothing_left()

    def test_others_see_nothing_of_it(self):
        output = self.run_job()
        self.assertEqual(self.all_see(0, False), self.seen(output), output)

    def test_without_a_script(self):
        """Of a user on a login node, which is none of the job's."""
        seen = ["python3", f"{self.slurm.directory}/seen.py", MOUNT, self.tree]
        options = ["--nodes=3", "--exclude=cn0", "--ntasks-per-node=2", f"--copper={self.tree}"]
        shell = ["sh", "-c", shlex.join(["srun", *seen]) + " && " + shlex.join(["srun", *seen])]
        for words, runs in ((["srun", *options, *seen], 1), (["salloc", *options, *shell], 2)):
            with self.subTest(words=words[0]):
                done = self.hosts.run("cn0", *words, **self.slurm.environment)
                self.assertEqual(sorted(f"seen {host} 0 True" for host in self.hosts.names[1:] * 2 * runs), self.seen(done.stdout),
                                 done.stdout + done.stderr)
                self.assertNotIn("copper:", done.stderr)
                self.slurm.end_jobs()
                self.hosts.check("cn0", "sh", "-c", "rm /tmp/copper-0/launch-*")  # a login node has no epilogue
                self.check_nothing_left()

    def test_job_goes_on_without_its_mirror(self):
        output = self.run_job("--copper=/nowhere")
        self.assertEqual(self.all_see(0, False), self.seen(output), output)
        self.assertRegex(output, "(?m)^.*copper: this job runs without its mirror: .*/nowhere")

    def test_mirror_that_does_not_answer(self):
        """The tasks there begin all the same, with the originals."""
        stop = "import glob, json, os, signal\nrecord, = glob.glob('/tmp/copper-0/*/record.json')\n" \
               "os.kill(json.load(open(record))['pid'], signal.SIGSTOP)"
        output = self.run_job(f"--copper={self.tree}",
                              before=shlex.join(["srun", "--nodes=1", "--ntasks=1", "--nodelist=cn3", "python3", "-c", stop]))
        self.assertEqual([line.replace("cn3 0 True", "cn3 0 False") for line in self.all_see(0, True)], self.seen(output), output)
        self.assertIn("copper: this task does not see its mirror: it does not answer", output)

    def test_allowed_trees_only(self):
        """Whatever the user's own files say."""
        allowed = f"{self.hosts.directory}/allowed"
        os.makedirs(allowed)
        os.symlink("/usr/share/doc", f"{allowed}/link")
        forge = "import glob, json, os, sys\nfor path in glob.glob('/tmp/copper-*/*/record.json'):\n" \
                "    record = {**json.load(open(path)), 'trees': sys.argv[1:]}\n    own = f'{path}.{os.getpid()}'\n" \
                "    with open(own, 'w') as file: json.dump(record, file)\n    os.rename(own, path)"
        trees = ["/usr/share/doc", f"{allowed}/link"]
        for forged in ([], trees, [f"{allowed}/../allowed", "/etc"]):
            with self.subTest(forged=forged):
                before = shlex.join(["srun", "python3", "-c", forge, *forged]) if forged else ""
                output = self.run_job(f"--copper={allowed}:/usr/share/doc", by=as_nobody(), user="nobody", trees=trees, before=before)
                self.slurm.end_jobs()
                self.assertEqual(self.all_see(NOBODY, False, False), self.seen(output), output)
                for tree in forged[1:] or ["/usr/share/doc"]:
                    self.assertIn(f"copper: not covered by the mirror: {tree}: not one of the directories that this site lets users cover", output)

    def test_heterogeneous_job(self):
        """Its programs see the mirror on the nodes of both components."""
        see = "; ".join(shlex.join(["srun", f"--het-group={group}", "python3", f"{self.slurm.directory}/seen.py", MOUNT, self.tree])
                        for group in (0, 1))
        output = self.run_job("--nodes=2", f"--copper={self.tree}", ":", "--nodes=2", "--ntasks-per-node=2", before=see)
        of_script_and_first = ["cn0", "cn0", "cn0", "cn1", "cn1"]
        self.assertEqual(sorted(f"seen {host} 0 True" for host in self.hosts.names * 2 + of_script_and_first),
                         self.seen(output), output)

    def test_killed_at_random_moments(self):
        Slurm.test_killed_at_random_moments(self)
