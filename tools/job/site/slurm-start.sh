#!/usr/bin/env bash
# For slurm-spank.c: starts a job's mirror, as its user. If it cannot start, prints why, and fails.
set -uo pipefail

# Before its step begins, srun calls this with the variables of that step. (In the shell of salloc, the job has its own.)
unset SLURM_STEP_ID SLURM_STEPID
export SLURM_JOB_NODELIST=${SLURM_JOB_NODELIST:-${SLURM_NODELIST:-}}

# shellcheck source=tools/job/site/mirror.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/mirror.sh"
said=$(launch_mirror) && exit 0
# In the shell of salloc, an earlier srun has started it.
[[ $said == *": already served, "* && $said != *", for job "* ]] && exit 0
echo "$said"
exit 1
