"""The stack for `docker compose`: of the shape that the Compose Specification has, on loopback, and
made of files that are there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from tests.unit.deploy.manifests import DEPLOY, pod

FILE = DEPLOY / "compose.yaml"

PORT = 9750

TEXT = {"type": "string"}
WORDS = {"type": "array", "items": TEXT}

SERVICE = {
    "image": {"type": "string", "pattern": r"^docker\.io/[a-z/]+:v?\d+\.\d+\.\d+$"},
    "command": WORDS,
    "network_mode": TEXT,
    "secrets": WORDS,
    "volumes": WORDS,
    "restart": {"enum": ["no", "always", "on-failure", "unless-stopped"]},
    "environment": {"type": "object", "additionalProperties": TEXT},
    "depends_on": WORDS,
}

SHAPE = {
    "type": "object",
    "required": ["services"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]*$"},
        "services": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["image"],
                "additionalProperties": False,
                "properties": SERVICE,
            },
        },
        "volumes": {"type": "object", "additionalProperties": {"type": ["object", "null"]}},
        "secrets": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["file"],
                "additionalProperties": False,
                "properties": {"file": TEXT},
            },
        },
    },
}
"""The part of the Compose Specification (compose-spec.io) that is used; no program that knows all
of it can be installed here. Images are pinned besides, and numbers written as text, as YAML would
have `yes` and 3000 be something else."""


def stack() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


SERVICES = stack()["services"]
EVERY_SERVICE = pytest.mark.parametrize("name", SERVICES)


def bound(service: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Source, target and mode of each volume."""
    parts = [volume.split(":") for volume in service.get("volumes", [])]
    return [(one[0], one[1], one[2] if len(one) > 2 else "rw") for one in parts]


def is_there(path: Path) -> bool:
    """Or is in a folder that holds nothing yet."""
    for folder in (DEPLOY.parent / "alerts", DEPLOY.parent / "dashboards"):
        if Path(os.path.normpath(path)).is_relative_to(folder) and _is_empty(folder):
            return True
    return path.exists()


def _is_empty(folder: Path) -> bool:
    return {entry.name for entry in folder.iterdir()} <= {".gitkeep"}


def test_it_has_the_shape_of_a_compose_file() -> None:
    jsonschema.validate(stack(), SHAPE)


def test_a_misspelled_word_is_noticed() -> None:
    wrong = stack()
    wrong["services"]["redis"]["volume"] = wrong["services"]["redis"].pop("volumes")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, SHAPE)


@EVERY_SERVICE
def test_what_is_mounted_from_the_repository_is_there_and_only_read(name: str) -> None:
    for source, _, mode in bound(SERVICES[name]):
        if source.startswith("."):
            assert mode == "ro", source
            assert is_there(DEPLOY / source) or source.startswith("./secrets/"), source
        else:
            assert source in stack()["volumes"]


@EVERY_SERVICE
def test_what_a_command_names_is_mounted(name: str) -> None:
    service = SERVICES[name]
    places = [Path(target) for _, target, _ in bound(service)]
    places += [Path("/run/secrets") / secret for secret in service.get("secrets", [])]
    given = [*service.get("command", []), *service.get("environment", {}).values()]
    for path in re.findall(r"(?<![:/\w])/\w[\w./-]+", "\n".join(given)):
        assert any(Path(path).is_relative_to(place) for place in places), path


def test_the_configurations_that_are_named_are_there() -> None:
    """Where in the container, and so where in the repository."""
    for service in SERVICES.values():
        for word in service.get("command", []):
            if word.startswith("--config.file="):
                inside = Path(word.partition("=")[2])
                (source, target) = next(
                    (s, t) for s, t, _ in bound(service) if inside.is_relative_to(t)
                )
                assert is_there(DEPLOY / source / inside.relative_to(target)), inside


@EVERY_SERVICE
def test_everything_listens_on_loopback(name: str) -> None:
    service = SERVICES[name]
    words, environment = service.get("command", []), service.get("environment", {})
    assert service["network_mode"] == "host", "sidecars listen on this machine's loopback"
    listening = [word.partition("=")[2] for word in words if word.startswith("--web.listen-")]
    listening += [words[words.index("--bind") + 1]] if "--bind" in words else []
    listening += [environment["GF_SERVER_HTTP_ADDR"]] if name == "grafana" else []
    assert [one.partition(":")[0] for one in listening] == ["127.0.0.1"]
    if name == "alertmanager":
        assert "--cluster.listen-address=" in words, "it would listen everywhere else"


def test_the_server_is_kept_as_in_kubernetes() -> None:
    here = SERVICES["redis"]["command"]
    there = pod("redis.yaml").container("redis")
    assert SERVICES["redis"]["image"] == there["image"]
    for option in ("--appendonly", "--maxmemory", "--maxmemory-policy"):
        values = [words[words.index(option) + 1] for words in (here, there["args"])]
        assert values[0] == values[1]


def test_secrets_come_from_files_that_git_ignores_and_that_its_head_makes() -> None:
    head = FILE.read_text().split("\nname:")[0]
    for secret in stack()["secrets"].values():
        name = secret["file"].removeprefix("./secrets/")
        assert "/" not in name
        assert re.search(rf">{re.escape(name)}$", head, re.MULTILINE), name
    assert "/deploy/secrets/" in (DEPLOY.parent / ".gitignore").read_text().splitlines()
    assert "PASSWORD:" not in FILE.read_text()


def prometheus() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose" / "prometheus.yml").read_text())
    return found


def test_prometheus_asks_where_all_examples_serve_and_calls_the_alertmanager_here() -> None:
    (jobs,) = prometheus()["scrape_configs"]
    assert (jobs["job_name"], jobs["honor_labels"]) == ("holdfast-sidecar", True)
    assert [one["url"] for one in jobs["http_sd_configs"]] == [f"http://127.0.0.1:{PORT}/sd"]
    (alertmanager,) = prometheus()["alerting"]["alertmanagers"]
    (target,) = alertmanager["static_configs"][0]["targets"]
    assert f"--web.listen-address={target}" in SERVICES["alertmanager"]["command"]
    (url,) = [v for v in SERVICES["grafana"]["environment"].values() if v.startswith("http:")]
    listen = f"--web.listen-address={url.removeprefix('http://')}"
    assert listen in SERVICES["prometheus"]["command"]


def test_the_rules_are_found_from_where_prometheus_reads_its_configuration() -> None:
    (pattern,) = prometheus()["rule_files"]
    inside = Path("/holdfast/deploy/compose") / pattern
    mounted = {target: source for source, target, _ in bound(SERVICES["prometheus"])}
    assert os.path.normpath(inside.parent) == "/holdfast/alerts/rules"
    assert mounted["/holdfast/alerts"] == "../alerts"
    folder = DEPLOY.parent / "alerts"
    assert list((folder / "rules").glob(Path(pattern).name)) or _is_empty(folder)
