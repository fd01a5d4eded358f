"""`copper check`: finds each way around the mirror, and nothing where there is nothing."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sysconfig
import unittest

from copper import NOBODY, as_nobody, clean_environment, copper_program, wait_until
from import_storm import PYTHON
from mounted import MountTestCase

LIBRARY = "int answer(void) { return 42; }\n"
USER = "int answer(void); int main(void) { return answer() != 42; }\n"
READER = '#include <stdio.h>\nint main(void) { return fopen("%s", "r") == NULL; }\n'
STDLIB = pathlib.Path(sysconfig.get_path("stdlib"))


class Check(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for program in ("strace", "gcc"):
            if not shutil.which(program):
                raise unittest.SkipTest(f"needs {program}")
        cls.top = pathlib.Path(cls.make_directory())
        cls.tree = cls.top / "tree"
        cls.plant()
        cls.job = cls.launch_for_class(trees=[cls.tree])
        cls.mirror = f"{cls.job.root(0)}{cls.tree}"
    @classmethod
    def write(cls, path, text):
        file = cls.tree / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    @classmethod
    def compile(cls, source, output, *words):
        output = cls.tree / output
        output.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.run(["gcc", "-x", "c", "-", "-o", str(output), *words], input=source, text=True, check=False,
                              capture_output=True)

    @classmethod
    def plant(cls):
        """The tree, with every way around the mirror."""
        data = cls.write("data/file", "data")
        library = f"-L{cls.tree}/lib"
        for name, flags in (("rpath", ["-Wl,--disable-new-dtags"]), ("runpath", ["-Wl,--enable-new-dtags"])):
            cls.compile(LIBRARY, f"lib/lib{name}.so", "-shared", "-fPIC", f"-Wl,-soname,lib{name}.so").check_returncode()
            cls.compile(USER, f"bin/{name}", library, "-Wl,--no-as-needed", f"-l{name}", f"-Wl,-rpath,{cls.tree}/lib",
                        *flags).check_returncode()
        cls.compile(USER, "bin/plain", library, "-lrunpath").check_returncode()
        cls.has_static = cls.compile(READER % data, "bin/static", "-static").returncode == 0
        shutil.copy(os.path.realpath(PYTHON), cls.tree / "bin/python3")
        cls.write("bin/tool", f"#!{cls.tree}/bin/python3 -I\nprint('tool')\n").chmod(0o755)

        cls.write("src/module.py", "")
        cls.write("src2/mapped.py", "")
        cls.write("site/editable.pth", f"{cls.tree}/src\nimport __editable___x_finder\n")
        cls.write("site/__editable___x_finder.py",
                  f"import sys\nMAPPING = {{'mapped': '{cls.tree}/src2'}}\nsys.path += MAPPING.values()\n")
        user_site = f"home/.local/lib/{STDLIB.name}/site-packages"
        cls.write(f"{user_site}/own.py", "")

        cls.write("venv/pyvenv.cfg", f"home = {cls.tree}/base/bin\ninclude-system-site-packages = false\n")
        base = cls.tree / "base/lib" / STDLIB.name
        base.mkdir(parents=True)
        for file in STDLIB.glob("*.py"):
            shutil.copy(file, base)
        for package in ("encodings", "collections", "importlib", "re", "json"):
            if (STDLIB / package).is_dir():
                shutil.copytree(STDLIB / package, base / package)
        (cls.tree / "base/bin").mkdir()
        shutil.copy(os.path.realpath(PYTHON), cls.tree / "base/bin/python3")
        (cls.tree / "venv/bin").mkdir()
        (cls.tree / "venv/bin/python").symlink_to(cls.tree / "base/bin/python3")
        (cls.top / "link").symlink_to(cls.tree / "data")

    def setUp(self):
        # Others may run `copper check` meanwhile, but each ends soon.
        before = set(pathlib.Path("/tmp").glob("copper-check-*"))
        def nothing_is_left():
            left = set(pathlib.Path("/tmp").glob("copper-check-*")) - before
            wait_until(lambda: not any(path.exists() for path in left), 60, f"removing {left}")
        self.addCleanup(nothing_is_left)

    def check(self, *words, options=(), **variables):
        return self.job.command("check", "--mount", self.job.root(0), *options, "--", *words,
                                environment=clean_environment(PYTHONDONTWRITEBYTECODE=1, **variables))  # each run opens the sources

    def report(self, *words, expected=1, **variables):
        done = self.check(*words, options=["--json"], **variables)
        self.assertEqual(expected, done.returncode, (words, done.stdout, done.stderr))
        return json.loads(done.stdout)

    def bypasses(self):
        """{name: (command, variables, file below the tree)}"""
        tree, mirror = self.tree, self.mirror
        shell = ["sh", "-c"]
        program = f"{PYTHON} -S -c 'import module'"
        return {
            "script": ([*shell, f"{mirror}/bin/tool"], {}, "bin/python3"),
            "rpath": ([f"{tree}/bin/rpath"], {}, "lib/librpath.so"),
            "runpath": ([f"{tree}/bin/runpath"], {}, "lib/librunpath.so"),
            "pth": ([PYTHON, "-c", f"import site; site.addsitedir('{mirror}/site'); import module"], {}, "src/module.py"),
            "editable": ([PYTHON, "-c", f"import site; site.addsitedir('{mirror}/site'); import mapped"], {}, "src2/mapped.py"),
            "LD_LIBRARY_PATH": ([*shell, f"LD_LIBRARY_PATH={tree}/lib exec {mirror}/bin/plain"], {}, "lib/librunpath.so"),
            "PYTHONPATH": ([*shell, f"PYTHONPATH={tree}/src exec {program}"], {}, "src/module.py"),
            "PATH": ([*shell, f"PATH={tree}/bin:$PATH; python3 -I -c ''"], {}, "bin/python3"),
            "data": ([*shell, 'cat "$MY_DATA_DIR/file"'], {"MY_DATA_DIR": f"{tree}/data"}, "data/file"),
            "user site": ([PYTHON, "-c", "import own"], {"HOME": f"{tree}/home"}, f"home/.local/lib/{STDLIB.name}/site-packages"),
            "venv": ([f"{tree}/venv/bin/python", "-c", ""], {}, f"base/lib/{STDLIB.name}"),
            "link": (["cat", f"{self.top}/link/file"], {}, "data/file"),
            "working directory": ([*shell, f"cd {tree}/data; cat file"], {}, "data/file"),
            "path in a program": ([PYTHON, "-c", f"open('{tree}/data/file')"], {}, "data/file"),
            "program by its path": ([*shell, f"{tree}/bin/python3 -I -c ''"], {}, "bin/python3"),
        }

    def test_each_way_around_is_found(self):
        for name, (words, variables, file) in self.bypasses().items():
            with self.subTest(name):
                report = self.report(*words, **variables)
                found = [one["path"] for one in report["files"]]
                self.assertIn(f"{self.tree}/{file}", found)
                self.assertEqual(len(found), report["around"])
                self.assertGreaterEqual(report["opened"], report["around"])

    def test_static_program(self):
        if not self.has_static:
            self.skipTest("needs a static C library")
        report = self.report(f"{self.tree}/bin/static")
        self.assertIn(f"{self.tree}/data/file", [one["path"] for one in report["files"]])

    def test_clean_run(self):
        tree = self.tree
        script = f"cat {self.mirror}/data/file; plain; exec python3 -c 'import module'"
        variables = {"PATH": f"{tree}/bin:{os.defpath}", "PYTHONPATH": f"{tree}/src", "LD_LIBRARY_PATH": f"{tree}/lib"}
        report = self.report("sh", "-c", script, expected=0, **variables)
        self.assertEqual((0, []), (report["around"], report["files"]))
        self.assertGreaterEqual(report["opened"], 5)
        done = self.check("sh", "-c", script, **variables)
        self.assertRegex(done.stdout.splitlines()[-1], r"^All \d+ files .* through the mirror\.$")

    def test_runs_the_command_like_run(self):
        options = ["--mount", self.job.root(0), "--prefix", self.tree / "src", "--prefix", self.tree / "lib",
                   "--no-python-modules", "--pycache-prefix"]
        variables = {"PYTHONPATH": f"{self.tree}/src:{self.tree}/src2", "LD_LIBRARY_PATH": f"{self.tree}/lib"}
        environments = []
        for verb in (["run"], ["check", "--json"]):
            done = self.job.command(*verb, *options, "--", "env", environment=clean_environment(**variables))
            self.assertEqual(0, done.returncode, done.stderr)
            lines = (done.stdout if verb == ["run"] else done.stderr).splitlines()
            environments.append({line for line in lines if not line.startswith("_=")})
        self.assertEqual(environments[0], environments[1])

    def test_output_does_not_count(self):
        script = f"echo x > {self.tree}/output; cat {self.tree}/output"
        self.report("sh", "-c", script, expected=0)

    def test_absent_names_are_counted(self):
        report = self.report("cat", f"{self.tree}/absent", expected=1)  # cat's exit code
        self.assertEqual((0, 1), (report["around"], report["absent"]))

    def test_report_for_people(self):
        done = self.check("cat", *[f"{self.tree}/{path}" for path in
                                   ("data/file", "src/module.py", "src2/mapped.py", "bin/tool")])
        self.assertEqual(1, done.returncode)
        self.assertIn(f"    {self.tree}/data/file\n", done.stdout)
        self.assertIn("'copper path PATH'", done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], r"^4 of 4 files and directories .* around the mirror \(100%\)\.$")
        self.assertEqual("", done.stderr)

    def test_failing_commands(self):
        done = self.check("sh", "-c", "exit 7")
        self.assertEqual(7, done.returncode)
        self.assertIn("The command ended with exit code 7.", done.stdout)
        self.assertEqual(128 + signal.SIGKILL, self.check("sh", "-c", "kill -9 $$").returncode)
        done = self.check("no-such-program")
        self.assertEqual((127, ""), (done.returncode, done.stdout))
        self.assertIn("no-such-program: not found", done.stderr)
        self.assertEqual(2, self.job.command("check").returncode)
        self.assertEqual(1, self.job.command("check", "--mount", "/tmp/nothing-here", "--", "true").returncode)

    def test_forbidden_strace(self):
        places = self.top / "forbidden"
        places.mkdir()
        (places / "strace").write_text("#!/bin/sh\necho 'ptrace: Operation not permitted' >&2\nexit 1\n")
        (places / "strace").chmod(0o755)
        done = self.check("cat", f"{self.tree}/data/file", PATH=f"{places}:{os.defpath}")
        self.assertEqual((3, ""), (done.returncode, done.stdout))
        self.assertIn("needs strace(1), and the right to watch programs", done.stderr)

    def test_without_root(self):
        self.need_root()
        directory = self.make_directory(owner=NOBODY)
        keeper = self.device_for_everybody()
        job = self.prepare(trees=[self.tree], prefix=["nsenter", "-t", str(keeper), "-m", "--", *as_nobody()],
                           directory=directory, mounted_for=keeper, environment={"HOME": directory, "USER": "nobody",
                                                                                 "TMPDIR": directory})
        job.launch()
        done = job.command("check", "--json", "--mount", job.root(0), "--", "cat", f"{self.tree}/data/file")
        self.assertEqual(1, done.returncode, done.stderr)
        self.assertEqual(1, json.loads(done.stdout)["around"])

    def test_signals(self):
        for number, to_all in ((signal.SIGINT, True), (signal.SIGTERM, False)):
            with self.subTest(signal=number):
                process = subprocess.Popen(
                    [copper_program(), "check", "--mount", self.job.root(0), "--", "sh", "-c",
                     f"cat {self.tree}/data/file; echo; exec sleep 60"],
                    env=clean_environment(), stdout=subprocess.PIPE, text=True, start_new_session=True)
                with process:
                    self.assertEqual("data\n", process.stdout.readline())
                    (os.killpg if to_all else os.kill)(process.pid, number)
                    report = process.stdout.read()
                self.assertEqual(1, process.returncode)
                self.assertIn(f"ended with signal {int(number)} ", report)
                self.assertIn(f"{self.tree}/data/file", report)
