"""CPython's own tests, and Pynamic."""


class CPython:
    @staticmethod
    def why_not():
        return "todo"


class Pynamic:
    @staticmethod
    def why_not():
        return "todo"

    @staticmethod
    def add_options(parser):
        pass
