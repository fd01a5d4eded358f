"""A large file is read by several nodes, each through its own client of the filesystem."""

import os
import signal

import bulk
from copper import lone_reads, wait_until
from own_clients import OwnClients
from slow_mounted import SlowTestCase

NODES = 4
PIECES = 96
BYTES = PIECES * bulk.PIECE


class Stripes(SlowTestCase):
    def setUp(self):
        super().setUp()
        self.need_root()
        self.source = self.make_directory()
        self.file = f"{self.source}/model"
        bulk.write(self.file, PIECES, version=1)

    def launch_on(self, rate, *options, model="", of_filesystem=()):
        self.slow = self.serve(f"client_bytes_per_second = {rate}\n{model}", of_filesystem)
        job = OwnClients(self.slow, NODES, options=options).open()
        self.addCleanup(self.check_closed, job)
        job.launch()
        return job

    def wait_for_the_middle(self):
        wait_until(lambda: self.slow.counters()["bytes_read"] > BYTES / 4, 60, "a quarter of the reading")

    @staticmethod
    def start(job):
        """On all nodes."""
        return [bulk.start_reading(job.mirrored(node, f"{job.tree}/model"), PIECES, job.prefix) for node in range(NODES)]

    def test_each_reader_reads_its_own_and_nobody_reads_anything_twice(self):
        job = self.launch_on(500e6)
        self.assertEqual(["1"] * NODES, bulk.results(self.start(job)))
        stats = job.stats()
        shares = [node["backing"]["bytes"] / BYTES for node in stats["per_node"]]
        if lone_reads(stats["totals"]) == 0:
            self.assertEqual(BYTES, stats["totals"]["backing"]["bytes"])
            self.assertLess(max(shares), 0.4, shares)
            self.assertGreater(min(shares), 0.1, shares)
            self.assertLessEqual(stats["totals"]["backing"]["file_opens"], NODES + 8)
        # Kernels read no more than daemons ask for, but for pages that they drop by themselves.
        self.assertLess(self.slow.counters()["bytes_read"], 1.05 * stats["totals"]["backing"]["bytes"])

    def test_prefetch_uses_all_readers(self):
        job = self.launch_on(100e6)
        done = job.command("prefetch", "--wait", "--mount", job.mount, f"{job.tree}/model")
        self.assertEqual((0, ""), (done.returncode, done.stderr))
        self.assertRegex(done.stdout, r"/model: 9[0-9]+ objects, 96 MiB in [0-9.]+ s \([0-9.]+ MiB/s\)\n")
        before = job.stats()
        self.assertLess(max(node["backing"]["bytes"] for node in before["per_node"]) / BYTES, 0.4)
        self.assertEqual(["1"] * NODES, bulk.results(self.start(job)))
        totals = job.totals()
        if lone_reads(totals) == 0:
            self.assertEqual(before["totals"]["backing"]["bytes"], totals["backing"]["bytes"])

    def test_one_reader_is_enough(self):
        job = self.launch_on(500e6, "--readers", "1")
        self.assertEqual(["1"] * NODES, bulk.results(self.start(job)))
        stats = job.stats()
        if lone_reads(stats["totals"]) == 0:
            self.assertEqual([0, 0, 0, BYTES], sorted(node["backing"]["bytes"] for node in stats["per_node"]))

    def test_a_reader_that_is_lost_costs_time_alone(self):
        for lost in range(NODES):
            with self.subTest(lost):
                job = self.launch_on(30e6)
                readings = self.start(job)
                self.wait_for_the_middle()
                self.assertTrue(any(reading.poll() is None for reading in readings), "it came too late")
                os.kill(job.daemons()[lost], signal.SIGKILL)
                self.assertEqual(["1"] * NODES, bulk.results(readings))

    def test_a_file_that_is_replaced_or_written_again_meanwhile(self):
        """Its readers do not notice at the same time. (By clients that keep attributes for an hour, or with stamps that look old, they
        would not notice at all that a file is written again.)"""
        for in_place in (False, True):
            with self.subTest(in_place=in_place):
                job = self.launch_on(30e6, model="forgets_attributes = 1\n", of_filesystem=("--age", "0"))
                readings = self.start(job)
                self.wait_for_the_middle()
                bulk.write(self.file, PIECES, version=2, in_place=in_place)
                self.assertLessEqual(set(bulk.results(readings)), {"1", "2", "ESTALE"})
                bulk.write(self.file, PIECES, version=1)
