#!/usr/bin/env bash
# Shared by prologue and epilogue scripts: removes everything that a user's job, or an earlier one, left of Copper on this
# node. Spares live daemons of other batch jobs, because jobs of one user may share a node.
#   copper-node-clean.sh USER JOB
# The batch system runs it as root. Always ends with 0, because a failing prologue or epilogue takes the node out of
# service; the reason goes to the system log. COPPER names the program if it is neither in this script's installation
# (../../../bin) nor in PATH.
set -euo pipefail

# A user with unreachable files must not block the node.
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
