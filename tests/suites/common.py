"""What the suites share: archives, commands, a place for files, and what a case gave."""

import os
import pathlib
import signal
import subprocess

from copper import REPOSITORY, CopperError, clean_environment, copper_program

ARCHIVES = REPOSITORY.parent / "shared/suites"
BUILD_SECONDS_MAX = 900


def why_no_archive(name):
    return None if (ARCHIVES / f"{name}.tar.xz").exists() else f"there is no ../shared/suites/{name}.tar.xz"


def why_not_installed(path):
    return None if os.path.exists(path) else f"{path} is not installed (tools/setup suites)"


def unpack(name, place):
    """Returns the directory of its sources."""
    subprocess.run(["tar", "-xJf", ARCHIVES / f"{name}.tar.xz", "-C", place], check=True)
    return pathlib.Path(place, name)


def change(path, *changes):
    """Small changes of a source; each is a pair of the old text and the new one."""
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        if old not in text:
            raise CopperError(f"{path.name} is another version: it lacks {old!r}")
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def build(words, directory):
    done = subprocess.run([*map(str, words)], cwd=directory, env=clean_environment(), capture_output=True, text=True,
                          timeout=BUILD_SECONDS_MAX, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise CopperError(f"{' '.join(map(str, words))}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")


def start(words, directory, environment=None, **variables):
    return subprocess.Popen([*map(str, words)], cwd=directory, env={**(environment or clean_environment()), **variables}, text=True,
                            errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            start_new_session=True)


def finish(process, seconds):
    """Its exit code, or None if it had not ended, and what it printed."""
    try:
        output, _ = process.communicate(timeout=seconds)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return None, output


def in_view(job, node):
    """In front of a command that finds the mirror of this node in the place of the original."""
    return [copper_program(), "run", "--mount", job.root(node), "--view", "bind", "--"]
