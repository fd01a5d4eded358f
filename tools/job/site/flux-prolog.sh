#!/usr/bin/env bash
# Flux: for /etc/flux/system/prolog.d/, with per-rank = true in [job-manager.prolog]. The IMP runs it as root on each node
# before a job starts.
set -euo pipefail

# As Copper records it. How Flux begins its ids depends on the locale.
job=${FLUX_JOB_ID:-}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
exec "$here/copper-node.sh" prepare "${FLUX_JOB_USERID:-}" "${job/#ƒ/f}"
