#!/usr/bin/env bash
# stop_copper.sh of ALCF Copper 1.0, for job scripts that call it: calls `copper stop`.
# Also installed as stop_copper_aurora.sh and stop_copper_frontier.sh.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: stop_copper.sh [options]
  -v DIR    mount point (default /tmp/$USER/copper)
  -d DIR    accepted: launch_copper.sh decides where output goes
  -l -t -T -M -E -P -N -A -I -s -b -F -a -n   accepted, not needed
The same with `copper stop`: see `copper stop --help`.
USAGE
}

notice() { printf 'stop_copper.sh: %s\n' "$*" >&2; }

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
copper=''
for candidate in "$here/copper" "$here/../bin/copper"; do
    if [[ -f $candidate && -x $candidate ]]; then
        copper=$candidate
        break
    fi
done
copper=${copper:-$(command -v copper || true)}
if [[ -z $copper ]]; then
    notice "the program 'copper' is neither beside this script nor in PATH"
    exit 1
fi

arguments=(stop)
not_needed=''
while getopts ':l:t:d:T:M:E:PN:AI:s:b:Fanv:h' flag; do
    case $flag in
        v) arguments+=(--mount "$OPTARG") ;;
        d) ;;
        h)
            usage
            exit 0
            ;;
        :)
            notice "-$OPTARG needs a value"
            usage >&2
            exit 1
            ;;
        '?')
            notice "unknown flag -$OPTARG"
            usage >&2
            exit 1
            ;;
        *) not_needed+=" -$flag" ;;
    esac
done
shift $((OPTIND - 1))
if (($# > 0)); then
    notice "unexpected argument: $1"
    usage >&2
    exit 1
fi
[[ -z $not_needed ]] || notice "accepted, not needed:$not_needed"

exec "$copper" "${arguments[@]}"
