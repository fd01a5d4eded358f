#!/usr/bin/env bash
# Slurm: for slurm.conf's Epilog= (runs as root on each node when a job ends). Removes everything that the job left of
# Copper. Always ends with 0: a failing epilogue drains the node.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
"$here/copper-node-clean.sh" "${SLURM_JOB_USER:-${SLURM_JOB_UID:-}}" "${SLURM_JOB_ID:-}" || true
exit 0
