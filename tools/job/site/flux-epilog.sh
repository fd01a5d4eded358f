#!/usr/bin/env bash
# Flux: for /etc/flux/system/epilog.d/, with per-rank = true in [job-manager.epilog]. The IMP runs it as root on each node
# when a job ends.
set -euo pipefail

# As Copper records it. How Flux begins its ids depends on the locale.
job=${FLUX_JOB_ID:-}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
exec "$here/copper-node.sh" clean "${FLUX_JOB_USERID:-}" "${job/#ƒ/f}"
