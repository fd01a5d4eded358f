"""Copper over MooseFS: a master and a chunk server."""

from cases import ImportCases, TreeCases
from real_filesystems import MooseFs


class Trees(TreeCases):
    filesystem = MooseFs


class Imports(ImportCases):
    filesystem = MooseFs
