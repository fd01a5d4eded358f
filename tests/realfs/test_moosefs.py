"""Copper over MooseFS: a master and a chunk server."""

from cases import ImportCases, QuotaCases, TreeCases
from real_filesystems import MooseFs


class Trees(TreeCases):
    filesystem = MooseFs


class Quotas(QuotaCases):
    filesystem = MooseFs


class Imports(ImportCases):
    filesystem = MooseFs
