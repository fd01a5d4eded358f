#!/usr/bin/env bash
# Read by the scripts in this directory. Sets 'copper', the program: the one that COPPER names, that of this installation,
# or the first one in PATH; empty if there is none.

export PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"
for copper in "${COPPER:-}" "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../../bin/copper" "$(type -P copper)"; do
    if [[ -f $copper && -x $copper ]]; then
        break
    fi
done

# Starts a job's mirror, as its user. Prints why, in one line, if it cannot start.
launch_mirror() {
    local said
    if [[ -z $copper ]]; then
        echo "the program 'copper' was not found: install Copper on this node, or name the program in COPPER"
        return 1
    fi
    # With the daemons' logs in the job's output, that output would not end before they do.
    said=$(COPPER_LOG_TO_OUTPUT=false "$copper" launch 2>&1 </dev/null) || {
        echo "${said//$'\n'/ }"
        return 1
    }
}
