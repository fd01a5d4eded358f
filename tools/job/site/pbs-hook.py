"""PBS Pro and OpenPBS: a hook for all nodes of a job. (The classic prologue and epilogue run on the first node only.)

    qmgr -c "create hook copper"
    qmgr -c "set hook copper event = 'execjob_prologue,execjob_launch,execjob_epilogue,execjob_end'"
    qmgr -c "set hook copper alarm = 240"
    qmgr -c "import hook copper application/x-python default /opt/copper/current/libexec/copper/site/pbs-hook.py"

The MoM keeps a copy of this file and runs it as root, so SITE must name the installation. It never rejects: a
job runs and ends as if this hook did not exist.
"""

import os
import subprocess

import pbs

SITE = os.environ.get("COPPER_SITE", "/opt/copper/current/libexec/copper/site")


def act_on_node(what, job):
    subprocess.call([SITE + "/copper-node.sh", what, str(job.euser), str(job.id)], stdin=subprocess.DEVNULL,
                    env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})


def start_by_copper(event):
    """For a job that asks for its mirror: see job-starter.sh."""
    starter = SITE + "/job-starter.sh"
    if "COPPER_MIRROR" in event.env and os.access(starter, os.X_OK):
        # For the shell of a script, the MoM has none yet: it makes a login shell of it after this event.
        name, *arguments = event.argv or ["-" + os.path.basename(event.progname)]
        event.argv[:] = [starter, "-a", name, event.progname] + arguments
        event.progname = starter


event = pbs.event()
try:
    if event.type == pbs.EXECJOB_LAUNCH:
        start_by_copper(event)
    else:
        # execjob_end also comes for jobs that were aborted before they ran, and for those whose node was lost for a while.
        act_on_node("prepare" if event.type == pbs.EXECJOB_PROLOGUE else "clean", event.job)
except Exception as error:  # whatever it is, the job goes on
    pbs.logmsg(pbs.LOG_ERROR, "copper: %s" % error)
event.accept()
