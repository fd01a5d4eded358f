"""The nodes and the command line for batch systems and launchers that are not installed here: fake programs answer as
the documentation of the real ones says."""

import json
import os
import shlex
import shutil
import subprocess
import time

from copper import clean_environment, copper_program
from mounted import MountTestCase

TREE = "/usr/share/doc"
UNSET = object()

# As `mpirun --version` of Open MPI 4 and `mpiexec --version` of MPICH 4 (Debian 12) begin.
VERSIONS = {"mpirun": "mpirun (Open MPI) 4.1.4", "mpiexec": "HYDRA build details:\n    Version: 4.0.2"}
# github.com/E3SM-Project/mache, mache/parallel/pbs.py
VERSION_OF_PALS = "mpiexec version 1.8.0 revision ..."


class BatchSystems(MountTestCase):
    def setUp(self):
        self.directory = self.make_directory()
        built = subprocess.run([copper_program(), "--version"], capture_output=True, text=True, check=True).stdout
        self.launcher = "mpiexec" if "MPICH" in built else "mpirun"
        for name in VERSIONS:
            self.write_launcher(f"bin/{name}", VERSIONS[name])

    def write(self, name, text):
        path = f"{self.directory}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def write_launcher(self, name, version):
        """It counts how often it is started."""
        return self.write(name, f"#!/bin/sh\necho $0 >>{self.directory}/asked\necho '{version}'\n")

    def write_conda(self, mpi):
        """An environment with an MPI of its own: mpirun and mpiexec are one program."""
        self.write_launcher("conda/bin/mpirun", VERSIONS[mpi])
        os.symlink("mpirun", f"{self.directory}/conda/bin/mpiexec")

    def launcher_in(self, *directories, **environment):
        """What is chosen with this PATH, and the programs that were asked."""
        path = ":".join(f"{self.directory}/{directory}" for directory in directories)
        words = self.command("--nodes-from", "cn1,cn2", path=path, **environment)
        with open(f"{self.directory}/asked", encoding="utf-8") as file:
            return words, [line.strip().removeprefix(f"{self.directory}/") for line in file]

    def dry_run(self, *options, **environment):
        path = environment.pop("path", None)
        cwd = environment.pop("cwd", "/")
        environment = clean_environment(**environment)
        environment["PATH"] = path or f"{self.directory}/bin:" + environment["PATH"]
        if path is UNSET:
            del environment["PATH"]
        return subprocess.run([copper_program(), "launch", "--dry-run", "--tree", TREE, *options], capture_output=True,
                              text=True, env=environment, check=False, cwd=cwd)

    def command(self, *options, **environment):
        done = self.dry_run(*options, **environment)
        self.assertEqual(0, done.returncode, done.stderr)
        return shlex.split(done.stdout)

    def assert_mpi(self, hosts, words, mpirun=(), mpiexec=()):
        expected = {"mpirun": ["--host", hosts, *mpirun], "mpiexec": ["-hosts", hosts, *mpiexec]}[self.launcher]
        self.assertEqual(self.launcher, words[0])
        for word in expected:
            self.assertIn(word, words)

    def assert_job(self, job, words):
        self.assertIn(f"--batch-job={job}", words)

    def fake_flux(self):
        """flux-hostlist(1) separates hosts with blanks; flux-environment(7) names the variables."""
        self.write("bin/flux", '#!/bin/sh\ncase $* in\n"hostlist --expand avail") [ -z "$FLUX_JOB_ID" ] && echo tuolumne1001 tuolumne1002 ;;\n'
                   '"hostlist --expand local") echo tuolumne1001 tuolumne1002 ;;\n"getattr jobid") echo f2oM ;;\n*) exit 1 ;;\nesac\n')
        return {"FLUX_URI": "local:///tmp/flux-x/local-0", "FLUX_ENCLOSING_ID": "f2gVXkbSKH"}

    def daemons_environment(self, *options, **environment):
        job = self.launch(nodes=2, trees=[TREE], options=options, environment=environment)
        found = []
        for pid in job.daemons():
            with open(f"/proc/{pid}/environ", encoding="utf-8") as file:
                found.append(dict(entry.split("=", 1) for entry in file.read().split("\0") if "=" in entry))
        self.assertEqual(2, len(found))
        return found

    def test_what_the_daemons_do_not_get(self):
        conda = f"{self.directory}/conda"
        # Clang's address sanitizer is linked statically. GCC's is a library and must be loaded first.
        variables = {"MPICH_GPU_SUPPORT_ENABLED": "1", "LD_PRELOAD": "libm.so.6", "UCX_TLS": "tcp,self",
                     "OMPI_MCA_of_the_user": "1", "PRTE_MCA_of_the_user": "1", "MPIR_CVAR_ENABLE_GPU": "0",
                     "MPICH_OFI_NIC_POLICY": "GPU", "SLURM_NTASKS_PER_GPU": "1",
                     "LD_LIBRARY_PATH": f"{conda}/lib:/elsewhere", "CONDA_PREFIX": conda}
        for environment in self.daemons_environment(**variables):
            left = {name: environment[name] for name in variables if name in environment}
            self.assertEqual({"LD_LIBRARY_PATH": "/elsewhere", "CONDA_PREFIX": conda}, left)
        keep = [word for name in variables for word in ("--keep-env", name)]
        for environment in self.daemons_environment(*keep, **variables):
            self.assertEqual(variables, {name: environment[name] for name in variables if name in environment})

    def test_daemons_know_how_many_they_are(self):
        """Some launchers tell an MPI program nothing by which it would know that it is one of several."""
        self.assertIn("--nodes=2", self.command("--nodes-from", "cn1,cn2"))
        self.assertIn("--nodes=1", self.command("--launcher", "none"))

    def test_variable_is_kept_once(self):
        keep = [word for name in ("MINE", "MINE", "COPPER_JOB_KEY") for word in ("--keep-env", name)]
        words = self.command("--nodes-from", "cn1,cn2", *keep, MINE="1", COPPER_JOB_KEY="1")
        once = 1 if self.launcher == "mpirun" else 0  # Hydra passes on the whole environment
        self.assertEqual((once, once), (words.count("MINE"), words.count("COPPER_JOB_KEY")))

    def launch_two_silent(self, count):
        """The launcher starts `count` daemons instead of two, and none of them says anything."""
        daemon = self.write("copperd", "#!/bin/sh\nwhile :; do sleep 1; done\n")
        launcher = self.write(f"bin/{self.launcher}", f"""#!/bin/sh
[ "$1" != --version ] || exec echo '{VERSIONS[self.launcher]}'
for word; do case $word in --launch=*) for _ in {" ".join("x" * count)}; do {daemon} "$word" & done ;; esac; done
wait
""")
        done = subprocess.run([copper_program(), "launch", "--local", "2", "--launcher", launcher, "--tree", TREE, "--mount",
                               f"{self.directory}/mount", "--ready-timeout", "1"], capture_output=True, text=True,
                              env=clean_environment(), check=False, timeout=100)
        self.assertEqual(1, done.returncode)
        return done.stderr

    def test_one_daemon_of_two_ends(self):
        self.assertRegex(self.launch_two_silent(1), "^copper: .*: copperd ended there before all nodes served\n")

    def test_child_of_a_daemon_is_no_lost_daemon(self):
        """Until it runs another program, it looks like one."""
        self.assertNotIn("ended", self.launch_two_silent(3))

    def test_slow_launch_of_many_hosts(self):
        """Each host is ready after 20 s, and nothing that is started there answers sooner. No single host is asked, by
        launch or by stop."""
        hosts = self.write("hosts", "".join(f"cn{number}\n" for number in range(512)))
        report = json.dumps({"copper": "ready", "ready": 512, "nodes": 512, "failed": [], "missing": [], "done": True, "serves": True},
                            separators=(",", ":"))
        calls = f"{self.directory}/calls"
        launcher = self.write(f"bin/{self.launcher}", f"""#!/bin/sh
[ "$1" != --version ] || exec echo '{VERSIONS[self.launcher]}'
echo "$*" >>{calls}
case $* in
    *"stop --local"*) sed "s/^/copper-done /" {hosts}; exit 0 ;;
    *--launch=*) sleep 20; echo '{report}'; exec sleep 1000 ;;
    *) exec sleep 30 ;;
esac
""")
        shell = self.write("ssh", f"#!/bin/sh\necho ssh >>{calls}\nexec sleep 30\n")
        environment = clean_environment(
            COPPER_LAUNCHER_ARGS=f"--mca plm_rsh_agent {shell}" if self.launcher == "mpirun" else f"-launcher-exec {shell}")
        mount = f"{self.directory}/mount"
        try:
            done = subprocess.run([copper_program(), "launch", "--nodes-from", hosts, "--launcher", launcher, "--tree", TREE,
                                   "--mount", mount], capture_output=True, text=True, env=environment, check=False, timeout=200)
        finally:
            stopped = subprocess.run([copper_program(), "stop", "--mount", mount], capture_output=True, text=True,
                                     env=environment, check=False, timeout=200)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertIn("nodes  512\n", done.stdout)
        self.assertEqual(0, stopped.returncode, stopped.stderr)
        with open(calls, encoding="utf-8") as file:
            kinds = [next((kind for kind in ("doctor --local", "stop --local", "--launch=") if kind in call), call)
                     for call in file]
        self.assertEqual(["--launch=", "doctor --local", "stop --local"], kinds)

    def test_launcher_of_another_mpi_comes_first(self):
        self.write_conda("mpirun" if self.launcher == "mpiexec" else "mpiexec")
        words, asked = self.launcher_in("conda/bin", "bin")
        self.assertEqual(f"{self.directory}/bin/{self.launcher}", words[0])
        self.assertEqual("conda/bin/mpirun", asked[0])
        self.assertNotIn("conda/bin/mpiexec", asked, "it is the same program")

    def test_launcher_of_the_same_mpi_comes_first(self):
        self.write_conda(self.launcher)
        words, asked = self.launcher_in("conda/bin", "bin")
        self.assertEqual(("mpirun", ["conda/bin/mpirun"]), (words[0], asked), "called as users do")

    def test_pals_and_conda(self):
        self.write_conda("mpiexec")
        pals = "opt/cray/pals/1.8/bin"
        self.write_launcher(f"{pals}/mpiexec", VERSION_OF_PALS)
        nodes = self.write("nodes", "cn1\ncn2\n")
        words, _ = self.launcher_in("conda/bin", pals, "bin", PBS_NODEFILE=nodes)
        if self.launcher == "mpiexec":
            self.assertEqual(f"{self.directory}/{pals}/mpiexec", words[0])
            self.assertIn("--no-abort-on-failure", words)
            words, _ = self.launcher_in(pals, "conda/bin", "bin")
            self.assertEqual(f"{self.directory}/conda/bin/mpirun", words[0], "outside a job, PALS starts nothing")
        else:
            self.assertEqual(f"{self.directory}/bin/mpirun", words[0], "PALS starts no Open MPI")

    def test_many_launchers(self):
        for number in range(20):
            self.write_launcher(f"bin{number}/mpirun", "something else")
        words, asked = self.launcher_in(*(f"bin{number}" for number in range(20)))
        self.assertEqual(("mpirun", 8), (words[0], len(asked)))

    def test_broken_launcher_comes_first(self):
        self.write(f"broken/{self.launcher}", "#!/nowhere\n")
        words, _ = self.launcher_in("broken", "bin")
        self.assertEqual(f"{self.directory}/bin/{self.launcher}", words[0])

    def test_relative_entry_of_path(self):
        for path, cwd in ((":/usr/bin:/bin", f"{self.directory}/bin"), ("bin:/usr/bin:/bin", self.directory)):
            words = self.command("--nodes-from", "cn1,cn2", path=path, cwd=cwd)
            self.assertTrue(os.path.isabs(words[0]), words[0])
            self.assertEqual(f"{self.directory}/bin/{self.launcher}", os.path.normpath(words[0]))

    def test_path_is_not_set(self):
        if not shutil.which("mpirun", path="/usr/local/bin:/usr/bin:/bin"):
            self.skipTest("mpirun is at no usual place")
        self.assertNotIn("no launcher found", self.dry_run("--nodes-from", "cn1,cn2", path=UNSET).stderr)

    def test_launchers_that_hang(self):
        for number in range(3):
            self.write(f"bin{number}/mpirun", "#!/bin/sh\nexec sleep 100\n")
        begin = time.monotonic()
        done = self.dry_run("--nodes-from", "cn1,cn2", path=":".join(f"{self.directory}/bin{number}" for number in range(3))
                            + ":/usr/bin:/bin")
        self.assertLess(time.monotonic() - begin, 25, "all of them share 15 seconds")
        self.assertEqual(3, done.returncode)
        self.assertRegex(done.stderr, "^copper: launcher mpirun: ")

    def test_first_of_broken_launchers_is_named(self):
        for name in ("a", "b"):
            self.write(f"{name}/mpirun", "#!/nowhere\n")
        done = self.dry_run("--nodes-from", "cn1,cn2", path=f"{self.directory}/a:{self.directory}/b")
        self.assertEqual(3, done.returncode)
        self.assertRegex(done.stderr, f"^copper: launcher {self.directory}/a/mpirun: ")

    def test_only_launchers_of_another_mpi(self):
        other = "mpirun" if self.launcher == "mpiexec" else "mpiexec"
        self.write_conda(other)
        done = self.dry_run("--nodes-from", "cn1,cn2", path=f"{self.directory}/conda/bin")
        family, built = ("hydra", "Open MPI") if other == "mpiexec" else ("open-mpi-4", "MPICH")
        self.assertEqual(3, done.returncode)
        self.assertEqual(f"copper: mpirun ({family}) cannot start copperd, which is built with {built}: load the module of "
                         "that MPI, or give the path of its launcher with --launcher\n", done.stderr)

    def test_flux(self):
        words = self.command(**self.fake_flux())
        self.assertEqual(["flux", "run", "--ntasks=2", "--requires=hosts:tuolumne1001,tuolumne1002", "--nodes=2",
                          "-o", "cpu-affinity=off", "-o", "gpu-affinity=off", "-o", "exit-timeout=none"], words[:11])
        self.assert_job("f2gVXkbSKH", words)
        self.assertEqual(self.launcher == "mpirun", "pmi=simple,pmix" in words)
        named = self.command("--nodes-from", "flux", "--launcher", "flux", **self.fake_flux())
        self.assertEqual(words[:11], named[:11])

    def test_flux_within_a_run(self):
        done = self.dry_run(FLUX_JOB_ID="f3", **self.fake_flux())
        self.assertEqual(2, done.returncode)
        self.assertRegex(done.stderr, "^copper: a program that 'flux run' started cannot start others.*flux batch")

    def test_flux_proxy(self):
        """Its shell has the variables from outside. flux-proxy(1) makes its socket in a directory of its own."""
        for outside in ({"FLUX_ENCLOSING_ID": ""}, {"FLUX_ENCLOSING_ID": "f2gVXkbSKH"}):
            self.assert_job("f2oM", self.command(**(self.fake_flux() | {"FLUX_URI": "local:///tmp/flux-proxy-x/local"} | outside)))

    def test_flux_does_not_answer(self):
        variables = self.fake_flux()
        self.write("bin/flux", "#!/bin/sh\necho no broker >&2\nexit 1\n")
        done = self.dry_run(**variables)
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, "^copper: flux hostlist --expand avail: no broker")

    def test_lsf(self):
        """IBM Spectrum LSF 10.1, "Environment variables": a line for each slot, or hosts and numbers of slots."""
        hosts = self.write("hosts", "hostA\nhostA\nhostB\nhostB\n")
        for variables in ({"LSB_DJOB_HOSTFILE": hosts}, {"LSB_MCPU_HOSTS": "hostA 2 hostB 2 "}):
            words = self.command(LSB_JOBID="812", LSB_JOBINDEX="0", **variables)
            self.assert_mpi("hostA,hostB", words, ["plm_rsh_agent", "blaunch"], ["-launcher", "lsf"])
            self.assert_job("812", words)
        words = self.command(LSB_JOBID="812", LSB_JOBINDEX="3", LSB_DJOB_HOSTFILE=hosts,
                             COPPER_LAUNCHER_ARGS="--mca plm_rsh_agent ssh -launcher ssh")
        self.assert_job("812[3]", words)
        self.assertNotIn("blaunch", words)
        self.assertNotIn("lsf", words)
        done = self.dry_run(LSB_JOBID="812")
        self.assertEqual(2, done.returncode)
        self.assertRegex(done.stderr, "^copper: .*LSB_MCPU_HOSTS.* give them with --nodes-from")

    def test_grid_engine(self):
        """sge_pe(5): host, slots, queue and processors on each line."""
        hosts = self.write("pe_hostfile", "hostA 4 all.q@hostA UNDEFINED\nhostB 4 all.q@hostB UNDEFINED\n")
        words = self.command(JOB_ID="77", SGE_ROOT="/opt/sge", SGE_TASK_ID="undefined", PE_HOSTFILE=hosts)
        self.assert_mpi("hostA,hostB", words, [], ["-launcher", "sge"])
        self.assert_job("77", words)
        self.assert_job("77.2", self.command(JOB_ID="77", SGE_ROOT="/opt/sge", SGE_TASK_ID="2", PE_HOSTFILE=hosts))
        self.assertNotIn("--batch-job=77", self.command(JOB_ID="77", PE_HOSTFILE=hosts))

    def test_list_of_hosts(self):
        self.assert_mpi("cn1,cn2", self.command("--nodes-from", "cn1,cn2"))
        self.assert_mpi("login,cn08,cn09,cn10", self.command("--nodes-from", "login,cn[08-10]"))
        for hosts in ("cn[1-", "cn[a-b],x", ","):
            done = self.dry_run("--nodes-from", hosts)
            self.assertEqual(2, done.returncode)
            self.assertIn(f"copper: --nodes-from {hosts}: ", done.stderr)

    def test_wrong_place(self):
        for source in ("pbs", "slurm", "flux", "lsf", "sge"):
            done = self.dry_run("--nodes-from", source)
            self.assertEqual(2, done.returncode)
            self.assertRegex(done.stderr, f"^copper: --nodes-from {source}: [A-Z_]+ is not set")

    def test_launchers_outside_their_jobs(self):
        for program, sign in (("srun", "SLURM_JOB_ID"), ("flux", "FLUX_URI")):
            self.write(f"bin/{program}", "#!/bin/sh\n")
            done = self.dry_run("--launcher", program, "--nodes-from", "cn1,cn2")
            self.assertEqual(2, done.returncode)
            self.assertRegex(done.stderr, f"^copper: --launcher {program}: this is no job .{sign} is not set.: launch from ")

    def test_programs_that_are_no_launchers(self):
        for program in ("pdsh", "jsrun"):
            done = self.dry_run("--launcher", program)
            self.assertEqual(2, done.returncode)
            self.assertRegex(done.stderr, f"^copper: --launcher {program}: .*--nodes-from")
