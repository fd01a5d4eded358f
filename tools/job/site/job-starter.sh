#!/usr/bin/env bash
# PBS Pro, OpenPBS, TORQUE: starts the processes of a job, as the job's user. If the job asked for its mirror by the
# environment variable COPPER_MIRROR (qsub -v), it launches the mirror before the first process, the shell of the job's
# script. With COPPER_MIRROR=1, that shell's environment leads through the mirror (copper env). With COPPER_MIRROR=view,
# the shell sees the mirror at the original paths (copper run).
#   job-starter.sh [-a NAME] PROGRAM [ARGUMENT ...]
# NAME is what PROGRAM is called with: "-bash" for a login shell. In PBS Pro, pbs-hook.py puts this script in front of
# the job's shell; in TORQUE, $job_starter in mom_priv/config does.
set -uo pipefail

# PBS numbers the tasks of each node in hexadecimal.
if [[ ${COPPER_MIRROR:-} =~ ^(1|view)$ && ${PBS_NODENUM:-0} == 0 && ${PBS_TASKNUM:-1} =~ ^0*1$ ]]; then
    # shellcheck source=tools/job/site/mirror.sh
    source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/mirror.sh"
    if ! said=$(launch_mirror); then
        echo "copper: this job runs without its mirror: $said" >&2
    elif [[ $COPPER_MIRROR == 1 ]]; then
        eval "$("$copper" env --shell bash 2>/dev/null </dev/null)"
    elif "$copper" run true </dev/null; then
        exec "$copper" run "$BASH" -c 'exec "$@"' bash "$@"
    fi
fi
exec "$@"
