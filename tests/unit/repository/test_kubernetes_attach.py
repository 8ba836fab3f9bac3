"""The manifest of a job that is only watched: its containers see what they must of each other."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

from holdfast_sidecar.cli.attach import attach

MANIFEST = Path(__file__).parents[3] / "deploy" / "kubernetes" / "attach.yaml"


def pod() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]
    return spec


def options(words: list[str]) -> dict[str, Any]:
    return attach.make_context("attach", words).params


def test_rank_and_sidecar_share_pages_evidence_and_processes() -> None:
    spec = pod()
    (sidecar,), (train,) = spec["initContainers"], spec["containers"]
    mounts = [
        {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
        for one in (sidecar, train)
    ]
    for name, path in (("shm", "/dev/shm"), ("state", "/state")):
        assert [mounted[name] for mounted in mounts] == [path, path]
    assert "redis" not in mounts[1]
    assert {"name": "shm", "emptyDir": {"medium": "Memory"}} in spec["volumes"]
    assert spec["shareProcessNamespace"] is True
    assert "runAsUser" in spec["securityContext"]
    assert sidecar["restartPolicy"] == "Always"


def test_both_name_the_same_job_and_state_in_words_that_attach_takes() -> None:
    spec = pod()
    (sidecar,), (train,) = spec["initContainers"], spec["containers"]
    assert sidecar["command"] == ["holdfast", "attach"]
    watched = options(sidecar["args"])
    line = train["command"][2]
    printed = shlex.split(line[line.index("holdfast attach") : line.index(')"')])
    ranks = options(printed[2:])
    assert (ranks["job"], ranks["prints"]) == (watched["job"], True)
    assert "paths.state_dir=/state" in ranks["sets"]
    assert "paths.state_dir=/state" in watched["sets"]
    assert watched["stay"]
    assert watched["mode"] == "observe"
