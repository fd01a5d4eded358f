"""The commands in README.md, CONTRIBUTING.md and docs/, and the small software tree that they run against.

Each block of commands (```sh) is run alone, unless a comment in the line before it says otherwise:
    <!-- in a job -->           the block is run after `copper launch` and `copper env`
    <!-- not run: REASON -->    it needs what is not here; the reason says what, and which test covers it instead
"""

import pathlib
import re
import subprocess

from copper import REPOSITORY, clean_environment
from pythons import copy_python

PAGES = [REPOSITORY / "README.md", REPOSITORY / "CONTRIBUTING.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^ *```(?P<language>\S*)(?P<info>.*)\n(?P<text>(?:.*\n)*?) *```$", re.MULTILINE)
MARK = re.compile(r"<!-- (in a job|not run: .+?) -->\n *\Z", re.DOTALL)

ACTIVATE = 'export CONDA_PREFIX={0} PATH="{0}/bin:$PATH"\n'
PROGRAM = """import importlib.util, json
if importlib.util.find_spec("packaged"):  # where PYTHONPATH may lead
    import packaged
print("trained")
"""


def blocks(language="sh"):
    """Page, line, mark and text of each block of commands, or of another language."""
    for page in PAGES:
        content = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(content):
            if block["language"] == language:
                mark = MARK.search(content[:block.start()])
                yield (f"{page.relative_to(REPOSITORY)}:{content.count(chr(10), 0, block.start()) + 1}",
                       mark[1] if mark else "", block["text"])


def script_of(page):
    """The first job script of a page."""
    return next(text for place, _, text in blocks() if place.startswith(f"{page}:") and text.startswith("#!"))


def block_with(page, words, language="sh"):
    """The first block of a page that has these words."""
    return next(text for place, _, text in blocks(language) if place.startswith(f"{page}:") and words in text)


def write(path, text, mode=0o644):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def make_software(directory):
    """What the pages have below /lustre, in `directory`/lustre, and their programs."""
    software = pathlib.Path(directory) / "lustre/sw"
    conda = software / "conda"
    _, version = copy_python(conda)
    (conda / "bin/python").symlink_to(version)
    (software / "python").symlink_to("conda")
    write(conda / "bin/activate", ACTIVATE.format(conda))
    write(conda / "bin/torchrun", f"#!{conda}/bin/python\n{PROGRAM}", 0o755)
    write(conda / "app/train.py", PROGRAM)
    write(conda / "lib/python3.11/site-packages/packaged.py", "import json\n")
    subprocess.run([conda / "bin/python3", "-I", "-m", "venv", "--without-pip", software.parent / "home/me/venv"], check=True,
                   env=clean_environment())
    write(software / "spack/setup-env.sh", ACTIVATE.format(software / "spack"))
    write(software / "spack/data", "solved\n")
    write(software / "spack/bin/solver", f"#!/bin/sh\nexec cat {software}/spack/data\n", 0o755)


def in_place(text, directory):
    """The commands with the software where make_software put it."""
    return text.replace("/lustre/", f"{directory}/lustre/")
