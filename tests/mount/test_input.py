"""What stops a launch, in surroundings that wrong_uses.txt cannot make. And `copper doctor`."""

import json
import os
import subprocess

from copper import as_nobody, clean_environment, copper_program, is_built_with_mpich, kill_all, wait_until, NOBODY
from mounted import MountTestCase

TREE = "/usr/share/doc"

# Hides /dev/fuse from the commands that follow, in their own mount namespace.
WITHOUT_DEVICE = """
mount -t tmpfs none "$1" && for name in null zero random urandom tty; do
    touch "$1/$name" && mount --bind "/dev/$name" "$1/$name"
done && mkdir "$1/shm" && mount --rbind "$1" /dev && shift && exec "$@"
"""


class BadInput(MountTestCase):
    def setUp(self):
        self.job = self.prepare(nodes=2, trees=[TREE])

    def launch_refused(self, code, says, prefix=(), **environment):
        done = subprocess.run([*prefix, copper_program(), *self.job.launch_words()], capture_output=True, text=True, cwd="/",
                              env=clean_environment(**environment), timeout=120, stdin=subprocess.DEVNULL, check=False)
        self.assertIn(done.returncode, code, done.stdout + done.stderr)
        self.assertRegex(done.stderr, says)

    # Before a launch

    def test_doctor(self):
        words = [copper_program(), "doctor", "--mount", f"{self.job.directory}/m", "--launcher", "none"]
        done = self.run_program(*words, "--tree", TREE, env=clean_environment())
        self.assertRegex(done.stdout.decode(), "(?m)^ok +fuse: /dev/fuse can be opened\n(.*\n)*ok +copperd: copperd [0-9.]+ ")
        findings = json.loads(self.run_program(*words, "--tree", TREE, "--json", env=clean_environment()).stdout)["findings"]
        self.assertEqual({"good"}, {finding["verdict"] for finding in findings} - {"warning"})
        self.assertEqual([f"{TREE} can be read"], [finding["text"] for finding in findings if finding["check"] == "tree"])

    def test_doctor_finds_problems(self):
        self.need_root()
        place = self.make_directory()
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", WITHOUT_DEVICE, "sh", place,
                               "sh", "-c", 'ulimit -n 32; exec "$@"', "sh", copper_program(), "doctor", "--tree", TREE,
                               "--launcher", "none"], capture_output=True, text=True, env=clean_environment(), check=False)
        self.assertEqual((1, "copper: 2 problems (see above)\n"), (done.returncode, done.stderr), done.stdout)
        self.assertIn("PROBLEM  fuse: there is no /dev/fuse\n         -> load the kernel's module", done.stdout)
        self.assertIn("PROBLEM  limits: at most 32 files may be open", done.stdout)

    def doctor(self, *words, prefix=(), code=0, **environment):
        done = subprocess.run([*prefix, copper_program(), "doctor", "--tree", TREE, *words], capture_output=True, text=True,
                              cwd="/", env=clean_environment(**environment), timeout=120, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual(code, done.returncode, done.stdout + done.stderr)
        return done.stdout

    def test_doctor_finds_other_mirrors(self):
        job = self.launch(nodes=1, trees=[TREE], environment={"PBS_JOBID": "17.server"})
        served = f"warning  others: {job.mount} is served by process [0-9]+, for job 17.server\n"
        stop = f"'copper stop --mount {job.mount}'\n"
        self.assertRegex(self.doctor("--launcher", "none"), served + " +-> it shares this node's memory")
        self.assertRegex(self.doctor("--launcher", "none", PBS_JOBID="17.server"),
                         f"{served} +-> if nothing uses it, end it with {stop}")
        processes = job.own_processes()
        kill_all(processes)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes), 20, "their end, and that of zombies")
        self.assertRegex(self.doctor("--launcher", "none"),
                         f"warning  others: {job.mount}: its daemons have ended without cleaning up\n +-> clear it with {stop}")
        self.assertRegex(self.doctor("--launcher", "none", "--mount", job.root(0), code=1),
                         f"PROBLEM  mount: {job.root(0)} is a dead Copper mount\n +-> clear it with 'copper stop --local --mount {job.root(0)}'\n")
        self.assertEqual(0, job.stop().returncode)
        self.assertNotIn(job.mount, self.doctor("--launcher", "none"))

    def test_doctor_tells_mirrors_with_similar_names_apart(self):
        job = self.launch(nodes=1, trees=[TREE])
        processes = job.own_processes()
        kill_all(processes)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in processes), 20, "their end, and that of zombies")
        similar = f"{job.mount}.1"  # as the second node of a job on one machine
        os.mkdir(similar)
        done = job.command("launch", "--launcher", "none", "--mount", similar, "--tree", TREE)
        self.assertEqual(0, done.returncode, done.stderr)
        said = self.doctor("--launcher", "none")
        self.assertEqual(0, job.command("stop", "--mount", similar).returncode)
        os.rmdir(similar)
        self.assertIn(f"others: {job.mount}: its daemons have ended", said)
        self.assertRegex(said, f"others: {similar} is served by process [0-9]+\n")

    def test_doctor_finds_little_memory_and_few_cores(self):
        core = str(min(os.sched_getaffinity(0)))
        said = self.doctor("--launcher", "none", "--cache-bytes", "100M", prefix=["taskset", "--cpu-list", core])
        self.assertRegex(said, "warning  memory: a cache of up to 100 MiB of .*\n +-> large environments will not fit")
        self.assertRegex(said, "warning  cores: 1 of [0-9]+ cores are allowed here\n +-> the daemon shares this core")
        self.assertRegex(self.doctor("--launcher", "none", "--cache-bytes", "1000T", code=1),
                         "PROBLEM  launch: --cache-bytes: a cache of .* does not fit into this machine's memory")

    def test_doctor_finds_the_wrong_mpi(self):
        place = self.make_directory()
        version, says = (("mpirun (Open MPI) 4.1.4", "open-mpi-4.* built with MPICH") if is_built_with_mpich() else
                         ("HYDRA build details:", "hydra.* built with Open MPI"))
        with open(f"{place}/mpirun", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho '{version}'\n")
        os.chmod(f"{place}/mpirun", 0o755)
        self.assertRegex(self.doctor("--nodes-from", "cn1,cn2", "--launcher", f"{place}/mpirun", code=1),
                         f"PROBLEM  launch: {place}/mpirun .{says}: load the module")

    # Mount points

    def test_mount_point_is_not_empty(self):
        os.makedirs(f"{self.job.root(1)}/precious")
        self.launch_refused(code=[1], says=f"{self.job.root(1)}.*not empty")
        self.assertEqual(["precious"], os.listdir(self.job.root(1)))
        os.rmdir(f"{self.job.root(1)}/precious")
        os.rmdir(self.job.root(1))

    def test_mount_point_is_a_dead_mount(self):
        job = self.launch(nodes=1, trees=[TREE])
        kill_all(job.own_processes())  # the supervisor, too
        wait_until(lambda: not job.own_processes(), 20, "their end")
        done = job.command(*job.launch_words())
        self.assertEqual(1, done.returncode)
        self.assertRegex(done.stderr, "not connected|dead|daemon is gone")
        self.assertRegex(done.stderr, "copper stop")
        self.assertEqual(0, job.stop().returncode)
        job.launch()

    # Rights

    def test_working_directory_that_is_gone(self):
        """mpirun fails there."""
        place = self.make_directory()
        # Each command makes it, and removes it.
        prefix = ["sh", "-c", 'mkdir -p "$0" && cd "$0" && rmdir "$0" && exec "$@"', f"{place}/gone"]
        self.launch(nodes=2, trees=[place], prefix=prefix)

    def test_no_fuse_device(self):
        self.need_root()
        place = self.make_directory()
        prefix = ["unshare", "--mount", "sh", "-c", WITHOUT_DEVICE, "sh", place]
        self.launch_refused(code=(1, 3), says="/dev/fuse", prefix=prefix)
        self.assertEqual([], self.job.leftovers())

    def test_no_right_to_mount(self):
        self.need_root()
        os.chown(self.job.directory, NOBODY, NOBODY)
        self.launch_refused(code=(1, 3), says="(?i)fusermount3|permission|not permitted",
                            prefix=as_nobody("--no-new-privs"), HOME=self.job.directory, USER="nobody")
        self.assertEqual([], self.job.leftovers())

    def test_dry_run_starts_nothing(self):
        done = self.job.command(*self.job.launch_words(), "--dry-run")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("copperd", done.stdout)
        self.assertEqual([], self.job.leftovers())
