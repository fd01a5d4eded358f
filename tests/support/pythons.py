"""A small Python to put into a tree."""

import os
import shutil
import subprocess

from copper import clean_environment
from import_storm import PYTHON

LEFT_OUT = ("test", "tests", "idlelib", "lib2to3", "ensurepip", "turtledemo", "pydoc_data", "tkinter", "config-*",
            "dist-packages", "site-packages", "sitecustomize.py")


def copy_python(prefix):
    """A Python that needs nothing outside `prefix` but shared libraries. Returns its program, and "python3.X"."""
    code = ("import os, sys, sysconfig\n"
            "print(os.path.realpath(sys.executable), sysconfig.get_path('stdlib'), getattr(sys, 'platlibdir', 'lib'))")
    program, library, lib = subprocess.run([PYTHON, "-I", "-c", code], check=True, capture_output=True, text=True,
                                           env=clean_environment()).stdout.split()
    version = os.path.basename(library)
    os.makedirs(f"{prefix}/bin")
    shutil.copy2(program, f"{prefix}/bin/{version}")
    os.symlink(version, f"{prefix}/bin/python3")
    shutil.copytree(library, f"{prefix}/{lib}/{version}", ignore=shutil.ignore_patterns(*LEFT_OUT))
    return f"{prefix}/bin/python3", version
