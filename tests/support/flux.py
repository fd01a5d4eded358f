"""A real Flux on the hosts of hosts.py: a broker on each, which together are the instance of a site.

    with Hosts(4, over=put_over) as hosts:
        flux = Flux(hosts)
        flux.start()
        job = flux.submit("flux run -N 4 hostname", "-N4")

Flux is what the machine has (in PATH or /opt/flux), or else a build for Debian 12 in an archive beside the repository, which is
unpacked for the hosts alone. All files are in the hosts' own /run and /tmp or in their shared directory, and all processes end
with the hosts. There is nothing else to undo.
"""

import os
import pathlib
import shutil
import subprocess
import time

from copper import REPOSITORY, CopperError, wait_until
from pages import block_with

SECONDS_MAX = 60
LOOK_SECONDS = 0.2
URI = "local:///run/flux/local"
CORES = 32
IMP_OF_DOCUMENTATION = "/usr/libexec/flux/flux-imp"

# flux-config-bootstrap(5), flux-config-resource(5). What the documentation has for sites comes behind this.
CONFIGURATION = """
[bootstrap]
curve_cert = "{directory}/curve.cert"
default_port = 8060
default_bind = "tcp://eth0:%p"
default_connect = "tcp://%h:%p"
hosts = [ {hosts} ]

[resource]
path = "{directory}/R"
norestrict = true
noverify = true

[tbon]
interface-hint = "eth0"
"""

# The IMP is part of flux-security. As root for `run prolog`, it starts flux-run-prolog, which lets systemd start the script below.
# The brokers here run as root and without systemd.
IMP = """#!/bin/sh
[ "$1" = run ] && exec {libexec}/flux-run-system-scripts "$2" >>{directory}/$2.log 2>&1
"""


def program_here():
    """The machine's own flux, or None."""
    return shutil.which("flux") or shutil.which("/opt/flux/bin/flux")


def archive():
    """The build beside the repository, or None."""
    return next((REPOSITORY.parent / "shared/schedulers").glob("flux-core-debian12-*.tar.xz"), None)


def why_no_flux():
    """The reason why Flux cannot be run here, or None."""
    if program_here():
        return None
    if not archive():
        return "Flux is not installed"
    for package, pattern in (("libzmq5", "lib/*/libzmq.so.5"), ("python3-cffi", "lib/python3/dist-packages/cffi")):
        if not list(pathlib.Path("/usr").glob(pattern)):
            return f"Flux needs the package {package} (tools/setup flux)"
    return None


def put_over(directory):
    """For hosts.py. The hosts may write to /etc in any case."""
    if not program_here():
        subprocess.run(["tar", "-xJf", archive(), "-C", directory], check=True)
    os.makedirs(f"{directory}/etc", exist_ok=True)


class Flux:
    def __init__(self, hosts):
        self.hosts = hosts
        self.first = hosts.names[0]
        self.directory = f"{hosts.directory}/flux"
        self.prefix = pathlib.Path(program_here() or "/opt/flux/bin/flux").parents[1]
        environment = hosts.environment()
        self.outputs = {}  # by job
        self.environment = {"PATH": f"{environment['PATH']}:{self.prefix}/bin", "FLUX_URI": URI, "COPPER_LAUNCHER_ARGS": "",
                            "FLUX_SSH": f"{hosts.directory}/agent"}  # for flux-proxy(1)

    def start(self):
        os.mkdir(self.directory)
        names = self.hosts.names
        shutil.copytree(REPOSITORY / "tools" / "job" / "site", f"{self.hosts.directory}/libexec/copper/site")
        self.write("imp", IMP.format(libexec=f"{self.prefix}/libexec/flux", directory=self.directory), 0o755)
        hosts = ", ".join(f'{{ host = "{name}" }}' for name in names)
        of_site = block_with("docs/site.md", "perilog.so", "toml").replace(IMP_OF_DOCUMENTATION, f"{self.directory}/imp")
        self.write("broker.toml", CONFIGURATION.format(directory=self.directory, hosts=hosts) + of_site)
        self.check("flux", "keygen", f"{self.directory}/curve.cert")
        ranks = ",".join(map(str, range(len(names))))
        self.write("R", self.check("flux", "R", "encode", f"--ranks={ranks}", f"--cores=0-{CORES - 1}",
                                   f"--hosts={','.join(names)}"))
        for name in names:
            self.hosts.check(name, "sh", "-ec", "mkdir -m 700 -p /run/flux; exec >$0 2>&1; "
                             f"flux broker --config-path={self.directory} --setattr=rundir=/run/flux --setattr=local-uri={URI} "
                             "sleep infinity &", f"{self.directory}/broker-{name}.log", LC_ALL="C.UTF-8", **self.environment)
        try:
            wait_until(lambda: self.nodes_free() == len(names), SECONDS_MAX, "the start of all brokers")
        except CopperError as error:
            raise CopperError(f"{error}\n{self.logs()}") from error

    def write(self, name, text, mode=0o644):
        path = pathlib.Path(self.directory, name)
        path.write_text(text, encoding="utf-8")
        path.chmod(mode)

    def link_scripts(self):
        """As the documentation says to sites."""
        self.check("sh", "-ec", block_with("docs/site.md", "prolog epilog").replace("/opt/copper/current", self.hosts.directory))

    def unlink_scripts(self):
        self.check("rm", "-rf", "/etc/flux/system/prolog.d", "/etc/flux/system/epilog.d")

    def run(self, *words, **more):
        return self.hosts.run(self.first, *words, **(self.environment | more))

    def check(self, *words, **more):
        return self.hosts.check(self.first, *words, **(self.environment | more))

    def submit(self, script, *options, **variables):
        """Starts a job and returns its id. output() returns what the job prints."""
        self.write("job.sh", script if script.startswith("#!") else f"#!/bin/bash\n{script}")
        output = f"{self.directory}/job-{len(self.outputs)}.out"
        job = self.check("flux", "batch", f"--output={output}", *options, f"{self.directory}/job.sh", **variables).strip()
        self.outputs[job] = pathlib.Path(output)
        return job

    def output(self, job):
        path = self.outputs[job]
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self, job):
        """Such as ["RUN"] or ["INACTIVE", "COMPLETED"]. Sleeps first, so that polling leaves the processors to the job."""
        time.sleep(LOOK_SECONDS)
        return self.check("flux", "jobs", "-n", "-o", "{state} {result}", job).split()

    def wait_for(self, job, seconds=SECONDS_MAX):
        """Returns the result of the job, when the epilog has run on all nodes."""
        try:
            wait_until(lambda: self.state(job)[0] == "INACTIVE", seconds, f"the end of {job}")
        except CopperError as error:
            raise CopperError(f"{error}: {self.state(job)}\n{self.output(job)}\n{self.logs()}") from None
        return self.state(job)[1]

    def end_jobs(self):
        self.run("flux", "cancel", "--all")
        wait_until(lambda: self.nodes_free() == len(self.hosts.names), SECONDS_MAX, "the end of all jobs")

    def nodes_free(self):
        time.sleep(LOOK_SECONDS)
        done = self.run("flux", "resource", "list", "-n", "-s", "free", "-o", "{nnodes}")
        return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else 0

    def logs(self):
        text = ""
        for log in sorted(pathlib.Path(self.directory).glob("*.log")):
            text += f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}"
        return text
