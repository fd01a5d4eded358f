#!/usr/bin/env bash
# For node_exporter's textfile collector: writes the job's statistics as OpenMetrics text. A reader sees the old file or the
# new one, never a part. Run it on one node of the job, every minute for instance:
#   while copper-textfile.sh /var/lib/node_exporter/copper.prom; do sleep 60; done &
# Further arguments go to 'copper stats'. When the job has ended, it removes the file and fails. COPPER names the program
# if it is not in PATH.
set -euo pipefail

if (($# == 0)); then
    echo "usage: copper-textfile.sh FILE.prom [--mount DIR ...]" >&2
    exit 2
fi
file=$1
shift
new=$(mktemp "$file.XXXXXX")
trap 'rm -f "$new"' EXIT
if ! "${COPPER:-copper}" stats --openmetrics "$@" >"$new"; then
    rm -f "$file"
    exit 1
fi
chmod 644 "$new"
mv "$new" "$file"
