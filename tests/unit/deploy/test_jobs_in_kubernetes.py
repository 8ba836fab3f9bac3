"""The Jobs say what exit codes mean, leave time to save, and share what must be shared."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deploy.known_words import parse_command, parse_run
from tests.unit.deploy.manifests import (
    Document,
    document,
    environment,
    mounts,
    pod,
    words,
)

from holdfast_sidecar.config.settings import PolicySettings
from holdfast_sidecar.launcher.ownership import launch_of
from holdfast_sidecar.policy.budget import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE
from holdfast_sidecar.policy.start import EXIT_BAD_INPUT

JOBS = ("attach.yaml", "job.yaml", "sidecar.yaml")
WITH_SIDECAR = ("attach.yaml", "sidecar.yaml")

ENDING_S = 5
"""What is left of a grace after the save, for ending the ranks; as `holdfast doctor` counts it."""


def job(file: str) -> Document:
    found: Document = document(file, "Job")["spec"]
    return found


def actions(file: str) -> dict[Any, str]:
    """Exit code or condition -> what the Job does; the first rule that fits counts."""
    found: dict[Any, str] = {}
    for rule in job(file)["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes", {}).get("values", [])
        conditions = [condition["type"] for condition in rule.get("onPodConditions", [])]
        for what in [*codes, *conditions]:
            found.setdefault(what, rule["action"])
    return found


def test_what_another_start_can_t_help_fails_the_job_and_what_was_asked_to_go_comes_again() -> None:
    assert actions("job.yaml") == {
        EXIT_BAD_INPUT: "FailJob",
        EXIT_DO_NOT_REQUEUE: "FailJob",
        EXIT_REQUEUE: "Ignore",
        "DisruptionTarget": "Ignore",
    }
    rules = job("job.yaml")["podFailurePolicy"]["rules"]
    names = {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule}
    assert names == {container["name"] for container in pod("job.yaml").containers}


@pytest.mark.parametrize("file", WITH_SIDECAR)
def test_under_the_launcher_of_others_only_a_disruption_is_not_counted(file: str) -> None:
    assert actions(file) == {"DisruptionTarget": "Ignore"}


@pytest.mark.parametrize("file", JOBS)
def test_a_node_keeps_its_number_and_is_never_in_two_pods(file: str) -> None:
    spec = job(file)
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    # Without these the API server refuses a podFailurePolicy.
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert spec["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize("file", JOBS)
def test_there_is_time_to_save_before_kubernetes_kills(file: str) -> None:
    grace_s = pod(file).spec["terminationGracePeriodSeconds"]
    assert grace_s > PolicySettings().preemption_grace_s + ENDING_S


def test_a_job_of_three_pods_has_two_nodes_and_a_spare() -> None:
    container = pod("job.yaml").container("train")
    parsed, effective = parse_run(words(container), environment(container))
    spec = job("job.yaml")
    assert int(parsed.torch.nnodes) + parsed.spares == spec["completions"]
    assert parsed.node == "node-0"
    settings = effective.settings
    assert settings.sidecar.machine == settings.snapshot.failure_domain == "machine-7"
    assert not settings.snapshot.peer_listen.startswith("127."), "nobody else would reach it"


@pytest.mark.parametrize("file", ["job.yaml", "sidecar.yaml"])
def test_pods_of_two_jobs_are_told_apart_by_their_jobs_uid(file: str) -> None:
    assert launch_of(environment(pod(file).container("train"))).startswith("0c9d7f3e-8a1b")


@pytest.mark.parametrize("file", WITH_SIDECAR)
def test_rank_and_sidecar_share_pages_evidence_processes_and_user(file: str) -> None:
    one = pod(file)
    (sidecar,), (train,) = one.spec["initContainers"], one.spec["containers"]
    for name, path in (("shm", "/dev/shm"), ("state", "/state")):
        assert mounts(sidecar)[name] == mounts(train)[name] == path
    assert one.spec["shareProcessNamespace"] is True
    for container in (sidecar, train):
        assert "runAsUser" not in container["securityContext"], "the pod's user is that of both"
    # An init container with this policy is a sidecar: it starts first, ends last, and is kept up.
    assert sidecar["restartPolicy"] == "Always"


@pytest.mark.parametrize("file", JOBS)
def test_shared_memory_is_a_volume_of_its_own_that_can_t_take_all_memory(file: str) -> None:
    (shm,) = [volume for volume in pod(file).spec["volumes"] if volume["name"] == "shm"]
    assert shm["emptyDir"]["medium"] == "Memory"
    limit = pod(file).container("train")["resources"]["limits"]["memory"]
    assert _gib(shm["emptyDir"]["sizeLimit"]) <= _gib(limit) / 2


def test_who_only_watches_names_the_same_job_node_and_state_as_the_ranks() -> None:
    one = pod("attach.yaml")
    sidecar, train = one.container("holdfast"), one.container("train")
    watched, effective = parse_command(words(sidecar), environment(sidecar))
    line = train["command"][2]
    printed = shlex.split(line[line.index("holdfast attach") : line.index(')"')])
    ranks, of_ranks = parse_command(printed, environment(train))
    assert (ranks["job"], ranks["prints"]) == (watched["job"], True)
    assert environment(train)["HOLDFAST_NODE"] == watched["node"]
    assert effective.settings.paths.state_dir == of_ranks.settings.paths.state_dir == "/state"
    assert watched["stay"]
    assert watched["mode"] == "observe"
    assert "redis" not in mounts(train), "ranks never talk to the server"


def test_the_pods_find_the_first_one_before_any_of_them_is_ready() -> None:
    service, template = document("attach.yaml", "Service"), pod("attach.yaml").template
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    name = service["metadata"]["name"]
    assert template["spec"]["subdomain"] == name
    job_name = document("attach.yaml", "Job")["metadata"]["name"]
    line = pod("attach.yaml").container("train")["command"][2]
    assert f"--master-addr={job_name}-0.{name} " in line


def test_both_containers_of_torchruns_pod_read_the_same_settings(tmp_path: Path) -> None:
    one = pod("sidecar.yaml")
    sidecar, train = one.container("holdfast"), one.container("train")
    assert sidecar["env"] == train["env"]
    for name in ("settings", "checkpoints", "redis"):
        assert mounts(sidecar)[name] == mounts(train)[name]
    assert mounts(train)["settings"] == "/etc/holdfast", "where holdfast.toml is looked for"
    policy = tmp_path / "holdfast.toml"
    policy.write_text(document("sidecar.yaml", "ConfigMap")["data"]["holdfast.toml"])
    _, effective = parse_command(words(sidecar), environment(sidecar), str(policy))
    settings = effective.settings
    for volume, path in (
        ("redis", settings.redis.password_file),
        ("state", settings.paths.state_dir),
        ("checkpoints", settings.checkpoint.dir),
    ):
        assert Path(path).is_relative_to(mounts(train)[volume])
    assert settings.sidecar.mode == "act"


def test_the_server_keeps_the_account_and_never_forgets_to_make_room() -> None:
    container = pod("redis.yaml").container("redis")
    options = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))
    assert options["--appendonly"] == "yes"
    assert options["--dir"] == mounts(container)["data"]
    assert options["--maxmemory-policy"] == "noeviction"
    assert container["args"][0].startswith(mounts(container)["secret"])
    assert document("redis.yaml", "StatefulSet")["spec"]["replicas"] == 1


def _gib(text: str) -> int:
    assert text.endswith("Gi")
    return int(text.removesuffix("Gi"))
