"""What users look at: report, top, logs, and the file for node_exporter. Over real daemons."""

import html.parser
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from copper import REPOSITORY, Copper, clean_environment, copper_program, wait_until
from import_storm import package_tree
from mounted import MountTestCase
from statistics_fixture import statistics
from terminal import Terminal, Tmux

VOID = ("meta", "path", "rect")


class Page(html.parser.HTMLParser):
    """Refuses tags that do not match, and anything that a browser would fetch."""

    def __init__(self, text):
        super().__init__()
        self.open, self.text, self.tags = [], "", []
        self.feed(text)
        if self.open:
            raise ValueError(f"not closed: {self.open}")

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag in ("script", "link", "img", "iframe") or any(name in ("src", "href") for name, _ in attrs):
            raise ValueError(f"<{tag} {attrs}> needs something else")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID and self.open.pop() != tag:
            raise ValueError(f"</{tag}> closes something else")

    def handle_data(self, data):
        self.text += data


class Eyes(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tree = package_tree("numpy")
        cls.job = cls.launch_for_class(nodes=2, trees=[cls.tree], options=["--log-level", "info"])
        for node in range(2):
            with open(cls.job.mirrored(node, f"{cls.tree}/numpy/version.py"), "rb") as file:
                file.read()
            os.path.exists(cls.job.mirrored(node, f"{cls.tree}/numpy/absent<b>"))

    def copper(self, *words):
        done = self.job.command(*words)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def top(self, **environment):
        return Terminal([copper_program(), "top", "--mount", self.job.mount], **environment)

    def test_report_of_the_running_job(self):
        place = self.make_directory()
        self.assertEqual(f"wrote {place}/r.html\n", self.copper("report", "-o", f"{place}/r.html", "--mount", self.job.mount))
        page = Page(pathlib.Path(f"{place}/r.html").read_text())
        for text in ("files read by your programs", "Time line of the start-up", "Hottest paths", "numpy/absent<b>",
                     "2 of 2", f"Mirror of {self.tree}"):
            self.assertIn(text, page.text)
        self.assertEqual(4, page.tags.count("svg"))

    def test_report_after_the_end(self):
        job = self.launch(nodes=2, trees=[self.tree], options=["--log-level", "info"])
        for node in range(2):
            os.listdir(job.mirrored(node, self.tree))
        self.assertEqual(0, job.stop().returncode)
        kept = json.loads(pathlib.Path(f"{job.directory}/logs/stats.json").read_text())
        self.assertEqual((2, 2, 2), (kept["nodes"], kept["alive"], len(kept["per_node"])))
        self.assertEqual(2, sum(step[1] for step in kept["timeline"]["steps"]), "both nodes became ready")
        operations = sum(step[3] for step in kept["timeline"]["steps"])
        self.assertEqual(sum(kept["totals"]["backing"].values()) - kept["totals"]["backing"]["bytes"], operations)
        for place in ("logs", "logs/stats.json"):
            self.assertIn("2 of 2", Page(job.command("report", "-o", "-", f"{job.directory}/{place}").stdout).text)
        self.assertIn("info", job.command("logs", f"{job.directory}/logs").stdout)

    def test_report_of_a_thousand_nodes(self):
        place = self.make_directory()
        for nodes in (1, 1000):
            with open(f"{place}/stats.json", "w", encoding="utf-8") as file:
                json.dump(statistics(nodes), file)
            text = self.copper("report", "-o", "-", place)
            page = Page(text)
            self.assertIn("Fetched ahead", page.text)
            self.assertLess(len(text), 200_000)
        self.assertIn("998 of 1,000", page.text)
        self.assertIn("cn0333", page.text)

    def test_report_of_what_is_none(self):
        place = self.make_directory()
        for text, reason in ((None, "cannot be read"), ("{", "is no JSON"), ("{}", "no statistics of Copper"),
                             ("[]", "no statistics of Copper"), ('{"totals": 1}', "no statistics of Copper")):
            if text is not None:
                pathlib.Path(f"{place}/stats.json").write_text(text)
            done = self.job.command("report", "-o", "-", place)
            self.assertEqual((1, ""), (done.returncode, done.stdout))
            self.assertRegex(done.stderr, f"^copper: {place}.*{reason}")

    def test_top_once(self):
        lines = self.copper("top", "--once", "--mount", self.job.mount).splitlines()
        self.assertRegex(lines[0], r"^Copper, job .*: 2 of 2 nodes serve, for \d+ s$")
        self.assertTrue(any(re.match(r"requests of programs +\d+ +\d+", line) for line in lines), lines)
        self.assertTrue({0, 1} >= {int(line[1]) for line in map(re.compile(r"\S+#(\d) .* ms +\d+$").match, lines) if line} > set(),
                        lines)
        self.assertTrue(any(line.endswith("numpy/version.py") for line in lines), lines)
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertLessEqual(len(lines), 24)

    def test_top_names_lost_and_degraded_nodes(self):
        job = self.launch(nodes=3, trees=[self.tree])
        daemons = job.daemons()
        os.kill(daemons[2], signal.SIGTERM)  # it leaves
        wait_until(lambda: len(job.daemons()) == 2, 20, "its end")
        os.kill(daemons[1], signal.SIGKILL)  # a successor takes over
        found = []

        def shows_both():
            found[:] = job.command("top", "--once", "--mount", job.mount).stdout.splitlines()
            return any(re.search("#2 +lost: it has left: ", line) for line in found) and \
                any(re.search(r" ms +\d+  degraded$", line) for line in found)
        wait_until(shows_both, 60, "what is wrong with both nodes")
        self.assertRegex(found[0], ": 1 of 3 nodes serve, ")

    def test_top_needs_a_terminal(self):
        done = self.job.command("top", "--mount", self.job.mount)
        self.assertEqual((2, "copper: copper top needs a terminal; 'copper top --once' prints one view\n"),
                         (done.returncode, done.stderr))

    def test_top_on_a_terminal(self):
        terminal = self.top()
        terminal.wait_for("2 of 2 nodes serve")
        terminal.wait_for("q quits")
        terminal.resize(60, 20)
        terminal.wait_for("needs 80 columns")
        terminal.resize(120, 40)
        terminal.wait_for("HOTTEST PATHS")
        os.write(terminal.master, b"xq")
        self.assertEqual((0, True), terminal.end("\x1b[?1049l"))

    def test_top_on_terminals_of_other_types(self):
        """A machine may lack the description of a terminal."""
        for name in ("screen-256color", "tmux-256color", "none-such"):
            with self.subTest(name):
                # ncurses leaks what it allocates for an unknown terminal.
                terminal = self.top(TERM=name, ASAN_OPTIONS="detect_leaks=0")
                described = subprocess.run(["tput", "-T", name, "rmcup"], capture_output=True, text=True, check=False)
                if described.returncode != 0:
                    terminal.wait_for(f"the type of this terminal, TERM={name}, is not known: try 'TERM=xterm copper top'")
                    self.assertEqual((2, True), terminal.end("--once'"))
                    continue
                terminal.wait_for("2 of 2 nodes serve")
                terminal.wait_for("q quits")
                os.write(terminal.master, b"q")
                self.assertEqual((0, True), terminal.end(described.stdout))

    def test_top_in_tmux(self):
        if not shutil.which("tmux"):
            self.skipTest("tmux is not installed")
        with Tmux(self.make_directory(), [copper_program(), "top", "--mount", self.job.mount]) as window:
            def wait_for(lines, *parts, foot="q quits"):
                def shows():
                    shown[:] = window.screen()
                    return (len(shown) == lines and shown[-1].endswith(foot) and
                            all(any(part in line for line in shown) for part in parts))
                shown = []
                wait_until(shows, 30, f"{parts} on {lines} lines")
                return shown

            shown = wait_for(30, "HOTTEST PATHS", "numpy/version.py")
            self.assertRegex(shown[0], "^Copper, job .*: 2 of 2 nodes serve, for ")
            window.resize(70, 20)
            self.assertEqual("This terminal has 70 and 20.", wait_for(20, "needs 80 columns")[1])
            window.resize(140, 45)
            shown = wait_for(45, "HOTTEST PATHS", "numpy/version.py")
            window.press("x")
            wait_until(lambda: window.screen()[0] != shown[0], 30, "the next second")
            wait_for(45, "HOTTEST PATHS")
            window.press("q")
            self.assertEqual("exit code 0", wait_for(45, "exit code", foot="")[0], "the rest is as before")

    def test_top_restores_the_terminal_when_it_is_ended(self):
        for number, expected in ((signal.SIGINT, 0), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)):
            with self.subTest(number):
                terminal = self.top()
                terminal.wait_for("q quits")
                terminal.process.send_signal(number)
                self.assertEqual((expected, True), terminal.end("\x1b[?1049l"))

    def test_top_takes_little_time(self):
        terminal = self.top()
        terminal.wait_for("q quits")
        time.sleep(3)
        with open(f"/proc/{terminal.process.pid}/stat", encoding="utf-8") as file:
            ticks = sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
        os.write(terminal.master, b"q")
        self.assertEqual((0, True), terminal.end("\x1b[?1049l"))
        self.assertLess(ticks / os.sysconf("SC_CLK_TCK"), 1, "a core would take 3 s")

    def test_top_says_that_the_job_has_ended(self):
        with Copper(nodes=1, trees=[self.tree]) as job:
            terminal = Terminal([copper_program(), "top", "--mount", job.mount])
            terminal.wait_for("1 of 1 nodes serve")
            job.stop()
            terminal.wait_for("no Copper serves")
            os.write(terminal.master, b"q")
            self.assertEqual((0, True), terminal.end("\x1b[?1049l"))

    def test_file_for_node_exporter(self):
        place = self.make_directory()
        script = REPOSITORY / "tools/job/textfile/copper-textfile.sh"
        words = [script, f"{place}/copper.prom", "--mount", self.job.mount]
        environment = clean_environment(COPPER=copper_program())
        self.run_program(*words, env=environment)
        text = pathlib.Path(f"{place}/copper.prom").read_text()
        self.assertTrue(text.endswith("# EOF\n"))
        self.assertRegex(text, r'copper_fuse_requests_total\{job="[^"]+"\} [1-9]')
        self.assertNotIn("rank=", text)
        words[-1] = place
        self.run_program(*words, env=environment, expected=1)
        self.assertEqual([], os.listdir(place), "a file of a job that has ended")
        self.run_program(script, env=environment, expected=2)

    def test_openmetrics_of_each_node(self):
        text = self.copper("stats", "--openmetrics", "--nodes", "--mount", self.job.mount)
        for rank in range(2):
            self.assertIn(f'rank="{rank}"', text)
        self.assertEqual(2, self.job.command("stats", "--nodes", "--mount", self.job.mount).returncode)

    def test_logs(self):
        lines = self.copper("logs", "--mount", self.job.mount).splitlines()
        served = [line for line in lines if re.search(r" serves .*, as rank \d of 2", line)]
        self.assertEqual(2, len(served), lines)
        host = os.uname().nodename.split(".")[0]
        self.assertTrue(all(line.startswith(host) for line in lines))
        times = [re.search(r"\d{4}-\d\d-\d\dT[\d:.]+", line).group() for line in served]
        self.assertEqual(sorted(times), times)
        self.assertEqual(lines, self.copper("logs", "--node", host, "--mount", self.job.mount).splitlines())
        self.assertEqual(1, self.job.command("logs", "--node", "elsewhere", "--mount", self.job.mount).returncode)

    def test_logs_of_a_launch_without_log_directory(self):
        mount = f"{self.make_directory()}/m"
        try:
            done = self.job.command("launch", "--local", "2", "--mount", mount, "--tree", self.tree)
            self.assertEqual(0, done.returncode, done.stderr)
            lines = self.copper("logs", "--mount", mount).splitlines()
        finally:
            self.job.command("stop", "--mount", mount)
        self.assertIn("2 of 2 nodes ready", lines)
        self.assertFalse([line for line in lines if "{" in line])

    def test_report_after_stop_names_what_is_kept(self):
        mount, home = f"{self.make_directory()}/m", self.make_directory()
        environment = clean_environment(XDG_CACHE_HOME=home)
        for words in (["launch", "--local", "1", "--tree", self.tree], ["stop"]):
            done = self.job.command(*words, "--mount", mount, environment=environment)
            self.assertEqual(0, done.returncode, done.stderr)
        kept = re.search("(?m)^statistics: (.*)$", done.stdout)[1]
        done = self.job.command("report", "--mount", mount, "-o", "-", environment=environment)
        self.assertEqual((1, ""), (done.returncode, done.stdout))
        self.assertIn(f"'copper report {kept}'", done.stderr)

    def test_logs_are_followed_until_the_end(self):
        job = self.launch(nodes=1, trees=[self.tree], options=["--log-level", "info"])
        following = subprocess.Popen([copper_program(), "logs", "--follow", "--mount", job.mount], stdout=subprocess.PIPE,
                                     env=clean_environment(), text=True)
        self.assertIn("serves", following.stdout.readline() + following.stdout.readline())
        job.stop()
        text, _ = following.communicate(timeout=30)
        self.assertEqual(0, following.returncode, text)
