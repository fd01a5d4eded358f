#!/usr/bin/python3
"""Fails on an #include against the table in docs/developing.md: which folder may use which."""

import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]

TABLE = "| folder | may include |\n|---|---|\n"


def read_table(document):
    """Which other folders each folder may use."""
    allowed = {}
    rows = document.partition(TABLE)[2].partition("\n\n")[0].splitlines()
    for folders, others in (row.strip("| ").split(" | ") for row in rows):
        for folder in re.findall("`(.+?)`", folders):
            allowed[folder] = re.findall("`(.+?)`", others)
    return allowed


ALLOWED = read_table((REPOSITORY / "docs" / "developing.md").read_text(encoding="utf-8"))


def folder_of(path):
    """The folder of the table that a file belongs to; None for tests and measurements."""
    return max((folder for folder in ALLOWED if path.startswith(folder + "/")), key=len, default=None)


def wrong_includes(path, text):
    folder = folder_of(path)
    for included in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE) if folder else []:
        target = folder_of(included)
        if target not in (None, folder, *ALLOWED[folder]):
            yield f"{path} includes {included}: {folder}/ must not use {target}/"


def main():
    assert list(wrong_includes("cache/x.cpp", '#include "fuse/y.hpp"\n')), "the check finds nothing"
    assert list(wrong_includes("cache/x.cpp", '#include "cache/backing/y.hpp"\n')), "the check finds nothing"
    assert list(wrong_includes("tools/copper/nodes/x.cpp", '#include "tools/copper/launch/y.hpp"\n')), "the check finds nothing"
    assert list(wrong_includes("tools/x.cpp", '#include "daemon/node.hpp"\n')), "the check finds nothing"
    files = [path for pattern in ("*.cpp", "*.hpp") for folder in ALLOWED
             for path in (REPOSITORY / folder).rglob(pattern)]
    found = {line for path in files
             for line in wrong_includes(str(path.relative_to(REPOSITORY)), path.read_text(encoding="utf-8"))}
    print(*sorted(found), sep="\n")
    return 1 if found or not files else 0


if __name__ == "__main__":
    sys.exit(main())
