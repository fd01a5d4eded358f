"""Copper over MooseFS: a master and a chunk server."""

from cases import AclCases, CallCases, ImportCases, QuotaCases, TreeCases
from real_filesystems import MooseFs


class Trees(TreeCases):
    filesystem = MooseFs


class Acls(AclCases):
    filesystem = MooseFs


class Quotas(QuotaCases):
    filesystem = MooseFs


class Calls(CallCases):
    filesystem = MooseFs


class Imports(ImportCases):
    filesystem = MooseFs
