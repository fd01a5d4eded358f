"""An emulated parallel filesystem (bench/slow_filesystem/), with any number of clients on this machine.

    with SlowFilesystem("/usr/lib", model="lustre") as slow:
        os.listdir(slow.mount())         # a client with an empty cache
        print(slow.counters())
"""

import collections
import json
import os
import shutil
import subprocess
import tempfile

from copper import CopperError, build_directory, mounts_below, wait_until

MOUNT_SECONDS_MAX = 20


def program():
    return str(build_directory() / "bench" / "copper_slow_filesystem")


def counters(shared):
    """What all clients that share this file have asked so far, by kind, as a Counter."""
    total = collections.Counter()
    if os.path.exists(shared):
        done = subprocess.run([program(), "--counters", shared], capture_output=True, text=True, check=True)
        for client in json.loads(done.stdout)["clients"]:
            total.update(client)
    return total


class SlowFilesystem:
    """A context manager: its mounts end with the block. All of them share the servers that `model` describes."""

    def __init__(self, source, model="lustre", options=()):
        self.options = options  # of the program, for each mount
        self.source = os.path.realpath(source)
        self.model = model
        self.directory = None
        self.clients = []  # processes, one for each mount

    def __enter__(self):
        if not os.path.exists(program()):
            raise CopperError(f"{program()} is not built (it needs libfuse 3.14 or later)")
        self.directory = tempfile.mkdtemp(prefix="copper-slow-", dir="/tmp")
        return self

    def __exit__(self, kind, error, trace):
        left = self.close()
        if left and kind is None:
            raise CopperError("; ".join(left))

    @property
    def shared(self):
        return f"{self.directory}/shared"

    def mount(self, trace=None):
        """Mounts once more: a client that knows nothing yet. Returns where. `trace`: a file for all its requests."""
        point = f"{self.directory}/{len(self.clients)}"
        os.mkdir(point)
        self.clients.append(None)
        self.start_client(point, *(["--trace", trace] if trace else []))
        return point

    def renew(self, point):
        """A client that knows nothing yet, in the place of another one, which nobody uses."""
        left = self.end_client(self.clients[int(os.path.basename(point))])
        if left:
            raise CopperError(left)
        self.start_client(point)

    def start_client(self, point, *options):
        # A session of its own, as a daemon has: the scheduler may treat each session as one (sched_autogroup).
        # The thread sanitizer's options are for daemons. Here, it needs to know that the kernel hands descriptors on.
        client = subprocess.Popen([program(), self.source, point, "--shared", self.shared, "--model", self.model, *self.options, *options],
                                  start_new_session=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                  env=os.environ | {"TSAN_OPTIONS": ""})
        self.clients[int(os.path.basename(point))] = client
        # Asks the mount table, not the mount: a question to the mount would count.
        wait_until(lambda: mounts_below(point) or client.poll() is not None, MOUNT_SECONDS_MAX, f"the mount at {point}")
        if client.poll() is not None:
            raise CopperError(client.stderr.read().strip())

    @staticmethod
    def end_client(client):
        """Returns what went wrong, in words."""
        client.terminate()
        try:
            _, errors = client.communicate(timeout=MOUNT_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            client.kill()
            _, errors = client.communicate()
        return f"the slow filesystem ended with exit code {client.returncode}: {errors.strip()}" if client.returncode else ""

    def counters(self):
        """What all clients together have asked so far, by kind, as a Counter."""
        return counters(self.shared)

    def close(self):
        """Ends all mounts. Returns what could not be ended, in words."""
        left = list(filter(None, map(self.end_client, self.clients)))
        for point in mounts_below(self.directory):
            left.append(f"mounted: {point}")
            subprocess.run(["umount", "-l", point], check=False)
        # A mirror of nothing: what is left are mount points and the shared file.
        if not mounts_below(self.directory):
            shutil.rmtree(self.directory)
        return left
