#!/usr/bin/env bash
# TORQUE: copies of this script are mom_priv/prologue and epilogue (first node), and prologue.parallel and epilogue.parallel
# (all other nodes). They run as root before and after a job, with an empty environment and the arguments: job id, user, ...
# A copy uses the installation that COPPER or PATH lead to, which must belong to root. Always ends with 0.
# PBS Pro runs its classic prologue and epilogue on the first node only: use pbs-hook.py there.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
if [[ ! -x $here/copper-node.sh ]]; then
    copper=$(readlink -f "${COPPER:-$(command -v copper || printf /usr/local/bin/copper)}" || true)
    here=$(dirname "$copper")/../libexec/copper/site
fi
if [[ -x $here/copper-node.sh && -O $here/copper-node.sh ]]; then
    case ${0##*/} in
        prologue*) exec "$here/copper-node.sh" prepare "${2:-}" "${1:-}" ;;
        epilogue*) exec "$here/copper-node.sh" clean "${2:-}" "${1:-}" ;;
    esac
    logger -t copper -- "$0: must be called prologue or epilogue: nothing done" || true
    exit 0
fi
logger -t copper -- "no Copper installation found by $0: nothing done" || true
