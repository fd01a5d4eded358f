"""What `cmake --install` and `cpack` give to a site: manual pages, completion, module files, recipes, packages."""

import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import time
import unittest

from copper import REPOSITORY, build_directory, clean_environment, mounts_below
from mounted import MountTestCase
from pages import block_with

VERSION = re.search(r"project\(copper VERSION (\S+)", (REPOSITORY / "CMakeLists.txt").read_text())[1]
# What CMake and recipes call the same package, where letter case, "_" and "lib" are not all that differs.
PACKAGES = {"fuse3": "fuse", "fuse3-dev": "fuse", "mount": "util-linux", "ncursesw": "ncurses",
            "pkgconf": "pkgconfig", "tl-expected": "expected"}
MULTIARCH = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True).stdout.strip()


def packages(names):
    names = {name.lower().replace("_", "-").removeprefix("lib") for name in names}
    return {PACKAGES.get(name, name) for name in names}


def cmake_text(directory=REPOSITORY):
    """All that CMake reads without BUILD_TESTING."""
    text = (directory / "CMakeLists.txt").read_text(encoding="utf-8")
    folders = set(re.findall(r"add_subdirectory\((\S+)\)", text)) - {"tests", "bench"}
    return text + "".join(map(cmake_text, (directory / folder for folder in folders)))


class InstalledTestCase(MountTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = pathlib.Path(cls.make_directory()) / "copper"
        done = subprocess.run(["cmake", "--install", build_directory(), "--prefix", cls.prefix], capture_output=True, text=True)
        if done.returncode != 0:
            raise AssertionError(done.stderr)

    def need(self, program):
        if not shutil.which(program):
            self.skipTest(f"needs {program}")


class Installation(InstalledTestCase):
    def help(self, *names):
        return self.run_program(self.prefix / "bin/copper", "help", *names).stdout.decode()

    def commands(self):
        listed = self.help().partition("Subcommands:\n")[2].partition("\n\n")[0]
        return re.findall(r"^  (\w+)", listed, re.MULTILINE)

    def test_version_names_mpi_libfuse_and_build_type(self):
        said = self.run_program(self.prefix / "bin/copper", "--version").stdout.decode()
        self.assertRegex(said, rf"^copper {re.escape(VERSION)} \(((Open MPI|MPICH), )?libfuse 3\.[\d.]+, \w+\)\n$")

    def test_help_explains_each_command(self):
        self.assertIn("launch", self.commands())
        for command in self.commands():
            told = self.help(command)
            self.assertIn(f"Usage: copper {command}", told)
            self.assertEqual(told, self.run_program(self.prefix / "bin/copper", command, "--help").stdout.decode())
        self.assertIn("Usage: copper profile show", self.help("profile", "show"))
        wrong = self.run_program(self.prefix / "bin/copper", "help", "lauch", expected=2).stderr.decode()
        self.assertEqual("copper: lauch: no such command; did you mean launch?\nTry 'copper --help'.\n", wrong)

    def test_each_command_has_a_manual_page_without_faults(self):
        pages = sorted((self.prefix / "share/man").glob("man*/*"))
        scripts = [script.name for script in (self.prefix / "bin").glob("*.sh")]
        self.assertEqual(6, len(scripts))
        wanted = {"copper.1", "copperd.8", *(f"copper-{command}.1" for command in self.commands()),
                  *(f"{script}.1" for script in scripts)}
        self.assertEqual(wanted, {page.name for page in pages})
        self.need("mandoc")
        for page in pages:
            self.assertEqual(b"", self.run_program("mandoc", "-T", "lint", page).stdout)
            self.need("man")
            environment = clean_environment(MANWIDTH=80, LC_ALL="C.UTF-8")
            shown = self.run_program("man", "--warnings", "-l", page, env=environment)
            self.assertEqual(b"", shown.stderr, page)
            self.assertIn(b"EXAMPLES", shown.stdout)
        launch = self.run_program("man", "-l", self.prefix / "share/man/man1/copper-launch.1", env=environment).stdout.decode()
        for option in re.findall(r"^  (--[\w-]+)", self.help("launch"), re.MULTILINE):
            self.assertIn(option, launch)
        for script in scripts:
            told = self.run_program(self.prefix / "bin" / script, "--help").stdout.decode()
            page = self.run_program("man", "-l", self.prefix / f"share/man/man1/{script}.1", env=environment).stdout.decode()
            for line in re.findall(r"^  (.*?)  ", told, re.MULTILINE):
                self.assertIn(line, page)

    def test_libraries_outside_the_system_are_found(self):
        """As one of a module is: an installed copy keeps the directory in which the build found its MPI."""
        linked = set()
        for line in (build_directory() / "CMakeCache.txt").read_text().splitlines():
            found = re.fullmatch(r"MPI_\w+_LIBRARY:FILEPATH=(/.*)/lib\w+\.so[\d.]*", line)
            if found:
                linked.add(found[1])
        kept = self.run_program("readelf", "-d", self.prefix / "bin/copperd").stdout.decode()
        kept = re.search(r"\(R(?:UN)?PATH\).*\[(.*)\]", kept)
        kept = set(kept[1].split(":")) if kept else set()
        own = {"/lib", "/usr/lib", f"/lib/{MULTIARCH}", f"/usr/lib/{MULTIARCH}", "/usr/lib64"}
        self.assertLessEqual(linked - own, kept)

    def test_without_manual_pages(self):
        """Of a build of single targets."""
        place = self.make_directory()
        script = (build_directory() / "tools/cmake_install.cmake").read_text(encoding="utf-8")
        self.assertIn(f"{build_directory()}/man/", script)
        pathlib.Path(place, "install.cmake").write_text(script.replace(f"{build_directory()}/man/", f"{place}/absent/"),
                                                        encoding="utf-8")
        self.run_program("cmake", f"-DCMAKE_INSTALL_PREFIX={place}/prefix", "-P", f"{place}/install.cmake")
        self.assertTrue(os.path.exists(f"{place}/prefix/bin/copper"))

    def test_site_builds_no_tests(self):
        """And needs nothing for them. As in docs/install.md."""
        place = pathlib.Path(self.make_directory())
        configure = block_with("docs/install.md", "BUILD_TESTING=OFF").splitlines()[0]
        cache = (build_directory() / "CMakeCache.txt").read_text(encoding="utf-8")
        self.run_program("sh", "-c", configure.replace("-B build", f"-S {REPOSITORY} -B build"), cwd=place,
                         env=clean_environment(CMAKE_GENERATOR=re.search("CMAKE_GENERATOR:INTERNAL=(.*)", cache)[1]))
        targets = self.run_program("cmake", "--build", "build", "--target", "help", cwd=place).stdout.decode()
        targets = targets.replace(str(place), "")
        self.assertRegex(targets, r"\bcopperd\b")
        self.assertNotRegex(targets, r"(?i)test|bench|fuzz|simulat")
        self.assertNotRegex((place / "build/CMakeCache.txt").read_text(encoding="utf-8"), "(?m)^(GTest|benchmark)_DIR")

    def test_recipes_are_python(self):
        for recipe in [*(REPOSITORY / "packaging").glob("*/*.py"), *(REPOSITORY / "packaging").glob("*/*.eb")]:
            compile(recipe.read_text(), recipe, "exec")
            self.assertIn(VERSION, recipe.read_text())
            self.assertIn("Not yet run with", recipe.read_text())

    def test_recipes_have_what_cmake_looks_for(self):
        cmake = cmake_text()
        needed = packages({*re.findall(r"(?:find_package|pkg_check_modules)\((\S+)", cmake),
                           *re.findall(r"find_(?:program|path|library)\(\w+ (\w+)", cmake)}) - {"threads"}
        oldest_cmake, = re.findall(r"cmake_minimum_required\(VERSION ([\d.]+)\)", cmake)
        oldest_fuse, = re.findall(r"fuse3>=([\d.]+)", cmake)
        spack = (REPOSITORY / "packaging/spack/package.py").read_text(encoding="utf-8")
        depends = dict(re.findall(r'depends_on\("([^"@]+)@?([^"]*)"', spack))
        self.assertEqual(needed | {"cmake", "cxx"}, packages(depends))
        self.assertEqual((f"{oldest_cmake}:", f"{oldest_fuse}:"), (depends["cmake"], depends["libfuse"]))
        for path in (REPOSITORY / "packaging/easybuild").glob("*.eb"):
            recipe = {"SOURCE_TAR_GZ": ""}
            exec(path.read_text(encoding="utf-8"), recipe)
            names = [each[0] for each in (*recipe["builddependencies"], *recipe["dependencies"], *recipe["osdependencies"])]
            if recipe["toolchainopts"]["usempi"]:
                names.append("MPI")
            self.assertEqual(needed | {"cmake"}, packages(names))


class Shell:
    """An interactive shell at a terminal."""

    def __init__(self, words, environment, setup, directory):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe(words[0], words, environment)
        self.type(setup + "; echo rea''dy\n")
        self.read_to(r"ready\r?\n")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def read_to(self, pattern, seconds=60):
        text, deadline = "", time.monotonic() + seconds
        while not re.search(pattern, text):
            if not select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))[0]:
                raise AssertionError(f"no {pattern} in {text!r}")
            text += os.read(self.terminal, 4096).decode(errors="replace")
        return re.search(pattern, text)

    def complete(self, text):
        """The line after a Tab. Control-O shows it, Control-U clears it."""
        self.type(text + "\t\x0f")
        line = self.read_to(r"<<(.*?)>>")[1]
        self.type("\x15")
        return line

    def close(self):
        os.close(self.terminal)
        os.waitpid(self.pid, 0)


class Completion(InstalledTestCase):
    CASES = {
        "copper lau": "copper launch ",
        "copper launch --tre": "copper launch --tree ",
        "copper launch --log-level w": "copper launch --log-level warning ",
        "copper launch --log-level=w": "copper launch --log-level=warning ",
        "copper help prefe": "copper help prefetch ",
        "copper profile sh": "copper profile show ",
        "copper prefetch a-fi": "copper prefetch a-file ",
        "copper stats --mount a-dir": "copper stats --mount a-directory/",
        "copper launch --profile=a-fi": "copper launch --profile=a-file ",
        "copper run -- ./a-pro": "copper run -- ./a-program ",
        "copper run ./a-program a-fi": "copper run ./a-program a-file ",
        "copper launch --readers a-fi": "copper launch --readers a-fi",
    }

    def setUp(self):
        self.place = pathlib.Path(self.make_directory())
        (self.place / "a-file").touch()
        (self.place / "a-directory").mkdir()
        (self.place / "a-program").write_text("#!/bin/sh\n")
        (self.place / "a-program").chmod(0o755)
        self.environment = clean_environment(HOME=self.place, TERM="dumb", PS1="$ ", INPUTRC="/dev/null")
        self.environment["PATH"] = f"{self.prefix}/bin:{self.environment['PATH']}"

    def check(self, words, setup):
        shell = Shell(words, self.environment, setup, self.place)
        self.addCleanup(shell.close)
        for text, completed in self.CASES.items():
            with self.subTest(text):
                self.assertEqual(completed.rstrip(), shell.complete(text).rstrip())

    def test_bash(self):
        library = "/usr/share/bash-completion/bash_completion"
        if not os.path.exists(library):
            self.skipTest("needs bash-completion")
        show = r"""bind -x '"\C-o": printf "<<%s>>\n" "$READLINE_LINE"'"""
        self.check(["bash", "--norc", "--noprofile", "-i"],
                   f"XDG_DATA_DIRS={self.prefix}/share; . {library}; {show}; bind 'set enable-bracketed-paste off'")

    def line_for(self, shell):
        """Of docs/install.md."""
        line, = re.findall(rf"(?m)^(.*?) +# {shell}:", block_with("docs/install.md", "fpath"))
        return line.replace("/opt/copper/current", str(self.prefix))

    def test_bash_without_its_library(self):
        show = r"""bind -x '"\C-o": printf "<<%s>>\n" "$READLINE_LINE"'"""
        self.check(["bash", "--norc", "--noprofile", "-i"], f"{self.line_for('bash')}; {show}")

    def test_zsh(self):
        self.need("zsh")
        show = "show() { print -r -- \"<<$BUFFER>>\" }; zle -N show; bindkey '^O' show; bindkey '^U' kill-whole-line"
        self.check(["zsh", "-f", "-i"], f"{self.line_for('zsh')}; autoload -U compinit; "
                                        f"compinit -D -u; unsetopt zle_bracketed_paste 2>/dev/null; {show}")

    def test_fish(self):
        self.need("fish")
        self.environment["XDG_DATA_DIRS"] = f"{self.prefix}/share:/usr/share"
        for text, completed in self.CASES.items():
            with self.subTest(text):
                done = self.run_program("fish", "-N", "-c", f"{self.line_for('fish')}; "
                                        f"complete --do-complete '{text}'", env=self.environment, cwd=self.place)
                words = [line.split("\t")[0] for line in done.stdout.decode().splitlines()]
                last = completed.split()[-1]
                self.assertEqual([last] if completed != text else [], words)


class Modules(InstalledTestCase):
    """The real Lmod and, where it is installed instead, the real Environment Modules, which read the Tcl file."""

    def load(self, command, tcl_only):
        places = self.prefix / "share/copper/modulefiles"
        if tcl_only:
            places = pathlib.Path(self.make_directory())
            (places / "copper").mkdir()
            shutil.copy(self.prefix / f"share/copper/modulefiles/copper/{VERSION}", places / "copper")
        use = block_with("docs/install.md", "module load").replace(f"/opt/copper/{VERSION}/share/copper/modulefiles", str(places))
        script = (f'module() {{ eval "$({command} bash "$@")"; }}\nset -e\n{use}'
                  'command -v copper\necho "$COPPER_ROOT"\nman -w copper-launch\nman -w copperd\necho "${MANPATH:-none}"\n'
                  'module unload copper\n[ -z "${COPPER_ROOT:-}" ]\ncommand -v copper || true\necho "${MANPATH:-none}"\n')
        pages = self.prefix / "share/man"
        # A MANPATH replaces the system's pages, so a module must not make one.
        for before, loaded in ((None, "none"), ("/usr/share/man", f"{pages}:/usr/share/man")):
            environment = clean_environment(HOME=self.make_directory(), **({"MANPATH": before} if before else {}))
            done = self.run_program("bash", "-c", script, env=environment)
            self.assertEqual([f"{self.prefix}/bin/copper", f"{self.prefix}", f"{pages}/man1/copper-launch.1",
                              f"{pages}/man8/copperd.8", loaded, before or "none"], done.stdout.decode().splitlines())

    def commands(self):
        for place in ("usr/share/lmod/*/libexec/lmod", "usr/lib/*/modulecmd.tcl", "usr/share/Modules/libexec/modulecmd.tcl"):
            for command in pathlib.Path("/").glob(place):
                yield command, True
                if command.name == "lmod":
                    yield command, False

    def test_load_and_unload(self):
        commands = list(self.commands())
        if not commands:
            self.skipTest("needs Lmod or Environment Modules")
        for command, tcl_only in commands:
            with self.subTest(command, tcl_only=tcl_only):
                self.load(command, tcl_only)


class DebianRoot:
    """A directory with a Debian of essential packages and what some others depend on. It takes the files that these packages
    have on this machine, because a bootstrap from the network takes minutes."""

    def __init__(self, root, depends):
        self.root = pathlib.Path(root)
        self.packages, self.providers = {}, {}
        fields = ("Package", "Essential", "Pre-Depends", "Depends", "Provides")
        query = "-f=" + "\\t".join(f"${{{field}}}" for field in fields) + "\\n"
        for line in subprocess.run(["dpkg-query", "-W", query], capture_output=True, text=True, check=True).stdout.splitlines():
            name, essential, first, then, provides = line.split("\t")
            self.packages[name] = (essential == "yes", f"{first}, {then}")
            for each in self.names(provides):
                self.providers.setdefault(each[0], name)
        wanted = [name for name, (essential, _) in self.packages.items() if essential]
        self.chosen = set()
        for alternatives in self.names(depends):
            wanted.append(self.installed(alternatives))
        while wanted:
            name = wanted.pop()
            if name not in self.chosen:
                self.chosen.add(name)
                wanted += [self.installed(each) for each in self.names(self.packages[name][1])]
        self.fill()

    @staticmethod
    def names(field):
        """[[name, alternative, ...], ...]"""
        return [[re.split(r"[\s(:]", each.strip())[0] for each in part.split("|")] for part in field.split(",") if part.strip()]

    def installed(self, alternatives):
        for name in alternatives:
            if name in self.packages or name in self.providers:
                return name if name in self.packages else self.providers[name]
        raise AssertionError(f"none of {alternatives} is installed")

    def fill(self):
        for name in ("bin", "sbin", "lib", "lib64"):
            if os.path.islink(f"/{name}"):
                (self.root / "usr" / name).mkdir(parents=True)
                (self.root / name).symlink_to(f"usr/{name}")
        listed = subprocess.run(["dpkg-query", "-L", *sorted(self.chosen)], capture_output=True, text=True).stdout
        unneeded = re.compile(r"/usr/share/(doc|man|locale|info|icons)/|/(dev|proc|sys|tmp)(/|$)")
        files = {os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
                 for path in listed.splitlines() if path.startswith("/") and not unneeded.match(path)}
        files = {path for path in files if os.path.lexists(path) and not os.path.islink(self.root / path[1:])}
        files |= {"/etc/passwd", "/etc/group", "/etc/alternatives", "/etc/ld.so.conf"}
        files |= {str(path) for path in pathlib.Path("/etc/alternatives").iterdir()}
        packed = subprocess.Popen(["tar", "-C", "/", "--no-recursion", "--null", "-T", "-", "-cf", "-"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        unpacked = subprocess.Popen(["tar", "-C", self.root, "--keep-directory-symlink", "-xf", "-"], stdin=packed.stdout)
        packed.stdin.write(b"\0".join(path[1:].encode() for path in sorted(files) if path != "/"))
        packed.stdin.close()
        packed.stdout.close()
        if unpacked.wait() != 0 or packed.wait() != 0:
            raise AssertionError("cannot copy the packages' files")
        for name in ("dev", "proc", "sys", "tmp", "root", "var/lib/dpkg/info", "var/lib/dpkg/updates"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        stanzas = pathlib.Path("/var/lib/dpkg/status").read_text().split("\n\n")
        (self.root / "var/lib/dpkg/status").write_text(
            "".join(f"{stanza.strip()}\n\n" for stanza in stanzas if stanza.strip().partition("\n")[0][9:] in self.chosen))
        for path in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
            if re.split(r"[:]|\.list$", path.name)[0] in self.chosen:
                shutil.copy(path, self.root / "var/lib/dpkg/info")
        subprocess.run(["ldconfig", "-r", self.root], check=True)

    def run(self, script, seconds=120):
        """Runs a shell script there, with own processes, mounts and devices."""
        prepare = ('mount --bind "$0" "$0"; mount -t proc proc "$0/proc"; mount -t tmpfs tmpfs "$0/dev"; '
                   'mount -t tmpfs tmpfs "$0/tmp"; mknod -m 666 "$0/dev/fuse" c 10 229; mknod -m 666 "$0/dev/null" c 1 3; '
                   'mknod -m 666 "$0/dev/urandom" c 1 9; chroot "$0" /bin/sh -exc "$1"')
        return subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
                               "sh", "-ec", prepare, self.root, script], capture_output=True, text=True, timeout=seconds,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "USER": "root", "HOME": "/root", "COPPER_PROFILE": "off"})


class Package(MountTestCase):
    FILES = ("bin/copper", "bin/copperd", "bin/launch_copper.sh",
             "share/man/man1/copper-launch.1", "share/man/man1/launch_copper.sh.1", "share/man/man8/copperd.8",
             "share/doc/copper/LICENSE", "share/doc/copper/docs/install.md", "share/bash-completion/completions/copper",
             f"share/copper/modulefiles/copper/{VERSION}.lua", "libexec/copper/site/slurm-epilog.sh")

    def package(self, generator, *tools):
        """The package in a directory of its own."""
        self.need_root()
        for tool in tools:
            if not shutil.which(tool):
                self.skipTest(f"needs {tool}")
        place = pathlib.Path(self.make_directory())
        self.run_program("cpack", "-G", generator, "--config", build_directory() / "CPackConfig.cmake", "-B", place, cwd=place)
        package, = place.glob(f"*.{generator.lower()}")
        return package

    def check_files(self, listed):
        """Of the files' paths, one per line."""
        listed = re.sub(rf"/lib(64|/{MULTIARCH})/", "/lib/", listed)
        for name in self.FILES:
            self.assertRegex(listed, rf"(?m)/usr/{re.escape(name)}$")

    def test_rpm_is_complete(self):
        """Its database is that of an empty root, so what the package depends on is missing there."""
        package = self.package("RPM", "rpmbuild", "rpm")
        self.assertRegex(self.run_program("rpm", "-qpR", package).stdout.decode(), r"(?m)^fuse3$")
        root = package.parent / "root"
        rpm = ["rpm", "--root", root, "--dbpath", "/rpm"]
        self.run_program(*rpm, "--nodeps", "-i", package)
        self.check_files(self.run_program(*rpm, "-ql", "copper").stdout.decode())
        for name in self.FILES[:3]:
            self.assertTrue(os.access(root / "usr" / name, os.X_OK))
        said = self.run_program(root / "usr/bin/copper", "--version").stdout.decode()
        self.assertTrue(said.startswith(f"copper {VERSION} "), said)
        self.run_program(*rpm, "-e", "copper")
        self.assertEqual([], list(root.rglob("*copper*")))

    def test_deb_is_complete(self):
        """It is installed and used where nothing else is."""
        package = self.package("DEB", "dpkg-shlibdeps", "file")
        place = package.parent
        field = lambda name: self.run_program("dpkg-deb", "-f", package, name).stdout.decode()
        self.assertEqual(f"{VERSION}\n", field("Version"))
        self.assertRegex(field("Depends"), r"fuse3.*libfuse3-\d+ \(>= 3")
        self.check_files(self.run_program("dpkg-deb", "-c", package).stdout.decode())

        root = DebianRoot(place / "root", field("Depends"))
        self.addCleanup(lambda: self.assertEqual([], mounts_below(place)))
        self.run_program("dpkg", f"--root={root.root}", "-i", package)
        module = (root.root / f"usr/share/copper/modulefiles/copper/{VERSION}.lua").read_text()
        self.assertIn('"/usr/bin"', module)
        done = root.run("""
            copper --version
            copper launch --local 1 --tree /usr/share --log-dir /tmp/logs
            cmp /usr/share/copper/modulefiles/copper/*.lua /tmp/root/copper.0/usr/share/copper/modulefiles/copper/*.lua
            cmp /usr/bin/copper "$(copper path /usr/bin/copper)"
            copper run ls /usr/share/doc/copper
            if copper run --view bind true; then exit 1; fi
            copper stats
            copper stop
            ! grep /tmp/root /proc/self/mounts
            """)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("no view on this node: Copper runs in a chroot", done.stderr)
        self.run_program("dpkg", f"--root={root.root}", "-P", "copper")
        self.assertEqual([], [path for path in root.root.rglob("*copper*") if "/dpkg/" not in str(path)])


if __name__ == "__main__":
    unittest.main()
