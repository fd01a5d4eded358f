#!/usr/bin/env bash
# Slurm: for slurm.conf's Epilog= (runs as root on each node when a job ends).
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
exec "$here/copper-node.sh" clean "${SLURM_JOB_UID:-${SLURM_JOB_USER:-}}" "${SLURM_JOB_ID:-}"
