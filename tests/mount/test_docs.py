"""Every command of README.md and docs/ is run, with stand-ins for what only clusters have (tests/support/pages.py)."""

import functools
import os
import pathlib
import re
import subprocess

from copper import NOBODY, REPOSITORY, as_nobody, build_directory, clean_environment, copper_program, mounts_below
from mounted import MountTestCase
from pages import BLOCK, PAGES, PROGRAM, blocks, in_place, make_software, write

IN_A_JOB = """
source /lustre/sw/conda/bin/activate
copper launch --tree /lustre/sw/conda >/dev/null
eval "$(copper env)"
"""

# One process, here; sets the variables that are named.
STAND_IN = """#!/bin/bash
while [[ ${1:-} == -* ]]; do
    case $1 in
        --genv) export "${2?}" && shift 2 ;;
        -n | -N | --ppn | --tasks-per-node | --hostfile | -x) shift 2 ;;
        *) shift ;;
    esac
done
exec "$@"
"""


# A command of copper at the beginning of a line, after another command, or behind `srun`.
COMMAND = re.compile(r"(?:^|[;&|(]|\bsrun\b[^;&|\n]*?)[ \t]*(?:\S*/)?copper[ \t]+([a-z]+)\b([^;&|)\n]*)", re.MULTILINE)


@functools.cache
def help_of(command):
    return subprocess.run([copper_program(), command, "--help"], capture_output=True, text=True, check=True).stdout


def headings_of(page):
    """As GitHub names them in links."""
    found = re.findall(r"(?m)^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).lower()).replace(" ", "-") for each in found}


class Docs(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.directory = pathlib.Path(cls.make_directory())
        make_software(cls.directory)
        write(cls.directory / "functions", in_place("module() { source /lustre/sw/conda/bin/activate; }\n", cls.directory))
        for name in ("srun", "mpiexec", "mpirun"):
            write(cls.directory / "bin" / name, STAND_IN, 0o755)

    def run_in(self, work, *words):
        environment = clean_environment(HOME=work, USER="me", COPPER_MOUNT=f"{work}/tmp/copper",
                                        BASH_ENV=f"{self.directory}/functions")
        environment["PATH"] = ":".join([f"{self.directory}/bin", f"{build_directory()}/tools", f"{REPOSITORY}/tools/job",
                                        environment["PATH"]])
        return subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, timeout=120,
                              stdin=subprocess.DEVNULL, check=False)

    def run_block(self, text, mark):
        """Runs a block with everything below /lustre and /tmp/$USER in places of the test's own."""
        work = pathlib.Path(self.make_directory())
        (work / "tmp/copper").mkdir(parents=True)
        write(work / "train.py", PROGRAM)
        text = (IN_A_JOB if mark else "") + text
        write(work / "block.sh", in_place(text, self.directory).replace("/tmp/$USER", f"{work}/tmp"))
        try:
            done = self.run_in(work, "bash", "-e", "block.sh")
        finally:
            stopped = self.run_in(work, copper_program(), "stop")
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        said = done.stdout + stopped.stdout
        if "train.py" in text or "solver" in text:
            self.assertRegex(said, "(?m)^(trained|solved)$")
            self.assertNotIn("hardly any program used the mirror", said)
        if not mark:
            self.assertIn("nothing serves", stopped.stdout, "the block does not stop what it launches")
        self.assertEqual([], mounts_below(work))

    def test_every_block(self):
        for place, mark, text in blocks():
            if not mark.startswith("not run: "):
                with self.subTest(place):
                    self.run_block(text, mark)

    def test_containers_of_other_users(self):
        """As in docs/use/containers.md, by a user other than root."""
        self.need_root()
        directory = self.make_directory(owner=NOBODY)
        keeper = self.device_for_everybody()
        job = self.prepare(trees=[self.directory / "lustre"], directory=directory, mounted_for=keeper,
                           prefix=["nsenter", "-t", str(keeper), "-m", "--", *as_nobody()],
                           environment={"HOME": directory, "USER": "nobody"})
        job.launch()
        tree = self.directory / "lustre/sw/spack"
        for name in ("upper", "work", "merged"):
            os.mkdir(f"{directory}/{name}")
            os.chown(f"{directory}/{name}", NOBODY, NOBODY)
        for script in (f"mount --bind {job.mirrored(0, tree)} {tree}; stat -f -c %T {tree}/data; exec {tree}/bin/solver",
                       f"mount -t overlay overlay -o lowerdir={job.mirrored(0, tree)},upperdir={directory}/upper,"
                       f"workdir={directory}/work,userxattr {directory}/merged; rm {directory}/merged/data; "
                       f"echo fuseblk >{directory}/merged/data; echo solved >>{directory}/merged/data; "
                       f"cat {directory}/merged/data"):
            with self.subTest(script):
                done = self.run_program(*job.prefix, "unshare", "--map-root-user", "--mount", "sh", "-ec", script)
                self.assertEqual(b"fuseblk\nsolved\n", done.stdout)

    def check_options(self, command, words):
        told = help_of(command)
        for option in re.findall(r"(?<!\S)--[a-z-]+", words.partition(" -- ")[0]):
            self.assertRegex(told, rf"(?m)(^|[\s,]){option}(?![a-z-])")

    def test_commands_in_the_text(self):
        """Commands and options between backquotes exist."""
        for page in PAGES:
            text = BLOCK.sub("", page.read_text(encoding="utf-8"))
            for command, words in re.findall(r"`copper\s+([a-z]+)\b([^`]*)`", text):
                with self.subTest(page.name, command=command, words=words):
                    self.check_options(command, words)

    def test_options_page(self):
        printed = subprocess.run([f"{build_directory()}/tools/copper_manual", "--options"], capture_output=True, text=True,
                                 check=True).stdout
        self.assertEqual(printed, (REPOSITORY / "docs/options.md").read_text(encoding="utf-8"),
                         "build/tools/copper_manual --options >docs/options.md")

    def test_links(self):
        """Files and headings that a page links to exist."""
        for page in PAGES:
            for link in re.findall(r"\]\(([^)\s]+)\)", BLOCK.sub("", page.read_text(encoding="utf-8"))):
                path, _, heading = link.partition("#")
                if "://" not in link:
                    with self.subTest(page.name, link=link):
                        target = page.parent / path if path else page
                        self.assertTrue(target.exists())
                        self.assertTrue(not heading or heading in headings_of(target))

    def test_commands_that_are_not_run(self):
        """Commands and options of blocks that no test runs exist."""
        found = 0
        for place, mark, text in blocks():
            if mark.startswith("not run: "):
                for command, words in COMMAND.findall(re.sub(r"(^|\s)#.*$", "", text.replace("\\\n", " "), flags=re.MULTILINE)):
                    found += 1
                    with self.subTest(place, command=command, words=words):
                        self.check_options(command, words)
        self.assertGreater(found, 0)
