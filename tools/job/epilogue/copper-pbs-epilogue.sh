#!/usr/bin/env bash
# PBS: for $PBS_HOME/mom_priv/epilogue (runs as root on each node when a job ends; arguments: job id, user, group, ...).
# Removes everything that the job left of Copper. Always ends with 0.
# A copy of this script uses the installation that COPPER or PATH lead to,
# which must belong to root.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [[ ! -x $here/copper-node-clean.sh ]]; then
    copper=$(readlink -f "${COPPER:-$(command -v copper || printf /usr/local/bin/copper)}" || true)
    here=$(dirname "$copper")/../libexec/copper/epilogue
fi
if [[ -x $here/copper-node-clean.sh && -O $here/copper-node-clean.sh ]]; then
    "$here/copper-node-clean.sh" "${2:-}" "${1:-}" || true
else
    logger -t copper-clean -- "no Copper installation found by $0: nothing cleaned" || true
fi
exit 0
