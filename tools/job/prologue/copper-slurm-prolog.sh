#!/usr/bin/env bash
# Slurm: for slurm.conf's Prolog= (runs as root on each node before a job starts there).
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
"$here/copper-node-prepare.sh" || true
# Clean up after earlier jobs, like an epilogue.
"$here/../epilogue/copper-slurm-epilog.sh" || true
exit 0
