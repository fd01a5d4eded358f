#!/usr/bin/env bash
# TORQUE: for mom_priv/prologue (first node) and mom_priv/prologue.parallel (all other nodes) on each node. They run as root
# before a job starts, with an empty environment and the arguments: job id, user, ... A copy of this script uses the
# installation that COPPER or PATH lead to, which must belong to root. Always ends with 0.
# PBS Pro runs its classic prologue on the first node only: use pbs-hook.py there.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [[ ! -x $here/copper-node.sh ]]; then
    copper=$(readlink -f "${COPPER:-$(command -v copper || printf /usr/local/bin/copper)}" || true)
    here=$(dirname "$copper")/../libexec/copper/site
fi
if [[ -x $here/copper-node.sh && -O $here/copper-node.sh ]]; then
    exec "$here/copper-node.sh" prepare "${2:-}" "${1:-}"
fi
logger -t copper -- "no Copper installation found by $0: nothing done" || true
