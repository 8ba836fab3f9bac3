"""The manifests are valid, and say what the launchers and their exit codes mean."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from holdfast_sidecar.configuration import load
from holdfast_sidecar.decisions.beginning import EXIT_BAD_INPUT
from holdfast_sidecar.decisions.restart import EXIT_DO_NOT_REQUEUE, EXIT_REQUEUE
from holdfast_sidecar.launcher.arguments import parse_arguments
from holdfast_sidecar.settings import PolicySettings

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"

VERSIONS = ("1.31", "1.37")
"""podFailurePolicy is stable from the first of these on; the other is the newest that is known."""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def job() -> dict[str, Any]:
    (document,) = documents("job.yaml")
    return document


def validate(document: dict[str, Any], version: str = VERSIONS[0]) -> None:
    kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_every_manifest_is_valid(path: Path, version: str) -> None:
    found = documents(path.name)
    assert found
    for document in found:
        validate(document, version)


def test_the_validation_finds_a_name_that_nobody_knows() -> None:
    wrong = copy.deepcopy(job())
    wrong["spec"]["podFailurePolicy"]["rules"][0]["onExitCode"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong)


def container() -> dict[str, Any]:
    (found,) = job()["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def test_what_another_start_can_t_help_fails_the_job_and_what_was_asked_to_go_comes_again() -> None:
    rules = job()["spec"]["podFailurePolicy"]["rules"]
    by_code = {
        code: rule["action"]
        for rule in reversed(rules)
        if "onExitCodes" in rule
        for code in rule["onExitCodes"]["values"]
    }
    assert by_code == {
        EXIT_BAD_INPUT: "FailJob",
        EXIT_DO_NOT_REQUEUE: "FailJob",
        EXIT_REQUEUE: "Ignore",
    }
    names = {rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule}
    assert names == {container()["name"]}
    # Without these the API server refuses a podFailurePolicy.
    assert job()["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert job()["spec"]["podReplacementPolicy"] == "Failed"


def test_the_command_is_one_that_holdfast_run_takes() -> None:
    assert container()["command"] == ["holdfast", "run"]
    values = {"JOB": "train", "INDEX": "0", "ADDRESS": "10.0.0.1", "MACHINE": "m1"}
    named = {entry["name"]: entry for entry in container()["env"]}
    given = [_expand(argument, values) for argument in container()["args"]]
    assert not [argument for argument in given if "$(" in argument]
    assert values.keys() <= named.keys()
    parsed = parse_arguments(given)
    load(sets=parsed.sets, flags=parsed.flags, environment={})
    assert parsed.node == "node-0"
    spec = job()["spec"]
    assert int(parsed.torch.nnodes) + parsed.spares == spec["completions"] == spec["parallelism"]


def test_there_is_time_to_save_before_kubernetes_kills() -> None:
    grace_s = job()["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > PolicySettings().preemption_grace_s + 5


def test_every_mount_has_its_volume_and_the_secret_its_keys() -> None:
    for document in (job(), *documents("redis.yaml")):
        pod = document["spec"].get("template", {}).get("spec", {})
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for one in pod.get("containers", []):
            assert {mount["name"] for mount in one["volumeMounts"]} == volumes


def _expand(argument: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace(f"$({name})", value)
    return argument
