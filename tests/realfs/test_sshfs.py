"""Copper over sshfs. Its clients make up a file's number, and others after the kernel has forgotten it."""

from cases import CallCases, ImportCases, TreeCases
from real_filesystems import Sshfs


class Trees(TreeCases):
    filesystem = Sshfs


class Calls(CallCases):
    filesystem = Sshfs
    users = ("root",)  # it lets in nobody else


class Imports(ImportCases):
    filesystem = Sshfs
    # Of large files that are being read when the server is lost, its client may keep pages of zeros.
    compared = "-name '*.py' -size -64k"
