#!/usr/bin/env bash
# launch_copper.sh of ALCF Copper 1.0, for job scripts that call it: translates its flags and calls `copper launch`.
# Installed under the names launch_copper_aurora.sh and launch_copper_frontier.sh too, whose default cores differ.
set -euo pipefail

usage() {
    cat <<'USAGE'
usage: launch_copper.sh [options]
  -l 0..5   log level: 0 none, 1 fatal, 2 error, 3 warning, 4 info, 5 debug (default 0)
  -t WHERE  where logs go: file, stdout or both (default file)
  -d DIR    output below DIR/<jobid>/ (default ~/copper-logs)
  -T N      number of readers (default 1)
  -M BYTES  larger files are not broadcast, each node reads them for itself (default: no limit)
  -b LIST   cores for the daemon (default: of the machine the script is named for, if it has them; else chosen)
  -v DIR    mount point (default /tmp/$USER/copper)
  -P -N n -A -I s     profiling outputs: accepted, the files follow in a later version
  -E -s -F -a -n      accepted, not needed any more
The same with `copper launch`: see `copper launch --help`.
USAGE
}

notice() { printf 'launch_copper.sh: %s\n' "$*" >&2; }
fail() {
    notice "$1"
    exit 1
}

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
copper=''
for candidate in "$here/copper" "$here/../bin/copper"; do
    if [[ -f $candidate && -x $candidate ]]; then
        copper=$candidate
        break
    fi
done
copper=${copper:-$(command -v copper || true)}
[[ -n $copper ]] || fail "the program 'copper' is neither beside this script nor in PATH"

# The name it was called by says which machine's script this stands in for.
case $(basename "$0") in
    *_aurora*) wanted_cores=48,49,50,51 ;;
    *_frontier*) wanted_cores=1,2 ;;
    *) wanted_cores='' ;;
esac

log_level=0
log_where='file'
output="$HOME/copper-logs"
readers=1
file_bytes=''
cores=''
mount=''
not_needed=''
profiling=''

while getopts ':l:t:d:T:M:E:PN:AI:s:b:Fanv:h' flag; do
    case $flag in
        l) log_level=$OPTARG ;;
        t) log_where=$OPTARG ;;
        d) output=$OPTARG ;;
        T) readers=$OPTARG ;;
        b) cores=$OPTARG ;;
        v) mount=$OPTARG ;;
        M) file_bytes=$OPTARG ;;
        E | s | F | a | n) not_needed+=" -$flag" ;;
        P | N | A | I) profiling+=" -$flag" ;;
        h)
            usage
            exit 0
            ;;
        :)
            notice "-$OPTARG needs a value"
            usage >&2
            exit 1
            ;;
        *)
            notice "unknown flag -$OPTARG"
            usage >&2
            exit 1
            ;;
    esac
done
shift $((OPTIND - 1))
if (($# > 0)); then
    notice "unexpected argument: $1"
    usage >&2
    exit 1
fi
[[ $log_level =~ ^[0-5]$ ]] || fail "-l $log_level: must be 0 to 5"
case $log_where in
    file | stdout | both) ;;
    *) fail "-t $log_where: must be file, stdout or both" ;;
esac
[[ -z $file_bytes || $file_bytes =~ ^[0-9]+$ ]] || fail "-M $file_bytes: must be a number of bytes"
[[ -z $not_needed ]] || notice "accepted, not needed any more:$not_needed"
[[ -z $profiling ]] || notice "accepted; the profiling files follow in a later version:$profiling"

# True if this machine has all the cores of a list "1,2,8-11".
has_cores() {
    local part last present
    present=$(nproc --all)
    for part in ${1//,/ }; do
        last=${part#*-}
        [[ $last =~ ^[0-9]+$ ]] && ((last < present)) || return 1
    done
}
if [[ -z $cores && -n $wanted_cores ]] && has_cores "$wanted_cores"; then
    cores=$wanted_cores
fi

job=${PBS_JOBID:-${SLURM_JOB_ID:-${FLUX_JOB_ID:-local-$$}}}
logs="$output/$job/logs"

arguments=(launch --log-level "$log_level" --readers "$readers" --cores "${cores:-auto}" --create-mount)
[[ -z $mount ]] || arguments+=(--mount "$mount")
[[ -z $file_bytes ]] || arguments+=(--shared-file-bytes "$file_bytes")
[[ $log_where == file ]] || arguments+=(--log-to-output)
if [[ $log_where != stdout ]]; then
    mkdir -p "$logs"
    arguments+=(--log-dir "$logs")
    if [[ -n ${PBS_NODEFILE:-} && -r ${PBS_NODEFILE:-} ]]; then
        awk '!seen[$0]++' "$PBS_NODEFILE" >"$logs/node_file.txt"
    elif [[ -n ${SLURM_JOB_NODELIST:-} ]] && command -v scontrol >/dev/null; then
        scontrol show hostnames "$SLURM_JOB_NODELIST" >"$logs/node_file.txt"
    else
        hostname >"$logs/node_file.txt"
    fi
fi

exec "$copper" "${arguments[@]}"
