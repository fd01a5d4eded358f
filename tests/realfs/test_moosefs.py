"""Copper over MooseFS: a master and a chunk server."""

from cases import AclCases, ImportCases, QuotaCases, TreeCases
from real_filesystems import MooseFs


class Trees(TreeCases):
    filesystem = MooseFs


class Acls(AclCases):
    filesystem = MooseFs


class Quotas(QuotaCases):
    filesystem = MooseFs


class Imports(ImportCases):
    filesystem = MooseFs
