#!/usr/bin/env bash
# launch_copper.sh and stop_copper.sh of ALCF Copper 1.0, for job scripts that call them: translates their flags and calls
# `copper launch` or `copper stop`. The script's name selects the command. Also installed as
# {launch,stop}_copper_{aurora,frontier}.sh, which have other default cores.
set -euo pipefail

name=$(basename "$0")
command=launch
[[ $name != stop_* ]] || command=stop

usage_of_launch() {
    cat <<'USAGE'
usage: launch_copper.sh [options]
Start the mirror, with the options of ALCF Copper 1.0
  -l 0..5   log level: 0 none, 1 fatal, 2 error, 3 warning, 4 info, 5 debug (default 0)
  -t WHERE  where logs go: file, stdout or both (default file)
  -d DIR    output below DIR/<jobid>/ (default ~/copper-logs)
  -T N      number of readers (default 1)
  -M BYTES  each node reads larger files itself (default: no limit)
  -b LIST   cores for the daemon (default: those of the machine in the script's name if present, otherwise auto)
  -v DIR    mount point (default /tmp/$USER/copper)
  -P        stop_copper.sh writes what was counted to DIR/<jobid>/profiling/final/
  -N n, -A  the same, with the n most requested paths, or the first 1000
  -I s      the same, and every s seconds while the job runs to DIR/<jobid>/profiling/snapshot-*/
  -E ms -s seconds -F file -a mode -n net     accepted, not needed any more
The same with `copper launch`: see `copper launch --help`.
Examples:
  launch_copper.sh
  launch_copper.sh -d "$PBS_O_WORKDIR/copper-logs" -P
USAGE
}

usage_of_stop() {
    cat <<'USAGE'
usage: stop_copper.sh [options]
Stop the mirror, with the options of ALCF Copper 1.0
  -v DIR    mount point (default /tmp/$USER/copper)
  -d DIR    as for launch_copper.sh: profiling outputs go below DIR/<jobid>/ (default ~/copper-logs)
  -l -t -T -M -E -P -N -A -I -s -b -F -a -n   accepted, not needed
The same with `copper stop`: see `copper stop --help`.
Examples:
  stop_copper.sh
  stop_copper.sh -d "$PBS_O_WORKDIR/copper-logs"
USAGE
}

notice() { printf '%s_copper.sh: %s\n' "$command" "$*" >&2; }
fail() {
    notice "$1"
    exit 1
}
misused() {
    notice "$1"
    "usage_of_$command" >&2
    exit 1
}

case $name in
    *_aurora*) wanted_cores=48,49,50,51 ;;
    *_frontier*) wanted_cores=1,2 ;;
    *) wanted_cores='' ;;
esac

log_level=0
log_where='file'
output=''
readers=1
file_bytes=''
cores=''
mount=''
not_needed=''
profiling=''
paths=0
all_paths=''
snapshot_seconds=0
given=''

[[ ${1:-} != --help ]] || set -- -h
while getopts ':l:t:d:T:M:E:PN:AI:s:b:F:a:n:v:h' flag; do
    [[ $flag == [vd:?] ]] || given+=" -$flag"
    case $flag in
        l) log_level=$OPTARG ;;
        t) log_where=$OPTARG ;;
        d) output=$OPTARG ;;
        T) readers=$OPTARG ;;
        b) cores=$OPTARG ;;
        v) mount=$OPTARG ;;
        M) file_bytes=$OPTARG ;;
        E | s | F | a | n) not_needed+=" -$flag" ;;
        P) profiling=yes ;;
        N) profiling=yes paths=$OPTARG ;;
        A) profiling=yes all_paths=1000 ;;
        I) profiling=yes snapshot_seconds=$OPTARG ;;
        h)
            "usage_of_$command"
            exit 0
            ;;
        :) misused "-$OPTARG needs a value" ;;
        *) misused "unknown flag -$OPTARG" ;;
    esac
done
shift $((OPTIND - 1))
(($# == 0)) || misused "unexpected argument: $1"

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

# As there, without the server's name.
job=${PBS_JOBID:-${SLURM_JOB_ID:-${FLUX_JOB_ID:-local}}}
folder="${output:-$HOME/copper-logs}/${job%%.*}"
# What launch was asked for is what stop writes.
asked="$folder/profiling/paths"
mounts=()
[[ -z $mount ]] || mounts=(--mount "$mount")
write_profile=("$here/profiling.py")
[[ -f ${write_profile[0]} ]] || write_profile=("$here/../libexec/copper/profiling.py")
write_profile+=(--copper "$copper" --folder "$folder/profiling" "${mounts[@]}")

# Scripts for ALCF's Copper name this path themselves, so the mirror must be there or nowhere.
[[ $command == stop || -n $mount${COPPER_MOUNT:-}${COPPER_CONFIG:-} ]] || mounts=(--mount "/tmp/${USER:-$(id -un)}/copper")

if [[ $command == stop ]]; then
    [[ -z $given ]] || notice "accepted, not needed:$given"
    if [[ -r $asked ]]; then
        "${write_profile[@]}" --paths "$(<"$asked")" || notice "the profiling files could not be written"
        rm -f "$asked"
    fi
    exec "$copper" stop "${mounts[@]}"
fi

[[ $log_level =~ ^[0-5]$ ]] || fail "-l $log_level: must be 0 to 5"
case $log_where in
    file | stdout | both) ;;
    *) fail "-t $log_where: must be file, stdout or both" ;;
esac
[[ $readers =~ ^[1-9][0-9]*$ ]] || fail "-T $readers: must be a number of readers"
[[ -z $cores || $cores =~ ^[0-9,-]+$ ]] || fail "-b $cores: must be a list of cores such as 1,2,8-11"
[[ -z $file_bytes || $file_bytes =~ ^[0-9]+$ ]] || fail "-M $file_bytes: must be a number of bytes"
paths=${all_paths:-$paths}
[[ $paths =~ ^[0-9]+$ ]] || fail "-N $paths: must be a number of paths"
[[ $snapshot_seconds =~ ^[0-9]+$ ]] || fail "-I $snapshot_seconds: must be a number of seconds"
[[ -z $not_needed ]] || notice "accepted, not needed any more:$not_needed"

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

logs="$folder/logs"
arguments=(launch --log-level "$log_level" --readers "$readers" --cores "${cores:-auto}" "${mounts[@]}")
[[ -z $file_bytes ]] || export COPPER_SHARED_FILE_BYTES=$file_bytes
[[ $log_where != both ]] || export COPPER_LOG_TO_OUTPUT=true
if [[ $log_where == stdout ]]; then
    arguments+=(--log-dir -)
else
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

[[ -n $profiling ]] || exec "$copper" "${arguments[@]}"
"$copper" "${arguments[@]}"
mkdir -p "$folder/profiling"
printf '%s\n' "$paths" >"$asked"
if [[ $snapshot_seconds != 0 ]]; then
    setsid "${write_profile[@]}" --paths "$paths" --every "$snapshot_seconds" \
        </dev/null >"$folder/profiling/snapshots.log" 2>&1 &
fi
