"""Copper in the script of a Flux job, over four hosts, with a stand-in that takes the options that flux-run(1), flux-exec(1) and
flux-hostlist(1) document, and starts programs with the launcher of the MPI. Copper has not yet been run on Flux."""

import pathlib

from copper import kill_all, wait_until
from pages import PROGRAM, block_with, in_place, make_software, script_of, write
from test_mpirun import MPIRUN, ClusterTestCase

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


class Flux(ClusterTestCase):
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
