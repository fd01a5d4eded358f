"""Commands that need a running job: path, env, run, stats in its formats."""

import json
import os
import pathlib
import re
import shutil
import subprocess

from copper import clean_environment, copper_program
from import_storm import PYTHON, package_tree
from mounted import MountTestCase


class Commands(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tree = package_tree("numpy")
        cls.job = cls.launch_for_class(nodes=2, trees=[cls.tree])

    def copper(self, *words, **environment):
        done = self.job.command(*words, environment=clean_environment(**environment))
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def test_path_and_back(self):
        root = self.job.root(0)
        self.assertEqual(f"{root}/usr/lib\n", self.copper("path", "--mount", root, "/usr/lib"))
        self.assertEqual("/usr/lib\n", self.copper("path", "--mount", root, "--real", f"{root}/usr/lib"))
        done = self.job.command("path", "--mount", root, "--real", "/usr/lib")
        self.assertEqual(1, done.returncode)

    def test_environment_leads_into_the_mirror(self):
        root = self.job.root(1)
        lines = self.copper("env", "--mount", root, PYTHONPATH=f"{self.tree}:/elsewhere")
        done = self.run_program("sh", "-c", f'{lines}\nprintf %s "$PYTHONPATH"', env=clean_environment())
        modules, *others = done.stdout.decode().split(":")
        self.assertEqual([root + self.tree, "/elsewhere"], others)
        self.assertEqual(["sitecustomize.py"], os.listdir(modules))
        self.assertTrue(modules.startswith("/tmp/copper-"), "on the node's own disk")
        lines = self.copper("env", "--mount", root, "--no-python-modules", PYTHONPATH=self.tree)
        self.assertIn(f"PYTHONPATH={root}{self.tree}\n", lines)

    def test_commands_after_stop(self):
        """PATH does not lead into nothing."""
        job = self.launch(nodes=1, trees=["/usr/bin"])
        script = (f'eval "$({copper_program()} env --mount {job.root(0)})" && date >/dev/null && command -v date && '
                  f'{copper_program()} stop --mount {job.mount} >/dev/null && hash -r && command -v date && date >/dev/null')
        done = self.run_program("sh", "-c", script, env=job.environment | {"PATH": "/usr/bin"})
        self.assertEqual([f"{job.root(0)}/usr/bin/date", "/usr/bin/date"], done.stdout.decode().splitlines())

    def test_environment_in_each_shell_and_back(self):
        path = f"{self.tree}/it's a:{os.environ['PATH']}"
        env = f"{copper_program()} env --mount {self.job.root(1)}"
        for shell, words, get in (("sh", "", 'eval "$({})"'), ("bash", "--shell bash", 'eval "$({})"'),
                                  ("zsh", "--shell zsh", 'eval "$({})"'),
                                  ("fish", "--shell fish", "{} | source"), ("fish", "--shell fish", "eval ({})"),
                                  ("tcsh", "--shell csh", 'eval "`{}`"')):
            with self.subTest(shell, get=get):
                if not shutil.which(shell):
                    self.skipTest(f"needs {shell}")
                # Neither the mount nor any other option is needed for the way back.
                do = get.format(f"{env} {words} --pycache-prefix --prefix {self.tree}")
                undo = get.format(f"{copper_program()} env {words} --unset")
                show = "/usr/bin/printenv PATH MPLCONFIGDIR; /usr/bin/env >{}"
                environment = clean_environment(PYTHONPATH=f"/a'b;c=!d%:{self.tree}", PYTHONDONTWRITEBYTECODE="1",
                                                NUMBA_CACHE_DIR="/mine", CONDA_PREFIX=self.tree)
                environment["PATH"] = path
                before, after = f"{self.job.directory}/before", f"{self.job.directory}/after"
                done = self.run_program(shell, "-c", f"/usr/bin/env >{before}; {do}; {show.format('/dev/null')}; {undo}; "
                                                     f"{show.format(after)} || true", env=environment)
                there, scratch, back = done.stdout.decode().splitlines()
                self.assertEqual(f"{self.job.root(1)}{path}:{self.tree}/it's a", there)
                self.assertTrue(scratch.startswith("/tmp/copper-"))
                self.assertEqual(path, back)
                before, after = ({line for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines()
                                  if not line.startswith(("_=", "SHLVL="))} for file in (before, after))
                self.assertEqual(before, after)

    def test_undoing_what_is_not_done(self):
        done = self.job.command("env", "--unset")
        self.assertEqual((0, ""), (done.returncode, done.stdout))
        self.assertIn("there is nothing to undo", done.stderr)

    def test_undoing_with_originals_that_were_cut(self):
        done = self.job.command("env", "--mount", self.job.root(1))
        whole = next(line for line in done.stdout.splitlines() if line.startswith("export COPPER_ORIGINALS=")).partition("=")[2]
        done = self.job.command("env", "--unset", environment=clean_environment(COPPER_ORIGINALS=whole.strip("'")[:-20]))
        self.assertEqual((1, "false\n"), (done.returncode, done.stdout))
        self.assertIn("COPPER_ORIGINALS is not as 'copper env' has set it", done.stderr)

    def test_undoing_what_is_too_long(self):
        environment = clean_environment(PYTHONPATH=f"{self.tree}:/{'x' * 70000}", LD_LIBRARY_PATH=f"{self.tree}:/{'y' * 69000}")
        script = (f'eval "$({copper_program()} env --mount {self.job.root(1)})" && /usr/bin/true && '
                  f'eval "$({copper_program()} env --unset)" && /usr/bin/printenv PYTHONPATH LD_LIBRARY_PATH')
        done = self.run_program("bash", "-c", script, env=environment)
        self.assertEqual([environment["PYTHONPATH"], environment["LD_LIBRARY_PATH"]], done.stdout.decode().splitlines())
        self.assertIn(b"warning: the value of PYTHONPATH is too long to keep", done.stderr)
        self.assertIn(b"warning: the original value of PYTHONPATH was too long to keep", done.stderr)

    def test_originals_cost_the_filesystem_nothing(self):
        """Programs that find all they want in the mirror never look into the original directories."""
        if not shutil.which("strace"):
            self.skipTest("needs strace")
        tree = self.make_directory()
        pathlib.Path(f"{tree}/thing.py").write_text("print(__file__)", encoding="utf-8")
        pathlib.Path(f"{tree}/tool").write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
        os.chmod(f"{tree}/tool", 0o755)
        job = self.launch(nodes=1, trees=[tree])
        root = job.root(0)
        done = job.command("env", "--mount", root, environment=clean_environment() | {
            "PYTHONPATH": tree, "LD_LIBRARY_PATH": tree, "PATH": f"{tree}:/usr/bin:/bin"})
        self.assertIn(f"PATH={root}{tree}:/usr/bin:/bin:{tree}\n", done.stdout)
        calls = f"{job.directory}/calls"
        script = f"{done.stdout}\ntool && date && {PYTHON} -c 'import thing, json'"
        said = self.run_program("/usr/bin/strace", "-f", "-o", calls, "-e", "trace=%file", "sh", "-c", script,
                                env=clean_environment()).stdout.decode()
        self.assertIn(f"{root}{tree}/thing.py", said)
        text = pathlib.Path(calls).read_text(encoding="utf-8")
        self.assertIn(f'"{root}{tree}/thing.py', text)
        self.assertEqual([], [line for line in text.splitlines() if f'"{tree}' in line])

    def test_environment_that_leads_nowhere(self):
        done = self.job.command("env", "--mount", self.job.root(0), environment=clean_environment(VIRTUAL_ENV="/x"))
        self.assertEqual(0, done.returncode)
        self.assertRegex(done.stderr, rf"warning: .*PATH, PYTHONPATH, .*{self.tree}.*Activate")
        for variables in ({"PYTHONPATH": self.tree}, {"VIRTUAL_ENV": self.job.root(0) + self.tree}):
            done = self.job.command("env", "--mount", self.job.root(0), environment=clean_environment(**variables))
            self.assertEqual((0, ""), (done.returncode, done.stderr))

    def test_environment_fails_in_eval(self):
        for words, says in ((["--mount", "/tmp/nothing-here"], "no Copper serves /tmp/nothing-here"),
                            (["--shell", "ksh"], "ksh not in"), (["--unset", "--prefix", "/usr"], "not together")):
            script = f'set -e; eval "$({copper_program()} env {" ".join(words)})"; echo survived'
            done = self.run_program("sh", "-c", script, env=clean_environment(), expected=1)
            self.assertEqual(b"", done.stdout)
            self.assertIn(says, done.stderr.decode())

    def test_run(self):
        root = self.job.root(1)
        for view, shown in (("paths", root), ("bind", "")):
            found = self.copper("run", "--mount", root, "--view", view, "--", PYTHON, "-B", "-c",
                                "import numpy; print(numpy.__file__)", PYTHONPATH=self.tree)
            self.assertTrue(found.startswith(shown + self.tree), found)
        self.assertEqual(7, self.job.command("run", "--mount", root, "--", "sh", "-c", "exit 7").returncode)

    def test_status_names_all_nodes(self):
        status = self.job.status()
        self.assertIn(f"2 of 2 nodes serve; mirror of {self.tree} at {self.job.mount}\n", status)
        for node in range(2):
            self.assertIn(self.job.root(node), status)

    def test_status(self):
        # (On a busy machine even a local filesystem is one that is worth a line.)
        self.assertRegex(self.copper("status", "--mount", self.job.mount),
                         rf"\A2 of 2 nodes serve; mirror of {re.escape(self.tree)} at {re.escape(self.job.mount)}\n"
                         r"(  /\S* takes [\d.]+ ms for an operation.*\n)*\Z")
        status = json.loads(self.copper("status", "--json", "--mount", self.job.mount))
        self.assertEqual((1, 2, 2), (status["schema"], status["nodes"], status["serving"]))
        self.assertEqual(["serving"] * 2, [node["state"] for node in status["per_node"]])
        self.assertEqual(2, self.job.command("status", "--json", "--nodes", "--mount", self.job.mount).returncode)

    def test_openmetrics(self):
        os.listdir(self.job.mirrored(0, self.tree))
        text = self.copper("stats", "--openmetrics", "--mount", self.job.mount)
        self.assertTrue(text.rstrip().endswith("# EOF"))
        self.assertRegex(text, r'copper_cache_objects\{job="[^"]+"\} [1-9]')

    def test_statistics_as_text(self):
        os.listdir(self.job.mirrored(0, self.tree))
        text = self.copper("stats", "--all", "--mount", self.job.mount)
        self.assertRegex(text, r"backing\.listings +[1-9]")
        self.assertRegex(text, r"latency\.lookup\.max +[1-9]")

    def test_summary_of_statistics(self):
        name = f"{self.tree}/numpy/version.py"
        for node in range(2):
            with open(self.job.mirrored(node, name), "rb") as file:
                file.read()
        lines = self.copper("stats", "--mount", self.job.mount).splitlines()
        totals = self.job.totals()
        patterns = (rf"nodes +2 of 2 serve {self.job.mount} for \d+ s", rf"files +{totals['fuse']['files_read']} read",
                    rf"filesystem +{totals['backing']['file_opens']} files opened.*, {totals['backing']['listings']} dir.* in all$",
                    r"bytes +\S+ \S+ from the filesystem, \S+ \S+ to your programs", r"direct reads +0$",
                    r"cache +\S+ (bytes|.iB) used of \S+ .iB")
        self.assertEqual(len(patterns), len(lines), lines)
        for pattern, line in zip(patterns, lines):
            self.assertRegex(line, f"^{pattern}")
        for flags in (["--all", "--json"], ["--all", "--openmetrics"]):
            self.assertEqual(2, self.job.command("stats", *flags, "--mount", self.job.mount).returncode)

    def test_paths_asked_for_most(self):
        for n in range(30):
            self.assertFalse(os.path.exists(self.job.mirrored(n % 2, f"{self.tree}/absent-{n // 2}")))
        with open(self.job.mirrored(1, f"{self.tree}/numpy/__init__.py"), "rb") as file:
            size = len(file.read())
        found = json.loads(self.copper("stats", "--json", "--top", "1000", "--mount", self.job.mount))["top_paths"]
        by_path = {one["path"]: one for one in found}
        # Two requests, one per node: each kernel asks once for an absent name.
        self.assertEqual((2, 2), tuple(by_path[f"{self.tree}/absent-0"][key] for key in ("requests", "absent")))
        self.assertEqual((0, size), tuple(by_path[f"{self.tree}/numpy/__init__.py"][key]
                                          for key in ("absent", "bytes_read")))
        self.assertEqual(sorted((one["requests"] for one in found), reverse=True), [one["requests"] for one in found])
        text = self.copper("stats", "--top", "3", "--mount", self.job.mount)
        self.assertEqual(3, len(text.partition("REQUESTS")[2].strip().splitlines()) - 1)
        self.assertEqual(2, self.job.command("stats", "--top", "0", "--mount", self.job.mount).returncode)

    def test_stats_of_one_node(self):
        text = self.copper("stats", "--json", "--node", "1", "--mount", self.job.mount)
        self.assertIn('"rank": 1', text)
        self.assertNotEqual(0, self.job.command("stats", "--node", "9", "--mount", self.job.mount).returncode)

    def test_others_are_not_served(self):
        """Another user cannot even see the control socket."""
        self.need_root()
        done = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "ls",
                               "/tmp/copper-0"], capture_output=True, check=False, env=clean_environment())
        self.assertNotEqual(0, done.returncode)
        self.assertEqual(0o700, os.stat("/tmp/copper-0").st_mode & 0o777)
