"""Copper in the jobs of a Flux, over four hosts: a real one if there is one, and a stand-in that takes the options that
flux-run(1), flux-exec(1) and flux-hostlist(1) document, and starts programs with the launcher of the MPI."""

import json
import pathlib
import unittest

from copper import CopperError, kill_all, wait_until
from flux import CORES, Flux as Batch, put_over, why_no_flux
from pages import PROGRAM, block_with, in_place, make_software, script_of, write
from test_mpirun import MOUNT, MPIRUN, ClusterTestCase

PAGE = "docs/use/flux.md"
TASKS_PER_NODE_MAX = 2

# `run` passes on the whole environment, `exec` that of the brokers.
FLUX = r"""#!/bin/bash
set -euo pipefail
nodes=({names})
command=$1
shift

run() {{
    local count=1 tasks=1 hosts= names name
    while [[ $1 == -* ]]; do
        case $1 in
            --ntasks=*) tasks=${{1#*=}} ;;
            --nodes=*) count=${{1#*=}} ;;
            --requires=hosts:*) hosts=${{1#*:}} ;;
            -n) tasks=$2 && shift ;;
            -N) count=$2 && shift ;;
            -o) shift ;;
            *) echo "flux run: $1: unknown" >&2 && exit 2 ;;
        esac
        shift
    done
    local per_node=$((tasks / count < {tasks_max} ? tasks / count : {tasks_max}))
    IFS=, read -ra names <<<"${{hosts:-$(IFS=,; echo "${{nodes[*]:0:count}}")}}"
    hosts=$(IFS=,; echo "${{names[*]}}")
    local words=(mpiexec $MPI_ARGUMENTS -hosts "$hosts" -ppn "$per_node" -n $((per_node * count)) -disable-auto-cleanup)
    if [[ {launcher} == mpirun ]]; then
        words=(mpirun $MPI_ARGUMENTS --host "${{hosts//,/:$per_node,}}:$per_node" -np $((per_node * count)))
        words+=(--map-by "ppr:$per_node:node" --bind-to none --enable-recovery --allow-run-as-root)
        for name in $(compgen -e); do
            words+=(-x "$name")
        done
    fi
    exec "${{words[@]}}" "$@"
}}

on_ranks() {{
    [[ $1 != -n ]] || shift
    [[ $1 == -r ]]
    local ranks=$2 rank running=() code=0
    shift 2
    [[ $ranks != all ]] || ranks=$(IFS=,; echo "${{!nodes[*]}}")
    for rank in ${{ranks//,/ }}; do
        {directory}/agent "${{nodes[rank]}}" "${{@@Q}}" </dev/null &
        running+=($!)
    done
    for rank in "${{running[@]}}"; do
        wait "$rank" || code=1
    done
    exit "$code"
}}

hostlist() {{
    local rank found=()
    case $* in
        "--expand avail") echo "${{nodes[@]}}" ;;
        --find=*" instance")
            local hosts=${{1#*=}}
            for rank in "${{!nodes[@]}}"; do
                [[ ,$hosts, != *",${{nodes[rank]}},"* ]] || found+=("$rank")
            done
            echo "${{found[@]}}"
            ;;
        *) echo "flux hostlist: $*: unknown" >&2 && exit 2 ;;
    esac
}}

case $command in
    run) run "$@" ;;
    exec) on_ranks "$@" ;;
    hostlist) hostlist "$@" ;;
    *) exit 2 ;;
esac
"""


class FluxStandIn(ClusterTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(cls.hosts.directory)
        write(cls.directory / "bin/flux", FLUX.format(names=" ".join(cls.hosts.names), directory=cls.directory, launcher=MPIRUN,
                                                      tasks_max=TASKS_PER_NODE_MAX), 0o755)
        make_software(cls.directory)
        write(cls.directory / "train.py", PROGRAM)

    def flux(self):
        """The environment of a job's script."""
        return {"FLUX_URI": "local:///run/flux/local", "FLUX_ENCLOSING_ID": "f2gVXkbSKH", "COPPER_LAUNCHER_ARGS": "",
                "MPI_ARGUMENTS": self.hosts.environment()["COPPER_LAUNCHER_ARGS"]}

    def run_block(self, text, **environment):
        return self.hosts.check("cn0", "bash", "-ec", f"cd {self.directory}\n{in_place(text, self.directory)}", **environment)

    def test_script_of_the_documentation(self):
        said = self.run_block(script_of(PAGE), **self.flux())
        self.assertEqual(4 * TASKS_PER_NODE_MAX, said.count("trained\n"), said)
        self.assertIn("4 of 4 serve", said)
        self.assertNotIn("hardly any program used the mirror", said)

    def test_launch_outside_flux(self):
        environment = self.flux() | {"COPPER_LAUNCHER_ARGS": self.hosts.environment()["COPPER_LAUNCHER_ARGS"]}
        self.run_block(block_with(PAGE, "flux exec").replace("--launcher mpirun", f"--launcher {MPIRUN}"), **environment)
        self.assertEqual(4, self.stats()["alive"])
        self.stop_well()

    def test_stop_reaches_a_node_that_lost_its_daemon(self):
        """By flux exec."""
        self.hosts.check("cn0", "copper", "launch", "--tree", self.tree, **self.flux())
        self.assertEqual(("f2gVXkbSKH", 4), (self.stats()["job"], self.stats()["alive"]))
        kill_all(self.hosts.processes_on("cn3", "copperd", "copperd-superv"))
        wait_until(lambda: not self.hosts.processes_on("cn3", "copperd", "copperd-superv"), 20, "their end")
        self.hosts.check("cn0", "copper", "stop", **self.flux())


# The mirror is in use when the job ends.
USE = """set -eu
copper launch --tree {tree}
flux run -N 4 -n 4 sh -c 'exec 3<{mount}{tree}/numpy/__init__.py && touch {directory}/used-$FLUX_TASK_RANK && exec sleep 600'
"""
JOB_SECONDS_MAX = 90
# A successor looks every 15 s whether its mirror is used, and ends at the second look.
UNUSED_SECONDS_MAX = 60
UPDATE_SECONDS_MAX = 10  # of flux-update(1)


class Flux(ClusterTestCase):
    over = put_over

    @classmethod
    def setUpClass(cls):
        reason = why_no_flux()
        if reason:
            raise unittest.SkipTest(f"optional: {reason}")
        super().setUpClass()
        cls.directory = pathlib.Path(cls.hosts.directory)
        cls.flux = Batch(cls.hosts)
        cls.flux.start()
        make_software(cls.directory)
        write(cls.directory / "train.py", PROGRAM)
        print("Flux", cls.flux.check("flux", "version").split()[1], flush=True)

    def setUp(self):
        super().setUp()
        self.addCleanup(self.flux.end_jobs)
        self.addCleanup(self.flux.unlink_scripts)
        for file in self.directory.glob("used-*"):
            file.unlink()

    def run_job(self, script, *options, **variables):
        """Returns what the job prints. It must end well, and leave nothing."""
        job = self.flux.submit(script, f"--cwd={self.directory}", *options, **variables)
        result = self.flux.wait_for(job, JOB_SECONDS_MAX)
        self.assertEqual("COMPLETED", result, self.flux.output(job) + self.flux.logs())
        return self.flux.output(job)

    def start_to_use(self, *options):
        """A job that uses its mirror on each node."""
        job = self.flux.submit(USE.format(tree=self.tree, mount=MOUNT, directory=self.directory), "-N4", *options)
        self.wait_for_use(job)
        return job

    def wait_for_use(self, job, nodes=4):
        try:
            wait_until(lambda: len(list(self.directory.glob("used-*"))) == nodes, JOB_SECONDS_MAX, "the use")
        except CopperError as error:
            self.fail(f"{self.flux.logs()}\n{self.flux.output(job)}\n{error}")

    def use_until_the_time_is_over(self):
        """However long the launch takes."""
        job = self.start_to_use("-t", "10m")
        seconds = float(self.flux.check("flux", "jobs", "-n", "-o", "{runtime}", job)) + UPDATE_SECONDS_MAX
        self.flux.check("flux", "update", job, f"duration={seconds}s")
        self.assertEqual("TIMEOUT", self.flux.wait_for(job, JOB_SECONDS_MAX), self.flux.output(job))

    def daemons(self):
        return self.hosts.processes("copperd", "copperd-superv")

    def wait_for_end_of_mirrors(self):
        """Without an epilog. What the launch recorded is left, for the next one."""
        wait_until(lambda: not self.daemons(), UNUSED_SECONDS_MAX, "the end of the daemons")
        for host in self.hosts.names:
            self.assertNotIn("fuse.copper", self.hosts.check(host, "cat", "/proc/self/mountinfo"))
        self.hosts.check("cn0", "copper", "stop", "--local")

    def test_script_of_the_documentation(self):
        said = self.run_job(in_place(script_of(PAGE), self.directory))
        self.assertEqual(4 * (CORES - 1), said.count("trained\n"), said)
        self.assertIn("4 of 4 serve", said)
        self.assertNotIn("hardly any program used the mirror", said)

    def test_launch_outside_flux(self):
        launch = block_with(PAGE, "flux exec").replace("--launcher mpirun", f"--launcher {MPIRUN}")
        look = f"copper status\nflux run -N 4 -n 4 ls {MOUNT}{self.directory}/lustre/sw\ncopper stop"
        said = self.run_job(f"set -e\n{in_place(launch, self.directory)}\n{look}", "-N4",
                            COPPER_LAUNCHER_ARGS=self.hosts.environment()["COPPER_LAUNCHER_ARGS"])
        self.assertIn("4 of 4 nodes serve", said)
        self.assertEqual(4, said.count("conda\n"), said)

    def test_the_daemons_know_their_job(self):
        said = self.run_job(f"set -e\ncopper launch --tree {self.tree}\ncopper stats --json >stats\n"
                            f"flux run -N 4 -n 4 copper env >environments\necho job $FLUX_ENCLOSING_ID\ncopper stop", "-N4")
        stats = json.loads((self.directory / "stats").read_text(encoding="utf-8"))
        self.assertEqual(4, stats["alive"])
        self.assertIn(f"job {stats['job']}\n", said.replace("\u0192", "f"))

    def test_launch_in_a_run(self):
        """Flux cannot start programs on the nodes of a run."""
        job = self.flux.submit(f"flux run -N 2 -n 2 copper launch --tree {self.tree}", "-N4")
        self.assertEqual("FAILED", self.flux.wait_for(job), self.flux.output(job))
        self.assertIn("copper: a program that 'flux run' started cannot start others", self.flux.output(job))
        self.assertNotIn("out of range", self.flux.output(job))

    def test_stop_reaches_a_node_that_lost_its_daemon(self):
        """By flux exec."""
        job = self.start_to_use()
        kill_all(self.hosts.processes_on("cn3", "copperd", "copperd-superv"))
        wait_until(lambda: not self.hosts.processes_on("cn3", "copperd", "copperd-superv"), 20, "their end")
        self.flux.check("flux", "proxy", job, "copper", "stop")
        self.assertEqual({}, self.daemons())
        self.flux.end_jobs()

    def proxy(self, job, *words, **variables):
        return self.flux.check("flux", "proxy", job, *words, **variables)

    def test_proxy(self):
        """Daemons that were launched from outside the job, even from another one, belong to the job. So its epilog ends them."""
        self.flux.link_scripts()
        # The script starts when all brokers of the job are there.
        job = self.flux.submit(f"touch {self.directory}/used-here && sleep 600", "-N4")
        wait_until((self.directory / "used-here").exists, JOB_SECONDS_MAX, "the start of the job's script")
        for variables in ({}, {"FLUX_ENCLOSING_ID": "f2gVXkbSKH"}):
            with self.subTest(variables):
                self.proxy(job, "copper", "launch", "--tree", self.tree, **variables)
                stats = json.loads(self.proxy(job, "copper", "stats", "--json", **variables))
                self.assertEqual((job, 4), (stats["job"], stats["alive"]))
                said = self.proxy(job, "flux", "run", "-N4", "-n4", "copper", "run", "ls", f"{MOUNT}{self.tree}", **variables)
                self.assertEqual(4, said.count("numpy\n"), said)
                if not variables:
                    self.proxy(job, "copper", "stop")  # it waits 10 s for other nodes
                    wait_until(lambda: not self.daemons(), UNUSED_SECONDS_MAX, "the end of the daemons")
        self.flux.check("flux", "cancel", job)
        self.flux.wait_for(job)
        self.assertEqual({}, self.daemons())

    def test_job_that_is_cancelled(self):
        job = self.start_to_use()
        self.flux.check("flux", "cancel", job)
        self.assertEqual("CANCELED", self.flux.wait_for(job), self.flux.output(job))
        self.wait_for_end_of_mirrors()

    def test_job_whose_time_is_over(self):
        self.use_until_the_time_is_over()
        self.wait_for_end_of_mirrors()

    def test_epilog_after_a_job_that_is_cancelled(self):
        self.flux.link_scripts()
        job = self.start_to_use()
        self.flux.check("flux", "cancel", job)
        self.flux.wait_for(job)
        self.assertEqual({}, self.daemons())

    def test_epilog_after_a_job_whose_time_is_over(self):
        self.flux.link_scripts()
        self.use_until_the_time_is_over()
        self.assertEqual({}, self.daemons())

    def nested(self, script, before="", after=""):
        """The script of a job that starts a job of two nodes within it, prints what that says, and waits for its end."""
        inner = self.directory / "inner.sh"
        write(inner, f"#!/bin/bash\n{script}", 0o755)
        return (f"{before}\njob=$(flux batch -N2 -n2 --cores-per-slot=8 --output=inner.out {inner})\n"
                f"flux job attach $job; cat inner.out\n{after}")

    def test_job_within_a_job(self):
        """It uses the mirror of the job around it, and starts one of its own where there is none."""
        look = f"flux run -N2 -n2 copper run ls {MOUNT}{self.tree}"
        launch = f"copper launch --tree {self.tree}"
        said = self.run_job(self.nested(f"{look}; copper status; {launch} && echo launched; copper stop && echo stopped",
                                        before=launch, after="copper stop && echo ended"), "-N4")
        self.assertEqual(2, said.count("numpy\n"), said)
        self.assertIn("4 of 4 nodes serve", said)
        self.assertNotIn("not of this job", said)
        self.assertRegex(said, "already served, by process [0-9]+, for job f[^/]+ around this one; .* or use that mirror")
        self.assertRegex(said, "is the mirror of job f[^/]+: end it there.*\n.* still runs")
        self.assertNotRegex(said, "(?m)^(launched|stopped)$")
        self.assertRegex(said, "(?m)^ended$")
        said = self.run_job(self.nested(f"{launch}; {look}; copper stats --json >stats; copper stop && echo stopped"), "-N4")
        self.assertEqual(2, said.count("numpy\n"), said)
        self.assertRegex(said, "(?m)^stopped$")
        self.assertRegex(json.loads((self.directory / "stats").read_text(encoding="utf-8"))["job"], "^f[^/]+/f[^/]+$")

    def test_epilog_ends_mirrors_of_jobs_within_the_job(self):
        self.flux.link_scripts()
        use = USE.format(tree=self.tree, mount=MOUNT, directory=self.directory).replace("-N 4 -n 4", "-N 2 -n 2")
        job = self.flux.submit(self.nested(use), "-N4", f"--cwd={self.directory}")
        self.wait_for_use(job, nodes=2)
        self.flux.check("flux", "cancel", job)
        self.flux.wait_for(job)
        self.assertEqual({}, self.daemons())

    def test_epilog_spares_other_jobs(self):
        self.flux.link_scripts()
        job = self.start_to_use("-n4", "--cores-per-slot=8")
        other = self.flux.submit("true", "-N4", "-n4")
        self.assertEqual("COMPLETED", self.flux.wait_for(other), self.flux.output(other) + self.flux.logs())
        self.assertEqual(4, json.loads(self.proxy(job, "copper", "stats", "--json"))["alive"])
        self.proxy(job, "copper", "stop")
        self.flux.end_jobs()
