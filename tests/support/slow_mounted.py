"""For tests on an emulated parallel filesystem."""

import os
import pathlib

from copper import mounts_below, processes_of
from mounted import MountTestCase
from slow_filesystem import SlowFilesystem, program


class SlowTestCase(MountTestCase):
    def setUp(self):
        if not os.path.exists(program()):
            self.skipTest("needs libfuse 3.14 or later")

    def serve(self, text="", options=()):
        """A filesystem with a model of its own. What is left of it is a failure."""
        model = f"{self.make_directory()}/model.toml"
        pathlib.Path(model).write_text(text, encoding="utf-8")
        slow = SlowFilesystem(self.source, model, options)
        slow.__enter__()
        directory = slow.directory

        def close():
            self.assertEqual([], slow.close())
            self.assertEqual([], mounts_below(directory))
            self.assertEqual({}, processes_of(directory))
            self.assertFalse(os.path.exists(directory))
        self.addCleanup(close)
        return slow
