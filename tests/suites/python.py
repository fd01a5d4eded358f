"""CPython's own tests, whose standard library is in the mirror; and Pynamic, whose imports are timed."""

import os
import re
import subprocess
import sysconfig
import xml.etree.ElementTree

from common import build, change, finish, in_view, start, unpack, why_no_archive, why_not_installed
from copper import Copper, CopperError
from import_storm import PYTHON, keep_memory_ready, spread

LIBRARY = sysconfig.get_path("stdlib")


class CPython:
    """The tests that read files. What they write is elsewhere. The hook by which Copper leads bytecode into a scratch directory is
    left out: it is what some of them test."""
    NODES = 2
    SECONDS_MAX = 3600
    MODULES = """
        test_ast test_builtin test_bz2 test_cmd_line test_cmd_line_script test_codecs test_compileall test_ctypes test_dbm
        test_doctest test_email test_fcntl test_file test_file_eintr test_filecmp test_fileinput test_fileio test_fnmatch
        test_genericpath test_glob test_gzip test_hashlib test_import test_importlib test_inspect test_io test_json test_largefile
        test_lib2to3 test_linecache test_lzma test_memoryio test_mmap test_modulefinder test_ntpath test_os test_pathlib test_pkg
        test_pkgutil test_posix test_posixpath test_py_compile test_pyclbr test_pydoc test_runpy test_select test_shutil test_site
        test_source_encoding test_sqlite3 test_stat test_subprocess test_support test_sysconfig test_tarfile test_tempfile
        test_tokenize test_tomllib test_traceback test_univnewlines test_unittest test_utf8source test_venv test_warnings
        test_xml_etree test_zipapp test_zipfile test_zipimport test_zipimport_support
    """

    def __init__(self, place, options):
        self.place = place

    @staticmethod
    def why_not():
        return why_not_installed(f"{LIBRARY}/test/test_glob.py")

    def start(self, name, job=None, node=None):
        work = self.place / name
        (work / "t").mkdir(parents=True)  # (Some tests need a short name.)
        plainly = ["env", "-u", "PYTHONPATH", "-u", "PYTHONDONTWRITEBYTECODE"]
        words = [*(in_view(job, node) if job else []), *plainly, PYTHON, "-m", "test", f"--junit-xml={work}/results.xml",
                 f"--tempdir={work}/t", "-v", f"-j{1 if job else os.cpu_count()}", *self.MODULES.split()]
        return work, start(words, work, job and job.environment, TMPDIR=f"{work}/t", HOME=str(work))

    def outcomes(self, work, process):
        _, output = finish(process, self.SECONDS_MAX)
        (work / "output").write_text(output, encoding="utf-8")
        if not os.path.exists(work / "results.xml"):
            raise CopperError(output[-2000:])
        found = {}
        for test in xml.etree.ElementTree.parse(work / "results.xml").iter("testcase"):
            wrong = test.find("error") if test.find("error") is not None else test.find("failure")
            skipped = test.find("skipped")
            found[test.get("name", "")] = (f"fails\n{(wrong.text or '').strip().splitlines()[-1:]}" if wrong is not None else
                                       f"skipped: {skipped.text}" if skipped is not None else "ok")
        found.pop("", None)
        # The names of temporary files have numbers of processes.
        return {name: re.sub(r"@test_\d+_tmp", "@test_N_tmp", outcome.replace(str(work), "")) for name, outcome in found.items()}

    def run(self):
        original = self.outcomes(*self.start("d"))
        with Copper(nodes=self.NODES, trees=[LIBRARY], options=["--no-rewrite-symlinks"]) as job:
            running = {f"node {node}": self.start(str(node), job, node) for node in range(self.NODES)}
            return original, {node: self.outcomes(*started) for node, started in running.items()}


class Pynamic:
    """Imports all modules that it has generated, and calls their functions: by a process for each node, all at once."""
    NODES = 4

    def __init__(self, place, options):
        self.place = place
        self.options = options

    @staticmethod
    def add_options(parser):
        parser.add_argument("--modules", type=int, default=200, help="of Pynamic; a fourth as many libraries (default: 200)")
        parser.add_argument("--functions", type=int, default=100, help="of each, on average (default: 100)")
        parser.add_argument("--rounds", type=int, default=5, help="of Pynamic (default: 5)")

    @staticmethod
    def why_not():
        return why_no_archive("pynamic") or why_not_installed(f"{sysconfig.get_path('include')}/Python.h")

    def generate(self):
        tree = unpack("pynamic", self.place) / "pynamic-pyMPI-2.6a1"
        change(tree / "so_generator.py", ("/2", "//2"))  # of whole numbers, since Python 3.12
        libraries = self.options.modules // 4
        functions = self.options.functions
        build([PYTHON, "so_generator.py", self.options.modules + libraries, functions, "-e", "-u", libraries, functions, "-s", 1,
               "-j", os.cpu_count(), "--with-cc=gcc -Wl,--no-as-needed"], tree)
        return tree

    def times(self, tree, prefixes):
        """Of the slowest of these processes: seconds of its import, seconds of its calls. And what each one said."""
        running = [start([*prefix, PYTHON, f"{tree}/pynamic_driver.py"], "/") for prefix in prefixes]
        ended = [finish(process, 600) for process in running]
        found = [tuple(map(float, re.findall(r"module (?:import|visit) time = ([\d.]+)", output))) for _, output in ended]
        if wrong := [output for (code, output), one in zip(ended, found) if code != 0 or len(one) != 2]:
            raise CopperError(wrong[0][-2000:])
        imported, visited = map(max, zip(*found))
        return imported, visited, [f"exit code {code}, {'module test passed!' in output}" for code, output in ended]

    def run(self):
        tree = self.generate()
        self.times(tree, [[]] * self.NODES)
        taken = {what: [] for what in ("direct", "cold", "second")}
        original, mirror = {}, {}
        for turn in range(self.options.rounds):
            keep_memory_ready()
            *direct, original[f"round {turn}"] = self.times(tree, [[]] * self.NODES)
            taken["direct"].append(direct)
            with Copper(nodes=self.NODES, trees=[tree], options=["--no-rewrite-symlinks"]) as job:
                for node in range(self.NODES):  # makes the views
                    subprocess.run([*in_view(job, node), "true"], check=True, env=job.environment)
                for what in ("cold", "second"):
                    *times, outcome = self.times(tree, [in_view(job, node) for node in range(self.NODES)])
                    taken[what].append(times)
                    mirror[f"round {turn}"] = outcome
                opened = job.totals()["backing"]["file_opens"]
        ratio = {what: spread(sum(one) / sum(other) for one, other in zip(taken[what], taken["direct"]))
                 for what in ("cold", "second")}
        print(f"pynamic: {self.options.modules} modules, {self.options.modules // 4} libraries, {self.options.functions} functions "
              f"each; {self.NODES} processes at once; {opened} files opened for {self.NODES} nodes")
        for what, times in taken.items():
            print(f"pynamic {what}: import {spread(one for one, _ in times)} s, visit {spread(one for _, one in times)} s" +
                  (f"; both {ratio[what]} x direct" if what in ratio else ""), flush=True)
        return {case: "\n".join(said) for case, said in original.items()}, {
            f"{self.NODES} nodes": {case: "\n".join(said) for case, said in mirror.items()}}
