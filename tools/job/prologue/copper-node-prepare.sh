#!/usr/bin/env bash
# Makes sure that FUSE works on this node. Run as root by the prologue scripts; problems go to the system log.
set -euo pipefail

note() {
    logger -t copper-prepare -- "$*" 2>/dev/null || printf 'copper-prepare: %s\n' "$*" >&2
}

if [[ ! -c /dev/fuse ]]; then
    modprobe fuse 2>/dev/null || note "the kernel module 'fuse' could not be loaded"
fi
[[ -c /dev/fuse ]] || note "/dev/fuse does not exist: Copper cannot run on this node"
command -v fusermount3 >/dev/null || note "fusermount3 is missing: install fuse3"
exit 0
