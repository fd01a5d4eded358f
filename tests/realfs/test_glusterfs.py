"""Copper over GlusterFS: one brick."""

from cases import ImportCases, QuotaCases, TreeCases
from real_filesystems import GlusterFs


class Trees(TreeCases):
    filesystem = GlusterFs


class Quotas(QuotaCases):
    filesystem = GlusterFs


class Imports(ImportCases):
    filesystem = GlusterFs
