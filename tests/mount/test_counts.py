"""Counts the requests to the backing filesystem and the daemons: the reason why Copper exists."""

import collections
import dataclasses
import functools
import os
import pathlib
import subprocess
import sys

from copper import clean_environment, undisturbed
from import_storm import PYTHON, Workload, package_tree, start_python, storm
from mounted import MountTestCase
from slow_mounted import SlowTestCase


class AsTheFilesystemTells(SlowTestCase):
    """By its own list of requests: what the daemons count themselves does not matter."""

    def test_each_is_opened_once(self):
        self.source = package_tree("numpy")
        trace = f"{self.make_directory()}/trace"
        slow = self.serve()
        tree = slow.mount(trace)
        job = self.launch(nodes=4, trees=[tree])
        storm(Workload(packages=["scipy.stats"], trees=[tree]), [job.root(node) for node in range(4) for _ in range(4)])
        lone_reads = job.lone_reads()
        self.assertEqual(0, job.stop().returncode)
        slow.clients[0].terminate()
        slow.clients[0].wait()
        opened = collections.Counter()
        for line in pathlib.Path(trace).read_text(encoding="utf-8").splitlines():
            _, _, operation, _, _, _, path = line.split("\t")
            if operation in ("open", "opendir"):
                opened[operation, path] += 1
        self.assertGreater(len(opened), 500)
        again = {what: count for what, count in opened.items() if count > 1}
        self.assertLessEqual(sum(again.values()) - len(again), lone_reads, again)


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
        # The kernel does not even ask the daemon again for an absent name.
        for node in range(4):
            self.run_program(PYTHON, "-I", "-c", code, job.mirrored(node, self.tree), env=clean_environment())
        self.assertEqual(after["fuse"]["requests"], job.totals()["fuse"]["requests"])

    def import_totals(self, load, nodes, processes):
        job = self.launch(nodes=nodes, trees=[self.tree])
        storm(load, [job.root(node) for node in range(nodes) for _ in range(processes)])
        totals = job.totals()
        self.assertEqual(0, job.stop().returncode)
        return totals

    def test_each_is_read_once_for_any_number_of_nodes_and_processes(self):
        for package, sizes in (("numpy", ((1, 1), (1, 4), (2, 1), (2, 4), (4, 1), (4, 4), (8, 1), (8, 4))),
                               ("scipy.stats", ((1, 1), (4, 4), (8, 1)))):
            load = Workload(packages=[package], trees=[self.tree])
            seen = {}
            for nodes, processes in sizes:
                totals = undisturbed(functools.partial(self.import_totals, load, nodes, processes))
                seen[nodes, processes] = (totals["backing"]["listings"], totals["backing"]["file_opens"])
                self.assertEqual(0, sum(totals["fallbacks"].values()), totals["fallbacks"])
            self.assertEqual(1, len(set(seen.values())), seen)
            self.assertGreater(min(seen[1, 1]), 0)

    def requests_of(self, job, action, runs=4, enough=-1):
        """The least number of FUSE requests of several runs: a kernel may drop pages at any time, and ask for them again. All else
        is asked as often in each run."""
        seen, others = [], set()
        before = job.totals()["fuse"]
        while len(seen) < runs and min(seen, default=sys.maxsize) > enough:
            action()
            after = job.totals()["fuse"]
            made = difference(after, before)
            seen.append(made["requests"])
            others.add(made["requests"] - made["read"] - made["readdir"])
            before = after
        self.assertEqual(1, len(others), seen)
        return min(seen)

    def check_second_import(self, **variables):
        load = Workload(packages=["scipy.stats"], trees=[self.tree], variables=variables)
        plain = dataclasses.replace(load, env_options=("--no-python-modules",))
        job = self.launch(nodes=1, trees=[self.tree])
        storm(load, [job.root(0)])
        totals = job.totals()
        # Each file costs a few lookups, an open and some reads; each directory is looked up and listed.
        objects = totals["backing"]["file_opens"] + totals["backing"]["listings"]
        self.assertLess(totals["fuse"]["requests"], 5 * objects)
        # *.pth files of the interpreter may import something from the mirror before the module that avoids isatty() is
        # loaded. So an import costs what the interpreter's start costs, which is no more than without the module.
        start = self.requests_of(job, lambda: start_python(load, job.root(0)))
        self.assertLessEqual(start, self.requests_of(job, lambda: start_python(plain, job.root(0))))
        # On a busy machine, the kernel drops pages of a long import in each of a few runs.
        self.assertEqual(start, self.requests_of(job, lambda: storm(load, [job.root(0)]), runs=16, enough=start))
        if self.asks_isatty():
            self.assertGreater(self.requests_of(job, lambda: storm(plain, [job.root(0)])), start)
        return start

    def asks_isatty(self):
        """Whether this interpreter asks isatty() of each file that it opens."""
        return self.run_program(PYTHON, "-c", "import sys; print(sys.version_info < (3, 14))").stdout == b"True\n"

    def test_second_import_asks_nothing(self):
        self.check_second_import()

    def test_second_import_where_packages_start_with_the_interpreter(self):
        """Like setuptools and others: by a *.pth file in a directory that Python reads at its start."""
        base = self.make_directory()
        done = self.run_program(PYTHON, "-c", "import site; print(site.getusersitepackages())",
                                env=clean_environment(PYTHONUSERBASE=base))
        packages = done.stdout.decode().strip()
        os.makedirs(packages)
        with open(f"{packages}/early.pth", "w", encoding="utf-8") as file:
            file.write("import numpy\n")
        start = self.check_second_import(PYTHONUSERBASE=base)
        if self.asks_isatty():
            self.assertGreater(start, 10)

    def test_walks_are_answered_by_one_reader(self):
        """find on all nodes: the job lists every directory once and opens nothing."""
        job = self.launch(nodes=4, trees=[self.tree])
        walks = [subprocess.Popen(["find", job.mirrored(node, self.tree), "-size", "+1000G"]) for node in range(4)]
        self.assertEqual([0] * 4, [walk.wait(timeout=120) for walk in walks])
        contents = [names + files for _, names, files in os.walk(self.tree)]
        backing = job.totals()["backing"]
        self.assertEqual(0, backing["file_opens"])
        # A second reader looks whether what one finds empty really is.
        self.assertLessEqual(len(contents), backing["listings"])
        self.assertLessEqual(backing["listings"], len(contents) + contents.count([]))

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
