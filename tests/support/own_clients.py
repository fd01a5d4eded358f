"""A job on this machine whose nodes have a client each of a slow filesystem, as nodes of a cluster have.

    with SlowFilesystem(source, model) as slow, OwnClients(slow, nodes=4) as job:
        open(job.mirrored(0, f"{job.tree}/file"))

Each daemon runs in a mount namespace of its own, where its client lies at the tree. Programs that use the mirror start with
`job.prefix`: in one where the first node's client lies there.
"""

import os
import shutil
import subprocess

from copper import Copper, CopperError, copper_program, daemon_program

# Only what is mounted at the tree differs from what the others see.
DAEMON = """#!/bin/sh
exec unshare --mount --propagation unchanged sh -ec '
    mount --make-private "{tree}"
    mount --bind "{clients}/${{OMPI_COMM_WORLD_RANK:-${{PMI_RANK:-0}}}}" "{tree}"
    exec "{daemon}" "$@"' sh "$@"
"""
KEEPER = 'mount --make-rshared / && mount --bind "$1" "$2" && echo ready && read end'


class OwnClients(Copper):
    def __init__(self, slow, nodes, below=("",), **more):
        """`below`: which parts of the filesystem are the trees, "/a/b" for instance."""
        self.place = slow.directory
        self.tree = f"{self.place}/tree"
        super().__init__(nodes=nodes, trees=[self.tree + part for part in below], **more)
        self.clients = [slow.mount() for _ in range(nodes)]
        self.keeper = None

    def program(self):
        return f"{self.place}/bin/copper"

    def open(self):
        """Of the files of all jobs, one after the other, that this filesystem has had."""
        for name in ("tree", "clients", "bin"):
            os.makedirs(f"{self.place}/{name}", exist_ok=True)
        for node, client in enumerate(self.clients):
            link = f"{self.place}/clients/{node}"
            if os.path.lexists(link):
                os.unlink(link)
            os.symlink(client, link)
        shutil.copy2(copper_program(), self.program())
        with open(f"{self.place}/bin/copperd", "w", encoding="utf-8") as file:
            file.write(DAEMON.format(tree=self.tree, clients=f"{self.place}/clients", daemon=daemon_program()))
        os.chmod(file.name, 0o755)
        self.keeper = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-ec", KEEPER, "sh",
                                        self.clients[0], self.tree],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.keeper.stdout.readline() != b"ready\n":
            raise CopperError(f"nothing can be mounted at {self.tree}")
        self.prefix = ["nsenter", "-t", str(self.keeper.pid), "-m"]
        self.mounted_for = self.keeper.pid
        return super().open()

    def close(self):
        try:
            return super().close()
        finally:
            if self.keeper is not None:
                self.keeper.communicate(b"\n")
                self.keeper = None
