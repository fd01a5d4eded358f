#!/usr/bin/python3
"""Runs test suites of others on an original and through its mirror on several nodes, and compares what each case gives.

    tests/suites/suites.py [--verbose] [cpython] [fio] [ior] [pynamic] [xfstests]    # all by default

The sources of IOR, Pynamic and xfstests are unpacked from ../shared/suites into a temporary directory, and built there.
`tools/setup suites` installs what the suites need. One that lacks something is skipped, with the reason. The exit code is 1 if any
case gave something else than on the original, except what KNOWN lists; or if more than a tenth of a suite's cases fail on the
original, which tell little of the mirror.
"""

import argparse
import collections
import itertools
import pathlib
import re
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "support"), str(HERE.parents[1] / "bench")]

import c_programs
import python
from copper import handle_termination, why_no_mount
from import_storm import print_table

SKIPPED = 77
SUITES = {"cpython": python.CPython, "fio": c_programs.Fio, "ior": c_programs.Ior, "pynamic": python.Pynamic,
          "xfstests": c_programs.Xfstests}

# Patterns of a case, as "suite case", of what the original gives and of what the mirror gives; and why.
KNOWN = [
    (r"cpython .*", r"ok", r"fails\n.*OSError: \[Errno 30\] Read-only file system: '/usr/lib/python3.*",
     "removing a file that is not there is EROFS, as on any read-only mount"),
    (r"cpython .*", r"ok", r"skipped: requires write access to the installed location", "the mirror is read-only"),
    (r"cpython .*\.test_(user|group)", r"ok", r"\(absent\)", "processes of other users may not use a user's mirror"),
    (r"xfstests seek_sanity_test -s ([789]|13|14|15|16) .*", r".*", r".*SEEK_.*",
     "space that is allocated and was never written counts as data"),
    (r"xfstests xfsfind -a .*", r"exit code 0\n", r".*Inappropriate ioctl.*", "the filesystem's flags cannot be asked for"),
]
# Patterns of a case, and of what the original gives if it fails there. (Of the other suites, none may.)
FAILS = [(r"cpython .*", r"fails\n.*"), (r"fio .*", r"exit code (?!0).*"),
         (r"xfstests (?!t_readdir_[12]|t_mmap_write_ro).*", r"exit code (?!0\n).*")]


def fails(case, outcome):
    return any(re.fullmatch(cases, case, re.DOTALL) and re.fullmatch(outcomes, outcome, re.DOTALL) for cases, outcomes in FAILS)


def reason_of(case, expected, found):
    return next((reason for *patterns, reason in KNOWN if all(
        re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(patterns, (case, expected, found)))), None)


def lines_that_differ(expected, found):
    """The first three of them, of each side."""
    pairs = itertools.zip_longest(expected.splitlines(), found.splitlines(), fillvalue="(no line)")
    return ["\n    ".join(lines) for lines in zip(*list(pair for pair in pairs if pair[0] != pair[1])[:3])]


def compare(name, original, mirrors):
    """Prints what differs, or fails on the original; returns the row of the table, and how much is wrong."""
    reasons, unknown, other = collections.Counter(), 0, set()
    for node, mirror in mirrors.items():
        for case in sorted({*original, *mirror}):
            expected, found = original.get(case, "(absent)"), mirror.get(case, "(absent)")
            if expected == found:
                continue
            other.add(case)
            if reason := reason_of(f"{name} {case}", expected, found):
                reasons[reason] += 1
                continue
            unknown += 1
            for where, text in zip(("the original", node), lines_that_differ(expected, found)):
                print(f"{name} {case}, {where}: {text:.600}", flush=True)
    for reason, count in reasons.items():
        print(f"{name}: {count} times: {reason}", flush=True)
    failing = [case for case, outcome in original.items() if fails(f"{name} {case}", outcome)]
    for case in failing:
        print(f"{name} {case} fails on the original too", flush=True)
    if has_too_many := len(failing) > len(original) / 10:
        print(f"{name}: {len(failing)} of {len(original)} cases fail on the original: too many", flush=True)
    same = len(original) - len(other.union(failing))
    row = (name, len(original), ", ".join(mirrors), same, len(failing), sum(reasons.values()), unknown)
    return row, unknown + has_too_many


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"of {', '.join(SUITES)} (default: all)")
    parser.add_argument("--verbose", action="store_true", help="each case, and what it gave on the original")
    python.Pynamic.add_options(parser)
    options = parser.parse_args()
    if strange := set(options.suites) - set(SUITES):
        parser.error(f"no suite: {', '.join(strange)}")
    handle_termination()
    rows, skipped, wrong = [], [], 0
    for name in options.suites or SUITES:
        if reason := why_no_mount() or SUITES[name].why_not():
            skipped.append(f"{name} is skipped: {reason}")
            continue
        place = tempfile.mkdtemp(prefix="copper-test-", dir="/tmp")
        try:
            suite = SUITES[name](pathlib.Path(place), options)
            original, mirrors = suite.run()
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if options.verbose:
            for case, outcome in original.items():
                print(f"{name} {case}: {outcome}", flush=True)
        row, more = compare(name, original, mirrors)
        rows.append(row)
        wrong += more
    if rows:
        print_table([("suite", "cases", "mirrors", "the same on all", "fails on the original too",
                      "other, with a reason", "other, without"), *rows])
    print(*skipped, sep="\n")
    return 1 if wrong else 0 if rows else SKIPPED


if __name__ == "__main__":
    sys.exit(main())
