"""Copper over CephFS, with ceph-fuse."""

from cases import SECONDS_MAX, CallCases, ImportCases, QuotaCases, TreeCases
from copper import wait_until
from real_filesystems import CephFs


class Trees(TreeCases):
    filesystem = CephFs


class Quotas(QuotaCases):
    filesystem = CephFs


class Calls(CallCases):
    filesystem = CephFs


class Imports(ImportCases):
    filesystem = CephFs

    def test_an_mds_that_is_lost(self):
        running = self.imports_under_way()
        lost = self.remote.active_mds()
        self.remote.kill_mds(lost)
        self.end_imports(running)
        wait_until(lambda: self.remote.active_mds() not in (None, lost), SECONDS_MAX, "the other MDS")
        self.check_files()
        self.stop_well()
        self.remote.start_part("ceph-mds", lost)
