"""Lets Python read modules without isatty(). `copper env` and `copper run` put this module in front of PYTHONPATH.

Before Python 3.14, open() calls isatty() on every file, including imported modules. isatty() is an ioctl, which Linux
always passes on to the FUSE daemon: the only request that remains when a package is imported again through Copper.
"""

import sys


def _read_modules_plainly():
    import _frozen_importlib_external as importer
    import _io

    def get_data(self, path):
        with _io.FileIO(path, "r") as file:
            return file.read()

    importer.FileLoader.get_data = get_data


def _run_the_next_one():
    """Runs the sitecustomize module of the site or the user, which this module hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = __file__.rpartition("/")[0]
    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if entry != here])
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        module = module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


if sys.version_info < (3, 14):
    _read_modules_plainly()
_run_the_next_one()
