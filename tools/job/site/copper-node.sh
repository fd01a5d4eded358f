#!/usr/bin/env bash
# What the prologue and epilogue of any batch system do on one node. The scripts beside this one call it as root.
#   copper-node.sh prepare USER JOB [asked]   before a job: looks whether Copper can run here, and cleans up after earlier
#                                             jobs. 'asked': the job asked for a mirror, see slurm-task-prolog.sh
#   copper-node.sh clean USER JOB             after a job: ends everything that the job left of Copper on this node
# USER is a name or, better, a number. Live daemons of other batch jobs are spared: jobs of one user may share a node.
# Always ends with 0, because a failing prologue or epilogue takes the node out of service; the reason goes to the system
# log. mirror.sh, beside this script, finds the program.
set -euo pipefail

copper=''
# shellcheck source=tools/job/site/mirror.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/mirror.sh" || true

# A user with unreachable files must not block the node.
readonly seconds_max=180
# A file per job that asked for a mirror. Only root writes there.
readonly asked=/run/copper-asked

note() {
    logger -t copper -- "$*" 2>/dev/null || printf 'copper: %s\n' "$*" >&2
}

check_fuse() {
    if [[ ! -c /dev/fuse ]]; then
        modprobe fuse 2>/dev/null || note "the kernel module 'fuse' could not be loaded"
    fi
    [[ -c /dev/fuse ]] || note "/dev/fuse does not exist: Copper cannot run on this node"
    command -v fusermount3 >/dev/null || note "fusermount3 is missing: install fuse3"
}

clean() {
    local user=$1 scope=() output
    if [[ -z $user ]]; then
        note "no user given: nothing cleaned"
        return
    fi
    [[ -z $2 ]] || scope=(--batch-job "$2")
    if [[ -z $copper ]]; then
        note "the program 'copper' was not found: nothing cleaned for $user"
        return
    fi
    if ! output=$(timeout "$seconds_max" "$copper" stop --local --user "$user" "${scope[@]}" 2>&1 </dev/null); then
        note "clean-up for $user was not complete: ${output//$'\n'/; }"
    elif [[ $output != nothing* ]]; then
        note "cleaned up for $user: ${output//$'\n'/; }"
    fi
}

user=${2:-}
job=${3:-}
case ${1:-} in
    prepare)
        check_fuse
        clean "$user" "$job"
        if [[ ${4:-} == asked && $job =~ ^[0-9A-Za-z]+$ ]]; then
            { mkdir -p "$asked" && : >"$asked/$job"; } || note "cannot write $asked/$job"
        fi
        ;;
    clean)
        clean "$user" "$job"
        if [[ -d $asked ]]; then
            rm -f "$asked/${job//\//}"
            rmdir "$asked" 2>/dev/null || true
        fi
        ;;
    *) note "$0: the first argument must be prepare or clean" ;;
esac
exit 0
