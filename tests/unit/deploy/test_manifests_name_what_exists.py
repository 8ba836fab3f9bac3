"""Commands, options, settings, variables, volumes and ports in the manifests are there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.deploy.known_words import known_variables, parse_command, parse_run
from tests.unit.deploy.manifests import (
    FOLDER,
    Pod,
    document,
    documents,
    environment,
    manifests,
    mounts,
    pods,
    words,
)
from torch.distributed.run import get_args_parser

from holdfast_sidecar.config.addresses import parse_listen
from holdfast_sidecar.config.loading import load

PORT = 9750

EVERY_POD = pytest.mark.parametrize("pod", list(pods()), ids=lambda pod: pod.file)


def listens_at(container: dict[str, Any], policy: Path | None) -> str:
    """Where a container's command of ours serves its metrics; empty: it is none of ours."""
    line, given = words(container), environment(container)
    if line[:2] == ["holdfast", "run"]:
        return parse_run(line, given)[1].settings.sidecar.listen
    if line[:1] == ["holdfast"]:
        options, effective = parse_command(line, given, str(policy) if policy else None)
        return options.get("listen") or effective.settings.sidecar.listen
    return ""


def settings_file(pod: Pod, folder: Path) -> Path | None:
    """The holdfast.toml that the pod's file brings along."""
    for one in documents(pod.file):
        if one["kind"] == "ConfigMap":
            path = folder / "holdfast.toml"
            path.write_text(one["data"][path.name])
            return path
    return None


@EVERY_POD
def test_every_command_is_one_that_holdfast_takes_and_listens_where_the_pod_says(
    pod: Pod, tmp_path: Path
) -> None:
    policy = settings_file(pod, tmp_path)
    for container in pod.containers:
        assert not re.search(r"\$\([A-Z]", " ".join(words(container))), words(container)
        listen = listens_at(container, policy)
        ports = [p["containerPort"] for p in container.get("ports", []) if p["name"] == "metrics"]
        assert ports == ([parse_listen(listen)[1]] if listen else []), container["name"]
        assert set(ports) <= {PORT}


def test_torchrun_takes_its_command_and_meets_on_the_server_of_the_settings(
    tmp_path: Path,
) -> None:
    (pod,) = [one for one in pods() if one.file == "sidecar.yaml"]
    line = words(pod.container("train"))
    assert line[0] == "torchrun"
    given = get_args_parser().parse_args(line[1:])
    settings = load(settings_file(pod, tmp_path)).settings
    assert given.rdzv_backend == "holdfast"
    assert given.rdzv_endpoint == settings.redis.url
    assert given.max_restarts >= 1
    options, _ = parse_command(words(pod.container("holdfast")), {}, None)
    assert options["job"] == given.rdzv_id
    assert f"node={options['node']}" in given.rdzv_conf.split(",")
    spares = int(dict(word.split("=") for word in given.rdzv_conf.split(","))["spares"])
    job = document("sidecar.yaml", "Job")["spec"]
    assert int(given.nnodes) + spares == job["completions"] == job["parallelism"]


@EVERY_POD
def test_every_variable_of_ours_is_known(pod: Pod) -> None:
    for container in pod.containers:
        given = {name for name in environment(container) if name.startswith("HOLDFAST_")}
        assert given <= known_variables()


@EVERY_POD
def test_every_mount_has_its_volume_and_every_volume_a_mount(pod: Pod) -> None:
    claimed = [
        claim["metadata"]["name"]
        for one in documents(pod.file)
        for claim in one.get("spec", {}).get("volumeClaimTemplates", [])
    ]
    volumes = {volume["name"] for volume in pod.spec["volumes"]} | set(claimed)
    mounted = {name for container in pod.containers for name in mounts(container)}
    assert mounted == volumes


def test_the_secret_has_the_keys_that_its_readers_ask_for() -> None:
    text = (FOLDER / "redis.yaml").read_text()
    made = set(re.findall(r"--from-file=([\w.]+)", text))
    asked = {
        item["key"]
        for one in pods()
        for volume in one.spec["volumes"]
        if volume.get("secret", {}).get("secretName") == "redis"
        for item in volume["secret"]["items"]
    }
    assert asked == made == {"password", "redis.conf"}
    assert "--from-literal" not in text, "a command line is seen by everybody on the machine"


def test_every_server_that_is_named_is_a_service_that_is_there() -> None:
    services = {
        (one["metadata"]["name"], port["port"])
        for path in manifests()
        for one in documents(path.name)
        if one["kind"] == "Service"
        for port in one["spec"]["ports"]
    }
    named = {
        (host, int(port))
        for path in manifests()
        for host, port in re.findall(r"redis://([\w.-]+):(\d+)", path.read_text())
    }
    assert named == {("redis", 6379)}
    assert named <= services


def test_the_operator_finds_every_sidecar_under_the_names_that_it_tells_itself() -> None:
    monitors = documents("podmonitor.yaml")
    assert {(one["apiVersion"], one["kind"]) for one in monitors} == {
        ("monitoring.coreos.com/v1", "PodMonitor")
    }
    chosen = {one["spec"]["selector"]["matchLabels"]["holdfast"]: one for one in monitors}
    labelled = {one.template["metadata"]["labels"].get("holdfast") for one in pods()} - {None}
    assert set(chosen) == labelled == {"job", "machines"}
    for one in monitors:
        (endpoint,) = one["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["honorLabels"]) == ("metrics", True)
        written = {rule["targetLabel"]: rule for rule in endpoint["relabelings"]}
        assert written.keys() == {"job", "run", "node"}
        assert written["job"]["replacement"] == "holdfast-sidecar"
    rules = chosen["job"]["spec"]["podMetricsEndpoints"][0]["relabelings"]
    (of_node,) = [rule for rule in rules if rule["targetLabel"] == "node"]
    for pod in pods():
        if pod.template["metadata"]["labels"].get("holdfast") == "job":
            line = " ".join(words(pod.containers[0]))
            assert "--node=" + of_node["replacement"].replace("$1", "0") in line, pod.file


@EVERY_POD
def test_what_finds_pods_by_annotations_finds_the_port(pod: Pod) -> None:
    has_metrics = any(
        port.get("name") == "metrics" for c in pod.containers for port in c.get("ports", [])
    )
    wanted = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)}
    assert pod.template["metadata"].get("annotations", {}) == (wanted if has_metrics else {})


def test_yaml_is_read_once_and_alike() -> None:
    """An anchor that stands for something else, or a key twice, would be lost without a word."""
    for path in [*manifests(), *(FOLDER / "patches").glob("*.yaml")]:
        keys = _repeated(yaml.compose_all(path.read_text(), Loader=yaml.SafeLoader))
        assert keys == [], path.name


def _repeated(nodes: Any) -> list[str]:
    found: list[str] = []
    for node in nodes:
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            found += sorted({key for key in keys if keys.count(key) > 1})
            found += _repeated(value for _, value in node.value)
        elif isinstance(node, yaml.SequenceNode):
            found += _repeated(node.value)
    return found
