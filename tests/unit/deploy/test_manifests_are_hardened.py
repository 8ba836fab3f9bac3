"""Pods have no more rights than they need, pinned images, and probes that can't hurt training."""

from __future__ import annotations

import re

import pytest
from tests.unit.deploy.manifests import FOLDER, Pod, document, documents, merged, pod, pods

EVERY_POD = pytest.mark.parametrize("pod", list(pods()), ids=lambda pod: pod.file)


@EVERY_POD
def test_nobody_is_root_and_nobody_has_a_token_of_the_cluster(pod: Pod) -> None:
    assert pod.spec["automountServiceAccountToken"] is False
    context = pod.spec["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] == context["runAsGroup"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in pod.containers:
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert not own.get("privileged")


@EVERY_POD
def test_whatever_is_not_the_users_own_image_has_a_root_that_nobody_writes(pod: Pod) -> None:
    for container in pod.containers:
        expected = None if container["name"] == "train" else True
        assert container["securityContext"].get("readOnlyRootFilesystem") is expected
        if expected and container["name"] == "holdfast":
            paths = {mount["mountPath"] for mount in container["volumeMounts"]}
            assert {"/state", "/tmp"} <= paths, "what it writes needs a volume"


@EVERY_POD
def test_images_are_pinned_and_resources_are_asked_for(pod: Pod) -> None:
    for container in pod.containers:
        assert re.fullmatch(r"[a-z0-9./-]+:[0-9][\w.-]*", container["image"])
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()


def test_memory_is_limited_where_it_does_not_grow_with_the_model() -> None:
    """Slots and copies are shared memory, which counts as that of who touches it first."""
    limited = {
        (one.file, container["name"]): "memory" in container["resources"].get("limits", {})
        for one in pods()
        for container in one.containers
    }
    assert [where for where, is_limited in limited.items() if not is_limited] == [
        ("sidecar.yaml", "holdfast")
    ]


def test_only_a_sidecar_of_its_own_container_is_probed() -> None:
    for one in pods():
        for container in one.containers:
            probes = {name: container[name] for name in container if name.endswith("Probe")}
            if container["name"] == "train":
                assert probes == {}, "who is killed for an unwell sidecar loses the ranks"
            elif container["name"] == "holdfast":
                assert probes.keys() == {"livenessProbe", "readinessProbe"}
                for probe in probes.values():
                    assert probe["httpGet"] == {"path": "/healthz", "port": "metrics"}
                    # The sidecar calls itself unwell after ten seconds; a busy node gets a minute.
                    assert probe["periodSeconds"] * probe["failureThreshold"] >= 60


def test_only_the_daemonset_sees_the_machine_and_changes_nothing_there() -> None:
    for one in pods():
        paths = {
            volume["name"]: volume["hostPath"]["path"]
            for volume in one.spec["volumes"]
            if "hostPath" in volume
        }
        assert paths == ({"proc": "/proc", "sys": "/sys"} if one.file == "daemonset.yaml" else {})
        for container in one.containers:
            for mount in container["volumeMounts"]:
                assert mount.get("readOnly") or mount["name"] not in paths
        for shared in ("hostNetwork", "hostPID", "hostIPC"):
            assert shared not in one.spec


def test_the_daemonset_runs_everywhere_and_looks_where_the_host_is_mounted() -> None:
    one = pod("daemonset.yaml")
    assert one.spec["tolerations"] == [{"operator": "Exists"}]
    (container,) = one.containers
    assert "--set=paths.machine_root=/host" in container["args"]
    assert "--mode=observe" in container["args"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert (mounted["proc"], mounted["sys"]) == ("/host/proc", "/host/sys")


def test_the_kernel_log_costs_rights_that_only_its_patch_asks_for() -> None:
    (patch,) = documents("patches/kernel-log.yaml")
    patched = merged(document("daemonset.yaml", "DaemonSet"), patch)
    (container,) = patched["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["privileged"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    (log,) = [m for m in container["volumeMounts"] if m["mountPath"] == "/host/dev/kmsg"]
    assert log["readOnly"] is True
    assert "privileged" not in (FOLDER / "daemonset.yaml").read_text().split("\nspec:")[1]


def test_the_network_lets_in_who_must_call_and_nobody_else() -> None:
    redis, sidecars = documents("networkpolicy.yaml")
    ours = {"podSelector": {"matchExpressions": [{"key": "holdfast", "operator": "Exists"}]}}
    assert redis["spec"]["podSelector"]["matchLabels"] == {"app": "redis"}
    assert redis["spec"]["ingress"] == [{"from": [ours], "ports": [{"port": "redis"}]}]
    assert sidecars["spec"]["podSelector"] == ours["podSelector"]
    among_themselves, prometheus = sidecars["spec"]["ingress"]
    assert among_themselves == {"from": [ours]}, "ranks choose their ports themselves"
    assert prometheus["ports"] == [{"port": "metrics"}]
    for one in pods():
        labels = one.template["metadata"]["labels"]
        assert ("holdfast" in labels) != (labels["app"] == "redis"), one.file
        named = [p["name"] for c in one.containers for p in c.get("ports", [])]
        assert named == (["metrics"] if "holdfast" in labels else ["redis"])
