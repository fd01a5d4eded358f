"""launch_copper.sh and stop_copper.sh: job scripts for ALCF Copper 1.0 work unchanged."""

import os
import pathlib
import shutil
import signal
import subprocess

from copper import a_document, build_directory, clean_environment, wait_until
from mounted import MountTestCase

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "tools" / "job"
MEBIBYTE = 1 << 20


class Scripts(MountTestCase):
    def setUp(self):
        self.job = self.prepare(nodes=2)
        self.tree = self.make_directory()
        for name, size in (("small", MEBIBYTE // 2), ("large", 2 * MEBIBYTE + 1)):
            with open(f"{self.tree}/{name}", "wb") as file:
                file.write(os.urandom(size))

    def script(self, name, *flags, expected=0, **environment):
        programs = build_directory() / "tools"
        environment = {"COPPER_LOCAL": self.job.nodes, "COPPER_TREE": self.tree, "HOME": self.job.directory,
                       "PBS_JOBID": "42.host", **environment}
        environment = clean_environment(**environment)
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        # Into files: with -t stdout the daemons keep this output open while they run.
        with open(f"{self.job.directory}/output", "w+", encoding="utf-8") as output:
            done = subprocess.run([SCRIPTS / name, *map(str, flags)], env=environment, stdout=output,
                                  stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, timeout=120, check=False)
        self.assertEqual(expected, done.returncode, done.stderr)
        return done.stderr

    def output(self):
        return pathlib.Path(f"{self.job.directory}/output").read_text(encoding="utf-8")

    def launch(self, *flags, name="launch_copper.sh", **options):
        return self.script(name, "-v", self.job.mount, *flags, **options)

    def stop(self):
        return self.script("stop_copper.sh", "-v", self.job.mount)

    def logs(self, directory):
        found = sorted(pathlib.Path(directory).glob("*-output.log"))
        return [log.read_text(encoding="utf-8") for log in found]

    def test_all_flags_of_the_original(self):
        logs = f"{self.job.directory}/out"
        said = self.launch("-l", 4, "-t", "file", "-d", logs, "-T", 1, "-M", 10485760, "-E", 2000, "-P", "-N", 10, "-A",
                           "-I", 5, "-s", 10, "-b", "0", "-F", "book", "-a", "mode", "-n", "cxi")
        self.assertIn("not needed any more: -E -s -F -a -n\n", said)
        self.assertIn("profiling files follow in a later version: -P -N -A -I\n", said)
        self.assertEqual(2, len(self.logs(f"{logs}/42.host/logs")))
        self.assertTrue(all("serves" in text for text in self.logs(f"{logs}/42.host/logs")))
        self.assertTrue(os.path.exists(f"{logs}/42.host/logs/node_file.txt"))
        self.assertIn("small", os.listdir(self.job.mirrored(1, self.tree)))
        self.stop()
        self.assertEqual([], self.job.leftovers())

    def test_defaults(self):
        self.launch(name="launch_copper_aurora.sh")  # whose cores this machine may not have
        self.assertEqual(2, len(self.logs(f"{self.job.directory}/copper-logs/42.host/logs")))
        self.assertNotIn("serves", self.output())
        self.stop()

    def test_logs_on_standard_output(self):
        for where, in_files in (("stdout", 0), ("both", 2)):
            with self.subTest(where):
                logs = f"{self.job.directory}/{where}"
                self.launch("-l", 4, "-t", where, "-d", logs)
                wait_until(lambda: self.output().count("serves") == 2, 10, "the launcher's forwarding of both logs")
                self.assertEqual(in_files, len(self.logs(f"{logs}/42.host/logs")))
                self.stop()

    def test_size_limit(self):
        """-M: larger files are read by each node, smaller ones once."""
        for limit, opens in ((MEBIBYTE, 3), (4 * MEBIBYTE, 2)):
            with self.subTest(limit):
                self.launch("-M", limit)
                for node in range(2):
                    for name in ("small", "large"):
                        path = f"{self.tree}/{name}"
                        self.run_program("cmp", path, self.job.mirrored(node, path))
                totals = self.job.totals()
                self.assertEqual(opens, totals["backing"]["file_opens"])
                self.assertEqual(0, sum(totals["fallbacks"].values()))
                self.stop()


class Pbs(MountTestCase):
    """Prologue and epilogue, as PBS calls them: as root, with the job's id and user."""

    alone = True  # they end what a user has on the machine outside any batch job

    def setUp(self):
        self.need_root()
        self.installed = self.make_directory()
        self.run_program("cmake", "--install", build_directory(), "--prefix", self.installed)
        self.copies = self.make_directory()  # as sites have them, in mom_priv
        for name in ("prologue", "epilogue"):
            shutil.copy(f"{self.installed}/libexec/copper/{name}/copper-pbs-{name}.sh", f"{self.copies}/{name}")

    def hook(self, program, batch_job):
        done = self.run_program(program, batch_job, "root", "root",
                                env=clean_environment(COPPER=f"{self.installed}/bin/copper"))
        self.assertEqual(b"", done.stderr)

    def test_only_what_belongs_to_the_job_is_ended(self):
        job = self.launch(nodes=2, trees=["/usr/share/doc"], environment={"PBS_JOBID": "42.host"})
        for program in (f"{self.copies}/prologue", f"{self.copies}/epilogue"):
            self.hook(program, "43.host")
            self.assertEqual(2, len(job.daemons()), "the other job's")
        self.hook(f"{self.copies}/epilogue", "42.host")
        self.assertEqual([], job.leftovers())

    def test_what_belongs_to_no_job_is_ended(self):
        job = self.launch(nodes=2, trees=["/usr/share/doc"])
        self.hook(f"{self.copies}/epilogue", "43.host")
        self.assertEqual([], job.leftovers())

    def test_whatever_state_it_is_in(self):
        for program in (f"{self.copies}/prologue", f"{self.installed}/libexec/copper/epilogue/copper-pbs-epilogue.sh"):
            with self.subTest(program):
                job = self.launch(nodes=3, trees=["/usr/share/doc"], environment={"PBS_JOBID": "42.host"})
                killed, stopped, _ = job.daemons()
                os.kill(killed, signal.SIGKILL)
                os.kill(stopped, signal.SIGSTOP)
                with open(job.mirrored(2, a_document()), "rb"):
                    self.hook(program, "42.host")
                self.assertEqual([], job.leftovers())


class Setup(MountTestCase):
    """tools/setup with a package manager that says much, installs what it is told, and can fail."""

    APT = """#!/bin/sh
echo "noise about $*"
case $* in *install*) [ "$FAILS" = no ] && touch "$0.installed" ;; esac
"""
    QUERY = """#!/bin/sh
[ ! -e "$(dirname "$0")/apt-get.installed" ] || printf '%s ii \\n' "$@"
"""

    def setUp(self):
        self.need_root()
        self.directory = self.make_directory()
        for name, text in (("apt-get", self.APT), ("dpkg-query", self.QUERY)):
            with open(f"{self.directory}/{name}", "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(file.name, 0o755)

    def setup(self, fails, expected):
        environment = clean_environment(TMPDIR=self.directory, FAILS=fails)
        environment["PATH"] = f"{self.directory}:{environment['PATH']}"
        done = self.run_program(SCRIPTS.parent / "setup", "demo", env=environment, expected=expected)
        logs = list(pathlib.Path(self.directory).glob("*.log"))
        return done.stdout.decode() + done.stderr.decode(), logs

    def test_noise_goes_to_a_log(self):
        said, logs = self.setup(fails="no", expected=0)
        self.assertEqual("tools/setup: installing python3-numpy python3-scipy strace\n", said)
        self.assertEqual([], logs)
        self.assertEqual(("", []), self.setup(fails="no", expected=0), "nothing is missing any more")

    def test_log_is_named_if_installing_fails(self):
        said, logs = self.setup(fails="yes", expected=1)
        self.assertIn(f"all that it printed is in {logs[0]}\n", said)
        self.assertIn("noise about update\n", logs[0].read_text(encoding="utf-8"))
