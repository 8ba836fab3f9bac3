"""A sidecar reduced to its desk, in a process of its own: has one part written, and tells the pid
of its writer once that is under way."""

import sys
import time

from tests.integration.writer.scene import Scene

scene = Scene(sys.argv[1], sys.argv[2], "slow")
question = scene.write([0])
while scene.desk.ask(question) is None:
    if scene.desk.progress(question).done_bytes:
        print(scene.process.pid, flush=True)
    time.sleep(0.05)
