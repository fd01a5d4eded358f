"""Copper over GlusterFS: one brick."""

from cases import CallCases, ImportCases, QuotaCases, TreeCases
from real_filesystems import GlusterFs


class Trees(TreeCases):
    filesystem = GlusterFs


class Quotas(QuotaCases):
    filesystem = GlusterFs


class Calls(CallCases):
    filesystem = GlusterFs


class Imports(ImportCases):
    filesystem = GlusterFs
