"""A job's name that is used again with other settings, by several processes at the same moment."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

import pytest
from tests.servers import Server

from holdfast_sidecar.linux.process import die_with
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Plan
from holdfast_sidecar.store.protocol import Section
from holdfast_sidecar.store.shared_settings import check_settings_shared

NODE = """
import sys, time
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.store.connection import open_store
from holdfast_sidecar.config.settings import RedisSettings
from holdfast_sidecar.store.shared_settings import check_settings_shared

node, url = sys.argv[1:]
store = open_store(RedisSettings(url=url), "j", {})
print("ready", flush=True)
sys.stdin.readline()
time.sleep({"a": 0.0, "b": 0.1, "c": 0.4}[node])  # none starts at quite the same time
try:
    check_settings_shared(store, "j", {"nnodes": "3", "spares": 0}, watch_s=1.0)
except BadInput as refused:
    print(refused, flush=True)
else:
    store.campaign(f"{node}/i", 30.0, 0)  # as its sidecar does at once
    print("in", flush=True)
"""


@pytest.mark.parametrize("left", ["ended", "dead"])
def test_nodes_that_start_together_with_other_settings_than_before_are_all_let_in(
    server: Server, left: str
) -> None:
    store = server.store("j")
    check_settings_shared(store, "j", {"nnodes": "2", "spares": 1})
    if left == "ended":
        lease = store.campaign("a/old", 30.0, 0)
        ended = encode(Plan(0, lease.epoch, "done"))
        assert store.order(lease, Section.PLAN, "current", ended, None)
        store.resign("a/old")
    nodes = [_start(name, server.settings.url) for name in "abc"]
    for node in nodes:
        assert node.stdout is not None
        assert node.stdout.readline() == "ready\n"
    for node in nodes:
        assert node.stdin is not None
        node.stdin.write("go\n")
        node.stdin.flush()
    answers = [node.communicate(timeout=30)[0] for node in nodes]
    assert answers == ["in\n"] * 3


def _start(name: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", NODE, name, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=partial(die_with, os.getpid()),
    )
