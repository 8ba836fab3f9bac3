"""The manifests for Kubernetes as plain data: documents, their pods, what a container is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
FOLDER = DEPLOY / "kubernetes"

Document = dict[str, Any]

OF_OTHERS = ("podmonitor.yaml", "kustomization.yaml")
"""What Kubernetes itself knows no kinds for."""

FIELDS = {
    "metadata.labels['batch.kubernetes.io/job-name']": "train",
    "metadata.labels['batch.kubernetes.io/job-completion-index']": "0",
    "metadata.labels['batch.kubernetes.io/controller-uid']": "0c9d7f3e-8a1b-4c2d-9e3f-112233445566",
    "spec.nodeName": "machine-7",
    "status.podIP": "10.0.0.7",
}
"""What a kubelet would put in the place of a field."""


def documents(name: str) -> list[Document]:
    """Of one file in the folder."""
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def document(name: str, kind: str) -> Document:
    """The only one of its kind in a file."""
    (found,) = [one for one in documents(name) if one["kind"] == kind]
    return found


def manifests() -> list[Path]:
    """The files that are sent to Kubernetes as they are."""
    return sorted(path for path in FOLDER.glob("*.yaml") if path.name not in OF_OTHERS)


@dataclass(frozen=True)
class Pod:
    """What the pods of one document are made from."""

    file: str
    name: str
    template: Document

    @property
    def spec(self) -> Document:
        found: Document = self.template["spec"]
        return found

    @property
    def containers(self) -> list[Document]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def container(self, name: str) -> Document:
        (found,) = [one for one in self.containers if one["name"] == name]
        return found


def pods() -> Iterator[Pod]:
    for path in manifests():
        for one in documents(path.name):
            template = one.get("spec", {}).get("template")
            if template is not None:
                yield Pod(path.name, one["metadata"]["name"], template)


def pod(file: str) -> Pod:
    """The only one in a file."""
    (found,) = [one for one in pods() if one.file == file]
    return found


def environment(container: Document) -> dict[str, str]:
    """What the container's processes find, with samples for what only a kubelet knows."""
    given: dict[str, str] = {}
    for entry in container.get("env", []):
        if "value" in entry:
            given[entry["name"]] = expand(entry["value"], given)
        else:
            given[entry["name"]] = FIELDS[entry["valueFrom"]["fieldRef"]["fieldPath"]]
    return given


def words(container: Document) -> list[str]:
    """The container's command line, with $(NAME) as Kubernetes writes it out."""
    given = environment(container)
    line = [*container.get("command", []), *container.get("args", [])]
    return [expand(word, given) for word in line]


def expand(text: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        text = text.replace(f"$({name})", value)
    return text


def mounts(container: Document) -> dict[str, str]:
    """Volume -> where it is seen."""
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


def merged(below: Any, above: Any) -> Any:
    """A strategic merge patch: maps by key, lists of containers, volumes and mounts by what names
    their entries. (Removals aren't used here.)"""
    if isinstance(below, dict) and isinstance(above, dict):
        both = {key: merged(below[key], above[key]) for key in below.keys() & above.keys()}
        return below | above | both
    if isinstance(below, list) and isinstance(above, list):
        old, new = ({_key(entry): entry for entry in side} for side in (below, above))
        both = {key: merged(old.get(key), entry) for key, entry in new.items()}
        return list((old | both).values())
    return above


def _key(entry: Any) -> Any:
    return entry.get("mountPath", entry.get("name")) if isinstance(entry, dict) else entry
