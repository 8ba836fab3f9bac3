"""What is sent to Kubernetes is valid by its own schemas, patches and all."""

from __future__ import annotations

import copy
import shutil
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from tests.unit.deploy.manifests import (
    FOLDER,
    OF_OTHERS,
    Document,
    document,
    documents,
    manifests,
    merged,
)

VERSIONS = ("1.31", "1.37")
"""podFailurePolicy is stable from the first of these on; the other is the newest that is known."""

PATCHES = sorted((FOLDER / "patches").glob("*.yaml"))


def validate(one: Document, version: str = VERSIONS[0]) -> None:
    kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", manifests(), ids=lambda path: path.name)
def test_every_manifest_is_valid_and_leaves_the_namespace_to_who_applies_it(
    path: Path, version: str
) -> None:
    found = documents(path.name)
    assert found
    for one in found:
        validate(one, version)
        assert "namespace" not in one["metadata"]


def test_the_validation_finds_a_name_that_nobody_knows() -> None:
    wrong = copy.deepcopy(document("job.yaml", "Job"))
    wrong["spec"]["podFailurePolicy"]["rules"][0]["onExitCode"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(wrong)


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.name)
def test_a_patch_makes_another_valid_daemonset(path: Path) -> None:
    (patch,) = yaml.safe_load_all(path.read_text())
    plain = document("daemonset.yaml", "DaemonSet")
    patched = merged(plain, patch)
    assert patched != plain
    for version in VERSIONS:
        validate(patched, version)
    assert [c["name"] for c in patched["spec"]["template"]["spec"]["containers"]] == ["holdfast"]


def test_the_kustomization_names_files_and_images_that_are_there() -> None:
    (one,) = documents("kustomization.yaml")
    offered = [
        line.strip("# -").removeprefix("path: ").strip()
        for line in (FOLDER / "kustomization.yaml").read_text().splitlines()
        if line.startswith(("  # - ", "#   - path: "))
    ]
    assert {*one["resources"], *offered} >= {str(path.relative_to(FOLDER)) for path in PATCHES} | {
        "podmonitor.yaml",
        "redis.yaml",
        "daemonset.yaml",
        "job.yaml",
    }
    for name in [*one["resources"], *offered]:
        assert (FOLDER / name).is_file(), name
    assert {path.name for path in FOLDER.glob("*.yaml")} == {
        *(path.name for path in manifests()),
        *OF_OTHERS,
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
def test_kustomize_puts_them_together(tmp_path: Path) -> None:
    folder = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, folder)
    kustomization = folder / "kustomization.yaml"
    text = kustomization.read_text()
    for commented in ("# patches:", "#   - path"):
        text = text.replace(commented, commented.replace("# ", "", 1).replace("#", "", 1))
    kustomization.write_text(text)
    done = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    made = list(yaml.safe_load_all(done.stdout))
    kinds = {"StatefulSet", "DaemonSet", "Job", "Service", "NetworkPolicy"}
    assert {one["kind"] for one in made} == kinds
    for one in made:
        validate(one)
    (machines,) = [one for one in made if one["kind"] == "DaemonSet"]
    expected = document("daemonset.yaml", "DaemonSet")
    for path in PATCHES:
        expected = merged(expected, yaml.safe_load(path.read_text()))
    spec, wanted = (one["spec"]["template"]["spec"] for one in (machines, expected))
    assert spec["runtimeClassName"] == wanted["runtimeClassName"] == "nvidia"
    (container,), (other,) = spec["containers"], wanted["containers"]
    assert container["securityContext"] == other["securityContext"]
    assert {m["mountPath"] for m in container["volumeMounts"]} == {
        m["mountPath"] for m in other["volumeMounts"]
    }
