"""Copper over GlusterFS: one brick."""

from cases import ImportCases, TreeCases
from real_filesystems import GlusterFs


class Trees(TreeCases):
    filesystem = GlusterFs


class Imports(ImportCases):
    filesystem = GlusterFs
