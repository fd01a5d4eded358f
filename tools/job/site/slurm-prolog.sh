#!/usr/bin/env bash
# Slurm: for slurm.conf's Prolog= (runs as root on each node before the first step of a job there).
# A job asks for its mirror by #SBATCH --comment=copper; slurm-task-prolog.sh starts it.
set -euo pipefail

asked=''
[[ ,${SLURM_JOB_COMMENT:-}, != *,copper,* ]] || asked='asked'
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
exec "$here/copper-node.sh" prepare "${SLURM_JOB_UID:-${SLURM_JOB_USER:-}}" "${SLURM_JOB_ID:-}" "$asked"
