#!/usr/bin/env bash
# Read by the scripts in this directory that start a job's mirror as its user. Sets 'copper', the program.

export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"
copper=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../../bin/copper
[[ -x $copper ]] || copper=$(command -v copper)

# Prints why, in one line, if the mirror cannot start.
launch_mirror() {
    local said
    # With the daemons' logs in the job's output, that output would not end before they do.
    said=$(COPPER_LOG_TO_OUTPUT=false "$copper" launch 2>&1 </dev/null) || {
        echo "${said//$'\n'/ }"
        return 1
    }
}
