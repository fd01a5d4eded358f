"""How often the backing filesystem and the daemons are asked: the reason why Copper exists."""

import os
import subprocess

from copper import clean_environment
from import_storm import PYTHON, Workload, package_tree, start_python, storm
from mounted import MountTestCase


def difference(after, before):
    return {key: after[key] - before[key] for key in after}


class Counts(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tree = package_tree("numpy")

    def test_absent_names_cost_nothing(self):
        job = self.launch(nodes=4, trees=[self.tree])
        code = ("import os, sys\n"
                "for n in range(10_000):\n"
                "    if os.path.lexists(f'{sys.argv[1]}/absent-{n}'): sys.exit(f'{n} is there')\n")
        os.listdir(job.mirrored(0, self.tree))
        before = job.totals()
        for node in range(4):
            self.run_program(PYTHON, "-I", "-c", code, job.mirrored(node, self.tree), env=clean_environment())
        after = job.totals()
        self.assertEqual(dict.fromkeys(before["backing"], 0), difference(after["backing"], before["backing"]))
        # And what is known to be absent is not even asked of the daemon again.
        for node in range(4):
            self.run_program(PYTHON, "-I", "-c", code, job.mirrored(node, self.tree), env=clean_environment())
        self.assertEqual(after["fuse"]["requests"], job.totals()["fuse"]["requests"])

    def test_each_is_read_once_for_any_number_of_nodes_and_processes(self):
        for package, sizes in (("numpy", ((1, 1), (1, 4), (2, 1), (2, 4), (4, 1), (4, 4), (8, 1), (8, 4))),
                               ("scipy.stats", ((1, 1), (4, 4), (8, 1)))):
            load = Workload(packages=[package], trees=[self.tree])
            seen = {}
            for nodes, processes in sizes:
                job = self.launch(nodes=nodes, trees=[self.tree])
                storm(load, [job.root(node) for node in range(nodes) for _ in range(processes)])
                totals = job.totals()
                seen[nodes, processes] = (totals["backing"]["listings"], totals["backing"]["file_opens"])
                self.assertEqual(0, sum(totals["fallbacks"].values()), totals["fallbacks"])
                self.assertEqual(0, job.stop().returncode)
            self.assertEqual(1, len(set(seen.values())), seen)
            self.assertGreater(min(seen[1, 1]), 0)

    def test_second_import_asks_nothing(self):
        load = Workload(packages=["scipy.stats"], trees=[self.tree])
        job = self.launch(nodes=1, trees=[self.tree])
        seen = [job.totals()["fuse"]]
        for _ in range(4):
            storm(load, [job.root(0)])
            seen.append(job.totals()["fuse"])
        first, *later = (difference(after, before) for before, after in zip(seen, seen[1:]))
        self.assertLess(first["requests"], 2_500, first)
        # Before the module that spares isatty() is there, *.pth files of the interpreter may import something.
        before = job.totals()["fuse"]["requests"]
        start_python(load, job.root(0))
        start = job.totals()["fuse"]["requests"] - before
        self.assertLessEqual(start, 2)
        # One of several imports, for a kernel may drop pages at any time.
        self.assertEqual(start, min(one["requests"] for one in later), later)

    def test_walks_are_answered_by_one_reader(self):
        """find on all nodes: every directory is listed once altogether, and nothing is opened."""
        job = self.launch(nodes=4, trees=[self.tree])
        walks = [subprocess.Popen(["find", job.mirrored(node, self.tree), "-size", "+1000G"]) for node in range(4)]
        self.assertEqual([0] * 4, [walk.wait(timeout=120) for walk in walks])
        directories = sum(1 for _ in os.walk(self.tree))
        backing = job.totals()["backing"]
        self.assertEqual(0, backing["file_opens"])
        # The tree's parents are listed too: the kernel looks up each of them.
        self.assertLessEqual(directories, backing["listings"])
        self.assertLessEqual(backing["listings"], directories + self.tree.count("/"))

    def test_stats_agree(self):
        job = self.launch(nodes=3, trees=[self.tree])
        storm(Workload(packages=["numpy"], trees=[self.tree]), [job.root(node) for node in range(3)])
        stats = job.stats()
        self.assertEqual((1, 3, 3), (stats["schema"], stats["nodes"], stats["alive"]))
        self.assertEqual([0, 1, 2], [node["rank"] for node in stats["per_node"]])
        for group in ("fuse", "backing", "cache", "fabric", "fallbacks"):
            for key, total in stats["totals"][group].items():
                self.assertEqual(total, sum(node[group][key] for node in stats["per_node"]), f"{group}.{key}")
        self.assertGreater(stats["memory"]["rss_bytes_max"], 1 << 20)
        for key in ("lookup", "read"):
            latency = stats["totals"]["latency_us"][key]
            self.assertLessEqual(latency["p50"], latency["p99"])
            self.assertLessEqual(latency["p99"], latency["max"])
