#!/usr/bin/python3
"""A file that is written again in place, step by step, while others read it: its own history is the oracle. Each block tells its
version, its place and how many there are, so what a program gets shows whether it is one version.

    file_history.py write PATH FIRST-LAST    # these versions, one after the other; prints what write() returns of each
    file_history.py read PATH SECONDS        # at least once; prints when it had an answer, and which

Times are those of CLOCK_MONOTONIC, which all processes of a machine share, whatever their namespaces are, unless it says otherwise.
"""

import errno
import json
import os
import pathlib
import sys
import time

BLOCK = 4096
STEP_SECONDS = 0.03  # from block to block: shorter than any time after which a file counts as at rest
LAST = 9
READ_SECONDS = 4
SECONDS_MAX = 120


def content_of(version):
    blocks = 4 + version * 5 % 7
    return b"".join((b"%08d %08d %08d" % (version, place, blocks)).ljust(BLOCK, b".") for place in range(blocks))


def beginning(blocks, version):
    """What look() says of a file that has so many blocks of a version, and not all."""
    return f"{blocks} blocks of {version}" if blocks else "empty"


def write(path, version):
    """Returns when the last block began to be written: before, nobody can have had the whole version. And from when to when, at
    most and by CLOCK_REALTIME, the file had none of its blocks, one, and so on."""
    content = content_of(version)
    begins, ends = [time.time()], []
    with open(path, "r+b", buffering=0) as file:
        file.truncate(0)
        for begin in range(0, len(content), BLOCK):
            time.sleep(STEP_SECONDS)
            whole_at = time.monotonic()
            begins.append(time.time())
            file.write(content[begin:begin + BLOCK])
            ends.append(time.time())
        os.fsync(file.fileno())
    return whole_at, list(zip(begins, ends))


def look(path):
    """The version in the file ("8"), the beginning of one ("7 blocks of 8"), the name of an error, or what is wrong."""
    try:
        content = pathlib.Path(path).read_bytes()
    except OSError as error:
        return errno.errorcode[error.errno]
    if not content:
        return beginning(0, None)
    version = content[:8].decode(errors="replace").lstrip("0")
    if version.isdigit() and content_of(int(version)).startswith(content) and len(content) % BLOCK == 0:
        return version if content == content_of(int(version)) else beginning(len(content) // BLOCK, version)
    return f"a mix: {sorted({content[at:at + 26] for at in range(0, len(content), BLOCK)})}"


def answers_of(reader):
    """Of a process that reads: when, and what."""
    output, errors = reader.communicate(timeout=SECONDS_MAX)
    if reader.returncode != 0:
        raise RuntimeError(errors)
    return [(float(at), found) for at, _, found in (line.partition(" ") for line in output.splitlines())]


def rewrite_while_read(write_on, reads_on, is_rest=lambda begin, end: False):
    """Versions 2 to LAST. These functions start this program, with the last word of its command, where the file is written, or
    where it is read; half of the readers when version 2 is there, the others at 4. Returns the answers that each of them must not
    have had: neither ESTALE nor a version that was whole by then. And the beginnings of versions that are right, too, because the
    file was at rest meanwhile: `is_rest` says so of the time, by CLOCK_REALTIME."""
    whole_at, rests, readers = {"1": 0.0}, set(), []
    half = len(reads_on) // 2
    writer = write_on(f"2-{LAST}")
    for line in writer.stdout:
        version, at, lasted = json.loads(line)
        whole_at[str(version)] = at
        rests |= {beginning(blocks, version) for blocks, times in enumerate(lasted) if is_rest(*times)}
        readers += [read_on(str(READ_SECONDS)) for read_on in {2: reads_on[:half], 4: reads_on[half:]}.get(version, ())]
    writer.communicate()
    if writer.returncode != 0:
        raise RuntimeError("the writer failed")

    def is_right(found, at):
        return found == "ESTALE" or whole_at.get(found, at) < at or found in rests
    return [{found for at, found in answers_of(reader) if not is_right(found, at)} for reader in readers], rests


def main():
    action, path, word = sys.argv[1:]
    if action == "write":
        first, last = map(int, word.split("-"))
        for version in range(first, last + 1):
            print(json.dumps([version, *write(path, version)]), flush=True)
        return
    until = time.monotonic() + float(word)
    while True:
        found = look(path)
        now = time.monotonic()
        print(now, found, flush=True)
        if now >= until:
            break
        time.sleep(0.01)


if __name__ == "__main__":
    main()
