#!/usr/bin/env bash
# PBS: for $PBS_HOME/mom_priv/prologue (runs as root on each node before a job starts; arguments: job id, user, ...).
# Always ends with 0. A copy of this script uses the installation that COPPER or PATH lead to,
# which must belong to root.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [[ ! -x $here/copper-node-prepare.sh ]]; then
    copper=$(readlink -f "${COPPER:-$(command -v copper || printf /usr/local/bin/copper)}" || true)
    here=$(dirname "$copper")/../libexec/copper/prologue
fi
if [[ -x $here/copper-node-prepare.sh && -O $here/copper-node-prepare.sh ]]; then
    "$here/copper-node-prepare.sh" || true
    # Clean up after earlier jobs, like an epilogue.
    "$here/../epilogue/copper-node-clean.sh" "${2:-}" "${1:-}" || true
else
    logger -t copper-prepare -- "no Copper installation found by $0: nothing done" || true
fi
exit 0
