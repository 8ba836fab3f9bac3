"""An incident's bundle from the hang to the archive, with secrets wherever ranks have them."""

from __future__ import annotations

import json
import os
import signal
import tarfile
from pathlib import Path

import pytest
from tests.integration.sidecar.node import Node, wait_for

from holdfast_sidecar.records.codec import decode
from holdfast_sidecar.records.plan import Incident
from holdfast_sidecar.store.protocol import Section

SECRETS = {
    "environment": "env1r0nment-s3cret",
    "argument": "argum3nt-s3cret",
    "log": "l0gged-s3cret",
    "url": "ur1-s3cret",
    "password": "r3dis-passw0rd",
}


def incident_of(node: Node, identifier: str) -> Incident:
    text = node.server.store(node.job).read().section(Section.INCIDENTS)[identifier]
    incident = decode(Incident, text)
    assert incident is not None
    return incident


def contents(archive: Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {
            Path(member.name).name: file.read()
            for member in tar.getmembers()
            if (file := tar.extractfile(member)) is not None
        }


def test_a_hang_leaves_one_file_that_tells_all_and_no_secret(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRETS["environment"])
    monkeypatch.setenv("NCCL_PROXY", f"socks5://user:{SECRETS['url']}@proxy:3128")
    monkeypatch.setenv("TRACKER_PASSWORD", SECRETS["password"])
    launcher = node.launcher()
    node.sidecar("--launcher-pid", str(launcher.pid))
    node.agent(launcher, "joining")
    plan = wait_for(lambda: (p := node.plan()) and p.state == "running" and p)
    node.agent(launcher, "running", plan.attempt)
    logs = [tmp_path / f"rank-{rank}.log" for rank in (0, 1)]
    ranks = [
        node.rank(
            f"--rank={rank}",
            "--world-size=2",
            f"--epoch={plan.epoch}",
            "--api-key",
            SECRETS["argument"],
            f"--say=rank {rank} begins; password={SECRETS['log']}; by {SECRETS['environment']},"
            f" with {SECRETS['password']}; the end",
            output=logs[rank],
        )
        for rank in (0, 1)
    ]
    wait_for(lambda: (r := node.report()) and [x.step > 10 for x in r.ranks] == [True, True])
    os.kill(ranks[1].pid, signal.SIGSTOP)
    assert ranks[1].wait(10) == -signal.SIGKILL
    ended = node.plan()
    assert ended is not None
    ranks[0].kill()
    ranks[0].wait()
    node.agent(launcher, "joining", 0)
    again = wait_for(lambda: (p := node.plan()) and p.state == "running" and p)
    node.agent(launcher, "running", again.attempt)
    for rank in (0, 1):
        node.rank(
            f"--rank={rank}",
            "--world-size=2",
            f"--epoch={again.epoch}",
            attempt=again.attempt,
        )
    archive = node.places.incidents / f"{ended.incident}.tar.gz"
    wait_for(archive.exists, 15)
    noted = wait_for(lambda: incident_of(node, ended.incident).bundles)
    assert noted["a"].endswith(str(archive))

    kept = contents(archive)
    for directory in (
        kept,
        {p.name: p.read_bytes() for p in archive.with_suffix("").with_suffix("").iterdir()},
    ):
        for name, content in directory.items():
            assert not [why for why, secret in SECRETS.items() if secret.encode() in content], name
    assert b"rank 1 begins; password=[redacted]; by [redacted]," in kept["rank-1-output.log"]
    assert b"; the end" in kept["rank-1-output.log"]
    told = json.loads(kept["rank-1.json"])
    assert "--api-key" in told["command"]
    assert told["environment"]["NCCL_PROXY"] == "socks5://[redacted]@proxy:3128"
    assert "HF_TOKEN" in told["other_variables"]

    index = json.loads(kept["bundle.json"])
    assert set(index["files"]) == set(kept) - {"bundle.json"}
    assert json.loads(kept["decision.json"])["plan"]["culprit_ranks"] == [1]
    assert json.loads(kept["incident.json"])["recovered_unix_s"] > 0
    assert json.loads(kept["machine.json"])["readings"]["host"]["cpus"] > 0
    assert "packages" in json.loads(kept["software.json"])
    assert json.loads(kept["settings.json"])["sidecar"]["mode"] == "act"
    assert {"kernel.log", "sidecar.log", "stack-local-0.txt", "rank-1.page"} <= set(kept)
    stood = [r for r in incident_of(node, ended.incident).evidence if "rank 0 in main" in r]
    assert len(stood) == 1
    assert stood[0].startswith("rank 1 stopped")
