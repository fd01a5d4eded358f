#!/usr/bin/python3
"""Many processes that do the same at the same moment: flood.py COUNT getxattr|read ...

getxattr FILE...: an attribute that the file does not have. read SHA256 FILE...: all bytes of it, which must have this
checksum. Each process takes one of the files in turn. Prints how many processes succeeded. A line on
standard input starts the flood.
"""

import errno
import hashlib
import os
import sys


def look(what, path, number):
    if what == "getxattr":
        try:
            os.getxattr(path, f"user.absent{number}")
        except OSError as error:
            return error.errno in (errno.ENODATA, errno.EOPNOTSUPP)
        return False
    with open(path, "rb", buffering=0) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return digest == sys.argv[3]


def main():
    count, what = int(sys.argv[1]), sys.argv[2]
    paths = sys.argv[4:] if what == "read" else sys.argv[3:]
    begin, begun = os.pipe()
    children = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(begun)
                os.read(begin, 1)  # until the other end is closed
                code = 0 if look(what, paths[number % len(paths)], number) else 1
            finally:
                os._exit(code)
        children.append(pid)
    print("ready", flush=True)
    sys.stdin.readline()
    os.close(begun)
    print(sum(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 for pid in children), flush=True)


if __name__ == "__main__":
    main()
