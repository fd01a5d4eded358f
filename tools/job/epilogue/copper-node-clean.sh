#!/usr/bin/env bash
# The part that prologue and epilogue scripts share: leaves nothing of Copper of one user's job on this node, nor of what
# earlier ones left. A live daemon that names another batch job is spared: jobs of one user may share a node.
#   copper-node-clean.sh USER JOB
# Run as root by the batch system. Ends with 0 whatever happens, because a failing prologue or epilogue takes the node
# out of service; the reason goes to the system log instead. COPPER names the program if it is not beside this script's
# installation (../../../bin) nor in PATH.
set -euo pipefail

# A user whose files cannot be reached must not hold the node.
readonly seconds_max=180

note() {
    logger -t copper-clean -- "$*" 2>/dev/null || printf 'copper-clean: %s\n' "$*" >&2
}

find_copper() {
    local here candidate
    here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
    for candidate in "${COPPER:-}" "$here/../../../bin/copper"; do
        if [[ -n $candidate && -f $candidate && -x $candidate ]]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    command -v copper || true
}

user=${1:-}
if [[ -z $user ]]; then
    note "no user given: nothing cleaned"
    exit 0
fi
job=()
[[ -z ${2:-} ]] || job=(--batch-job "$2")
copper=$(find_copper)
if [[ -z $copper ]]; then
    note "the program 'copper' was not found: nothing cleaned for $user"
    exit 0
fi
if ! output=$(timeout "$seconds_max" "$copper" stop --local --user "$user" "${job[@]}" 2>&1 </dev/null); then
    note "clean-up for $user was not complete: ${output//$'\n'/; }"
elif [[ $output != nothing* ]]; then
    note "cleaned up for $user: ${output//$'\n'/; }"
fi
exit 0
