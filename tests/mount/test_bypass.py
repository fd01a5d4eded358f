"""Pythons that PATH does not lead into the mirror: console scripts, virtual environments, *.pth files, late activation."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from copper import REPOSITORY, clean_environment, copper_program
from import_storm import PYTHON, mirrored_variables
from mounted import MountTestCase
from pythons import copy_python

# Imports some 200 files of the standard library, and runs its first argument.
PROGRAM = """
import asyncio, concurrent.futures, decimal, email.message, http.client, json, logging.handlers, multiprocessing.pool
import sqlite3, subprocess, unittest.mock, xml.etree.ElementTree, xmlrpc.client, zipfile
import os, sys
exec(sys.argv[1])
"""
ASK_PATHS = ("print(json.dumps({'path': sys.path, 'prefixes': [sys.prefix, sys.base_prefix], 'executable': sys.executable,"
             " 'PYTHONPATH': os.environ.get('PYTHONPATH'), 'asyncio': asyncio.__file__}))")
EDITABLE = """
import sys
from importlib.util import spec_from_file_location
MAPPING = {{'editable_by_finder': {!r}}}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, MAPPING[name] + '/__init__.py') if name in MAPPING else None
def install():
    sys.meta_path.append(Finder)
"""


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    pathlib.Path(path).write_text(text, encoding="utf-8")
    os.chmod(path, mode)


class Bypass(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not shutil.which("strace"):
            raise unittest.SkipTest("needs strace")
        directory = cls.make_directory()
        cls.trees = [f"{directory}/software", f"{directory}/home dir"]
        software, cls.home = cls.trees
        cls.base = f"{software}/python"
        cls.python, cls.version = copy_python(cls.base)
        cls.tool = f"{cls.base}/bin/tool"
        write(cls.tool, f"#!{cls.python}\n{PROGRAM}", 0o755)
        cls.venv = cls.make_environment("venv")
        cls.venv_tool = f"{cls.venv}/bin/tool"
        cls.editables = cls.make_environment("editables")
        cls.fill(f"{cls.editables}/lib/{cls.version}/site-packages", f"{cls.home}/src")
        write(f"{cls.home}/.local/lib/{cls.version}/site-packages/of_user.py", "")
        cls.job = cls.launch_for_class(nodes=1, trees=cls.trees)
        cls.root = cls.job.root(0)

    @classmethod
    def make_environment(cls, name):
        """A virtual environment with a script as pip writes it if the interpreter's path has a blank."""
        venv = f"{cls.home}/{name}"
        subprocess.run([cls.python, "-I", "-m", "venv", "--without-pip", venv], check=True, env=clean_environment())
        write(f"{venv}/bin/tool", f"""#!/bin/sh\n'''exec' "{venv}/bin/python3" "$0" "$@"\n' '''\n{PROGRAM}""", 0o755)
        return venv

    @staticmethod
    def fill(packages, sources):
        """Everything that leads from site-packages to other places, and a sitecustomize module."""
        for name in ("editable_by_path", "editable_by_finder"):
            write(f"{sources}/{name}/__init__.py", "from . import part")
            write(f"{sources}/{name}/part.py", "")
        write(f"{packages}/by_path.pth", f"{sources}\n")
        write(f"{packages}/__editable___x_finder.py", EDITABLE.format(f"{sources}/editable_by_finder"))
        write(f"{packages}/by_finder.pth", "import __editable___x_finder; __editable___x_finder.install()\n")
        write(f"{packages}/sitecustomize.py", "import sys; sys.next_one = __file__\n")

    def environment(self, *places, **variables):
        """What `copper env` makes of an environment where these directories are first in PATH."""
        variables["PATH"] = ":".join([*places, clean_environment()["PATH"]])
        return {**clean_environment(**variables), **mirrored_variables(self.root, variables)}

    def run_copper(self, *words):
        return [copper_program(), "run", "--view", "paths", "--mount", self.root, *words]

    def mirrored(self, path):
        return self.job.mirrored(0, path)

    def opened(self, words, environment=None):
        """Runs a command. Returns its output, and the share of the trees' files that it opened around the mirror."""
        around, through = [], []
        with tempfile.NamedTemporaryFile(prefix="copper-strace-") as log:
            output = self.run_program("strace", "-f", "-e", "trace=open,openat", "-o", log.name, *words,
                                      env=environment or clean_environment()).stdout.decode()
            for line in log.read().decode(errors="replace").splitlines():
                call = re.match(r'\d+ +open(?:at)?\((?:AT_FDCWD, )?"([^"]*)".* = \d+', line)
                for found, root in ((around, ""), (through, self.root)):
                    if call and call[1].startswith(tuple(f"{root}{tree}/" for tree in self.trees)):
                        found.append(call[1])
        print(f"{len(around)} around the mirror, {len(through)} through it ... ", end="", flush=True)
        self.assertGreater(len(around) + len(through), 150)
        return output, len(around) / (len(around) + len(through))

    def check_paths(self, output, prefix, base):
        """Nothing of the answer to ASK_PATHS is in a tree, but everything in the mirror."""
        paths = json.loads(output)
        self.assertEqual([self.mirrored(prefix), self.mirrored(base)], paths["prefixes"])
        self.assertEqual(self.mirrored(f"{prefix}/bin/python3"), paths["executable"])
        self.assertTrue(paths["asyncio"].startswith(self.mirrored(base)), paths["asyncio"])
        self.assertEqual([], [path for path in paths["path"][1:] if path.startswith(tuple(self.trees))])
        self.assertEqual(len(set(paths["path"])), len(paths["path"]))
        self.assertEqual(self.environment()["PYTHONPATH"], paths["PYTHONPATH"])

    def test_run_console_script(self):
        for name, environment in ((self.tool, None), ("tool", clean_environment(PATH=f"{self.base}/bin:/usr/bin:/bin"))):
            output, share = self.opened(self.run_copper(name, ASK_PATHS), environment)
            self.check_paths(output, self.base, self.base)
            self.assertLess(share, 0.02)

    def test_run_in_virtual_environment(self):
        for command in (["python3", "-c", PROGRAM], [self.venv_tool], ["tool"]):
            environment = clean_environment(PATH=f"{self.venv}/bin:/usr/bin:/bin", VIRTUAL_ENV=self.venv)
            output, share = self.opened(self.run_copper(*command, ASK_PATHS), environment)
            self.check_paths(output, self.venv, self.base)
            self.assertLess(share, 0.02)

    def test_console_script_started_directly(self):
        """The kernel takes the interpreter from the original, so its first few files are, too."""
        for tool, prefix in ((self.tool, self.base), (self.venv_tool, self.venv)):
            output, share = self.opened([tool, ASK_PATHS], self.environment())
            self.check_paths(output, prefix, self.base)
            self.assertLess(share, 0.1)

    def test_virtual_environment_in_path(self):
        output, share = self.opened(["python3", "-c", PROGRAM, ASK_PATHS], self.environment(f"{self.venv}/bin"))
        self.check_paths(output, self.venv, self.base)
        self.assertLess(share, 0.1)

    def test_activation_after_env(self):
        script = f'. "{self.venv}/bin/activate" && exec python3 "$@"'
        output, share = self.opened(["sh", "-c", script, "sh", self.venv_tool, ASK_PATHS], self.environment())
        self.check_paths(output, self.venv, self.base)
        self.assertLess(share, 0.1)

    def test_child(self):
        """A script's own interpreter, and another script that the kernel starts from the original."""
        children = (["sys.executable", "sys.argv[0]"], [repr(self.venv_tool)])
        for child in children:
            code = f"print(subprocess.run([{', '.join(child)}, {ASK_PATHS!r}], check=True, capture_output=True, text=True).stdout)"
            output, share = self.opened(self.run_copper(self.venv_tool, code))
            self.check_paths(output, self.venv, self.base)
            self.assertLess(share, 0.05)

    def test_directories_named_by_files(self):
        code = ("import editable_by_path.part, editable_by_finder.part\n"
                "print(editable_by_path.part.__file__, editable_by_finder.__file__, sys.next_one, sep='\\n')")
        for command in (self.run_copper("tool"), ["tool"], [f"{self.editables}/bin/tool"]):
            done = self.run_program(*command, code, env=self.environment(f"{self.editables}/bin"))
            files = done.stdout.decode().splitlines()
            self.assertEqual(3, len(files))
            for file in files:
                self.assertTrue(file.startswith(self.mirrored(self.home)), files)

    def test_packages_of_user(self):
        code = "import of_user; print(of_user.__file__)"
        for command in (self.run_copper(self.tool), [self.tool]):
            done = self.run_program(*command, code, env=self.environment(HOME=self.home))
            self.assertTrue(done.stdout.decode().startswith(self.mirrored(f"{self.home}/.local")), done.stdout)

    def test_tree_by_another_name(self):
        link = f"{self.make_directory()}/link"
        os.symlink(self.base, link)
        output = self.run_program(f"{link}/bin/python3", self.tool, ASK_PATHS, env=self.environment()).stdout
        self.check_paths(output, self.base, self.base)

    def test_other_pythons_stay_as_they_are(self):
        code = "import sys; print(sys.prefix, sys.base_prefix, sys.executable, *sys.path, sep='\\n')"
        plain = self.run_program(PYTHON, "-c", code, env=clean_environment()).stdout.decode().splitlines()
        for command in ([PYTHON], self.run_copper(PYTHON)):
            environment = self.environment()
            found = self.run_program(*command, "-c", code, env=environment).stdout.decode().splitlines()
            found.remove(environment["PYTHONPATH"])
            self.assertEqual(plain, found)

    def test_without_our_module(self):
        """Such a Python would not take the standard library out of PYTHONPATH again, for other Pythons."""
        code = "import os; print(os.environ.get('COPPER_PYTHONPATH'), os.environ['PYTHONPATH'])"
        for option in ("-I", "-S", "-sE"):
            found = self.run_program(*self.run_copper(f"{self.venv}/bin/python3", option, "-c", code), env=clean_environment())
            self.assertEqual(f"None {self.environment()['PYTHONPATH']}\n", found.stdout.decode())
        found = self.run_program(*self.run_copper("--no-python-modules", f"{self.venv}/bin/python3", "-c",
                                                  "import os; print(os.environ.get('PYTHONPATH'))"), env=clean_environment())
        self.assertEqual("None\n", found.stdout.decode())

    def test_mirror_is_gone(self):
        environment = clean_environment(PYTHONPATH=REPOSITORY / "tools" / "python",
                                        COPPER_MIRRORED_TREES=":".join(["/nowhere", *self.trees]))
        found = json.loads(self.run_program(self.venv_tool, ASK_PATHS, env=environment).stdout)
        self.assertEqual([self.venv, self.base], found["prefixes"])
        self.assertTrue(found["asyncio"].startswith(self.base), found)

    def test_words_and_input_survive(self):
        words = ["a  b", "line\nfeed", "", "'\"$x", "[a,b]", "[]", "--mount", "-h", "--", "%%", "{}"]
        code = "print(json.dumps([sys.argv[2:], sys.stdin.read()]))"
        for tool in (self.tool, self.venv_tool):
            for dashes in ([], ["--"]):
                done = subprocess.run(self.run_copper(*dashes, tool, code, *words), input="of stdin\n", text=True,
                                      env=clean_environment(), capture_output=True, check=True)
                self.assertEqual([words, "of stdin\n"], json.loads(done.stdout))
        done = self.run_program(*self.run_copper("python3", "-c", "import sys; print(sys.argv)", "--mount", "-x"),
                                env=clean_environment(PATH=f"{self.base}/bin:/usr/bin:/bin"))
        self.assertEqual("['-c', '--mount', '-x']\n", done.stdout.decode())


# Prints which of the modules had to be compiled.
COMPILED = """import os, sys
compiled = []
sys.addaudithook(lambda event, words: compiled.append(os.path.basename(str(words[1]))) if event == 'compile' else None)
import bare, with_bytecode, package.part
print(sorted(compiled))"""


class Bytecode(MountTestCase):
    def test_is_compiled_once_a_node(self):
        directory = self.make_directory()
        tree = f"{directory}/software"
        for name in ("bare", "with_bytecode", "package/__init__", "package/part"):
            write(f"{tree}/{name}.py", "def function(): return 1\n")
        subprocess.run([PYTHON, "-m", "py_compile", f"{tree}/with_bytecode.py"], check=True, env=clean_environment())
        job = self.launch(nodes=1, trees=[tree])
        for view in ("bind", "paths"):
            for expected in (["__init__.py", "bare.py", "part.py"], []):
                words = [copper_program(), "run", "--view", view, "--mount", job.root(0), PYTHON, "-c", COMPILED]
                done = self.run_program(*words, env=clean_environment(PYTHONPATH=tree), cwd="/")
                self.assertEqual(f"{expected}\n", done.stdout.decode(), view)
        self.assertIn("missing in 2 places", job.command("stats", "--mount", job.mount).stdout)  # bare's, and package/__pycache__
        self.assertEqual(["with_bytecode"], [name.partition(".")[0] for name in os.listdir(f"{tree}/__pycache__")])
