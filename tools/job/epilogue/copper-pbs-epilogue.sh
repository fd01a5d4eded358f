#!/usr/bin/env bash
# PBS: for $PBS_HOME/mom_priv/epilogue (runs as root on each node when a job ends; arguments: job id, user, group, ...).
# Leaves nothing of Copper of that job on the node. Always ends with 0.
# It may be a copy: then it looks for the installation that COPPER or PATH lead to,
# which must be root's own.
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
