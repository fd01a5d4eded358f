"""`copper env` and `copper run` put this module in front of PYTHONPATH: every Python of the job runs it at its start.

It lets Python read modules without isatty(). Before Python 3.14, open() calls isatty() on every file, including
imported modules. isatty() is an ioctl, which Linux always passes on to the FUSE daemon: the only request that remains
when a package is imported again through Copper.

Modules without bytecode are compiled once per node: what Python would write beside them goes to the node's scratch. (In
a tree nothing can be written, and elsewhere not by all nodes at once.)

It also leads an interpreter into the mirror that would read the original of a mirrored tree. PATH and PYTHONPATH cannot
do that for console scripts (their first line names the interpreter), virtual environments (pyvenv.cfg names the
standard library), *.pth files, and environments that are activated after `copper env`.

A Python that starts at its original place reads its first modules and *.pth files there, before this module. To start
the mirrored interpreter from here would not spare them, and would end a program that embeds Python.
"""

import os
import sys

HERE = __file__.rpartition("/")[0]


def _read_modules_plainly():
    import _frozen_importlib_external as importer
    import _io

    def get_data(self, path):
        with _io.FileIO(path, "r") as file:
            return file.read()

    importer.FileLoader.get_data = get_data


def _keep_bytecode(scratch):
    import _frozen_importlib_external as importer

    read, keep = importer.FileLoader.get_data, importer.SourceFileLoader._cache_bytecode

    # Files by their whole paths, as long as there is a mirror. (Others than Python ask for any path.)
    def is_kept(path):
        return isinstance(path, str) and path.startswith("/") and path.endswith(".pyc") and os.path.isdir(HERE)

    has_some = os.path.isdir(scratch)

    def get_data(self, path):
        if has_some and is_kept(path):
            try:
                return read(self, scratch + path)
            except OSError:
                pass
        return read(self, path)

    def cache_bytecode(self, source_path, bytecode_path, data):
        if is_kept(bytecode_path) and not getattr(sys, "pycache_prefix", None):
            bytecode_path = scratch + bytecode_path
        return keep(self, source_path, bytecode_path, data)

    importer.FileLoader.get_data = get_data
    importer.SourceFileLoader._cache_bytecode = cache_bytecode
    sys.dont_write_bytecode = False  # `copper env` sets it, for Pythons that do not run this module


def _use_the_mirror(mount, trees):
    """Changes where this interpreter looks from now on. What it has imported so far stays."""

    def lies_in(path, directory):
        return (path + "/").startswith(directory.rstrip("/") + "/")

    def mirrored(path):
        if not isinstance(path, str) or not path.startswith("/") or path == HERE or lies_in(path, mount):
            return path
        for place in (path, os.path.realpath(path)):
            if any(lies_in(place, tree) for tree in trees):
                # Not if the mirror lacks it. Only the last name may be absent, like that of python311.zip.
                return mount + place if os.path.isdir(os.path.dirname(mount + place)) else path
        return path

    def change(paths):
        paths[:] = dict.fromkeys(map(mirrored, paths))

    change(sys.path)
    for name in ("prefix", "exec_prefix", "base_prefix", "base_exec_prefix", "_stdlib_dir"):
        if hasattr(sys, name):
            setattr(sys, name, mirrored(getattr(sys, name)))
    # Python prepends a script's directory to sys.path later, and looks there first for every module.
    programs, _, name = (sys.executable or "").rpartition("/")
    if mirrored(programs) != programs:
        sys.executable = mirrored(programs) + "/" + name
        try:
            sys.path_importer_cache[programs] = sys.path_hooks[-1](mirrored(programs))
        except ImportError:  # the hook is not Python's own
            pass
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "__path__", None), list):
            change(module.__path__)
        if name.startswith("__editable__") and hasattr(module, "MAPPING"):  # written by setuptools for `pip install -e`
            module.MAPPING.update((package, mirrored(place)) for package, place in module.MAPPING.items())


def _run_the_next_one():
    """Runs the sitecustomize module of the site or the user, which this module hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec(__name__, [entry for entry in sys.path if entry != HERE])
    if spec is not None and spec.loader is not None and spec.origin != __file__:
        module = module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


if sys.version_info < (3, 14):
    _read_modules_plainly()
if "COPPER_BYTECODE" in os.environ:
    _keep_bytecode(os.environ["COPPER_BYTECODE"])
# `copper run` adds the standard library to PYTHONPATH for one interpreter only.
if "COPPER_PYTHONPATH" in os.environ:
    os.environ["PYTHONPATH"] = os.environ.pop("COPPER_PYTHONPATH")
if "COPPER_MIRRORED_TREES" in os.environ:  # MOUNT:TREE:TREE...
    _mirror = os.environ["COPPER_MIRRORED_TREES"].split(":")
    if os.path.ismount(_mirror[0]):
        _use_the_mirror(_mirror[0], _mirror[1:])
_run_the_next_one()
