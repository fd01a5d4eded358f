"""PBS Pro and OpenPBS: a hook for all nodes of a job. (The classic prologue and epilogue run on the first node only.)

    qmgr -c "create hook copper"
    qmgr -c "set hook copper event = 'execjob_prologue,execjob_epilogue,execjob_end'"
    qmgr -c "set hook copper alarm = 240"
    qmgr -c "import hook copper application/x-python default /opt/copper/libexec/copper/site/pbs-hook.py"

The MoM keeps a copy of this file and runs it as root, so NODE_SCRIPT must name the installation. It never rejects: a
job runs and ends as if this hook did not exist.
"""

import os
import subprocess

import pbs

NODE_SCRIPT = os.environ.get("COPPER_NODE_SCRIPT", "/opt/copper/libexec/copper/site/copper-node.sh")

event = pbs.event()
try:
    # execjob_end also comes for jobs that were aborted before they ran, and for those whose node was lost for a while.
    what = "prepare" if event.type == pbs.EXECJOB_PROLOGUE else "clean"
    subprocess.call([NODE_SCRIPT, what, str(event.job.euser), str(event.job.id)], stdin=subprocess.DEVNULL,
                    env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
except Exception as error:  # whatever it is, the job goes on
    pbs.logmsg(pbs.LOG_ERROR, "copper: %s" % error)
event.accept()
