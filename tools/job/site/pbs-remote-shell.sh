#!/bin/sh
# PBS: starts a command on another host of the job, by PBS (TM) instead of ssh. For an Open MPI that was built without TM:
#   mpirun --mca plm_rsh_agent /opt/copper/current/libexec/copper/site/pbs-remote-shell.sh ...
# calls
#   pbs-remote-shell.sh [-x] HOST WORD ...
# Joins the words for a shell, like ssh.
set -eu

[ "$1" != -x ] || shift
host=$1
shift
# shellcheck source=/dev/null
. "${PBS_CONF_FILE:-/etc/pbs.conf}"
exec "$PBS_EXEC/bin/pbs_tmrsh" "$host" /bin/sh -c "$*"
