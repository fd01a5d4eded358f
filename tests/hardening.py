#!/usr/bin/python3
"""Fails if a program lacks what COPPER_HARDENING promises: tests/hardening.py PROGRAM"""

import re
import subprocess
import sys

# What readelf prints of a program that has it.
WANTED = {
    "a position-independent executable": r"Type: +DYN",
    "relocations that are read-only": r"GNU_RELRO",
    "symbols that are bound before main()": r"\(FLAGS\) +BIND_NOW|\(FLAGS_1\) .*\bNOW\b",
    "stack protectors": r"__stack_chk_fail\b",
    "checks of _FORTIFY_SOURCE": r"UND __\w+_chk\b",
    "checks of _GLIBCXX_ASSERTIONS": r"UND \w*__glibcxx_assert_fail",
}


def main():
    program = sys.argv[1]
    elf = subprocess.run(["readelf", "--wide", "--file-header", "--program-headers", "--dynamic", "--dyn-syms", program],
                         capture_output=True, text=True, check=True).stdout
    lacking = [what for what, pattern in WANTED.items() if not re.search(pattern, elf)]
    if lacking:
        sys.exit(f"{program} lacks " + "; ".join(lacking))


if __name__ == "__main__":
    sys.exit(main())
