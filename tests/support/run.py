#!/usr/bin/python3
"""Runs the test classes named on the command line (module.Class) for CTest: exit code 77 if all were skipped.

Tests that lack a right or a device are skipped, with the reason. With CI=true, a skipped test is a failure, unless its reason
begins with "optional". A report of the thread sanitizer is a failure. Classes with `alone = True` end everything that a user
runs on the machine, so they get their own processes, mounts and /tmp.
"""

import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / part) for part in ("mount", "cluster", "fidelity", "realfs")),
                str(HERE.parents[1] / "bench")]

from copper import REPOSITORY, build_directory, handle_termination, is_built_with_thread_sanitizer
from hosts import FORGET_MIRRORS

SKIPPED = 77

# The first process of the new namespaces runs this, with the directories to keep and then the command. While it waits for the
# command, it also reaps orphaned processes of daemons.
HIDE_OTHERS = f"""
set -e
{FORGET_MIRRORS}
mount --bind /tmp /mnt
mount -t tmpfs -o mode=1777 tmpfs /tmp
for directory in "$1" "$2"; do
    case $directory in /tmp/*) mkdir -p "$directory"; mount --bind "/mnt${{directory#/tmp}}" "$directory" ;; esac
done
umount -l /mnt
shift 2
set +e
COPPER_TEST_ALONE=1 "$@"
exit $?
"""


class TimedResult(unittest.TextTestResult):
    """Prints how long each test took."""

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def addSuccess(self, test):
        unittest.TestResult.addSuccess(self, test)
        self.stream.writeln(f"ok ({time.monotonic() - self.started:.1f} s)")


def wants_to_be_alone(suite):
    if isinstance(suite, unittest.TestSuite):
        return any(wants_to_be_alone(test) for test in suite)
    return getattr(suite, "alone", False)


def run(suite):
    return unittest.TextTestRunner(verbosity=2, resultclass=TimedResult).run(suite)


def run_with_thread_sanitizer(suite):
    """Returns the result, and the reports of all processes. A daemon with a report goes on."""
    # In no directory of /tmp: some processes have a /tmp of their own.
    with tempfile.TemporaryDirectory(prefix="reports-", dir=build_directory()) as directory:
        options = (os.environ.get("TSAN_OPTIONS"), f"log_path={directory}/report", f"suppressions={HERE}/thread_sanitizer.supp",
                   # Otherwise, writing an answer to /dev/fuse counts as synchronization with whoever reads the next request
                   # from there, and hides races between the threads that serve requests.
                   "io_sync=0", "second_deadlock_stack=1")
        os.environ["TSAN_OPTIONS"] = ":".join(filter(None, options))
        result = run(suite)
        return result, [path.read_text(errors="replace") for path in sorted(pathlib.Path(directory).iterdir())]


def main():
    handle_termination()
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:])
    if os.geteuid() == 0 and "COPPER_TEST_ALONE" not in os.environ and wants_to_be_alone(suite):
        os.execvp("unshare", ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c",
                              HIDE_OTHERS, "sh", str(REPOSITORY), str(build_directory()), sys.executable, *sys.argv])
    result, reports = run_with_thread_sanitizer(suite) if is_built_with_thread_sanitizer() else (run(suite), [])
    if reports:
        print(*reports, f"The thread sanitizer has reports of {len(reports)} processes.", sep="\n")
        return 1
    # A class that is skipped as a whole counts no test as run.
    if not result.wasSuccessful() or (result.testsRun == 0 and not result.skipped):
        return 1
    lacking = [reason for _, reason in result.skipped if not reason.startswith("optional")]
    if lacking and os.environ.get("CI") == "true":
        print("CI=true, and tests were skipped:", *lacking, sep="\n  ")
        return 1
    return SKIPPED if len(result.skipped) >= result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
