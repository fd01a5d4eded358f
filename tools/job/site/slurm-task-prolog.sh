#!/usr/bin/env bash
# Slurm: for slurm.conf's TaskProlog= (runs as the user before each task, and before a job's script).
# For jobs that ask, by #SBATCH --comment=copper (needs slurm-prolog.sh, too) or by the environment variable
# COPPER_MIRROR=1: starts the mirror before the job's script, and sends the environment of each task of each step through
# it. Slurm reads 'export NAME=value', and shows 'print TEXT' in the job's output. Options come from the job's environment
# (COPPER_TREE=/lustre/sw) or the site's (COPPER_CONFIG=FILE).
set -uo pipefail

job=${SLURM_JOB_ID:-}
[[ ${COPPER_MIRROR:-} == 1 || -f /run/copper-asked/$job ]] || exit 0
# shellcheck source=tools/job/site/mirror.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/mirror.sh"

# The job's script is not a step.
if [[ -z ${SLURM_STEP_ID:-} ]]; then
    said=$(launch_mirror) || echo "print copper: this job runs without its mirror: $said"
    exit 0
fi
"$copper" env --shell slurm 2>/dev/null </dev/null
exit 0
