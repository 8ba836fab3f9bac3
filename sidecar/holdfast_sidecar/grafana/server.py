"""What is asked of a Grafana, and what it says: the door that the real client and a test's twin
have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast_sidecar.config.settings import BadInput

Json = dict[str, Any]


class Refused(BadInput):
    """Grafana said no, or nothing; one line that says what was asked, why not, and what helps."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        """HTTP's; 0: there was no answer."""


@dataclass(frozen=True)
class Source:
    """A data source."""

    uid: str
    name: str
    kind: str
    is_default: bool = False


@dataclass(frozen=True)
class Folder:
    """Where dashboards lie."""

    uid: str
    title: str


@dataclass(frozen=True)
class Standing:
    """A dashboard as Grafana has it."""

    model: Json
    folder_uid: str
    """Empty: at the top, in no folder."""
    may_save: bool = True
    is_provisioned: bool = False
    """It comes from a file of that Grafana's, and can't be changed from outside."""

    @property
    def version(self) -> int:
        """How often it was saved."""
        return int(self.model.get("version", 0))


class DashboardServer(Protocol):
    """A Grafana's dashboards. Everything raises Refused; None is what isn't there."""

    def version(self) -> str:
        """Such as `11.2.0`; empty where it isn't told."""
        ...

    def sources(self) -> list[Source] | None:
        """All data sources; None where the token may not list them."""
        ...

    def folder(self, uid: str) -> Folder | None:
        """The folder of this uid."""
        ...

    def create_folder(self, folder: Folder) -> None:
        """A new one, at the top."""
        ...

    def remove_folder(self, uid: str) -> None:
        """With what is in it."""
        ...

    def dashboard(self, uid: str) -> Standing | None:
        """The dashboard of this uid."""
        ...

    def save(self, model: Json, folder_uid: str, message: str, overwrite: bool) -> None:
        """Create or change it; without `overwrite` only if nobody saved it since it was read."""
        ...

    def remove_dashboard(self, uid: str) -> None:
        """Take it away."""
        ...


class AnnotationServer(Protocol):
    """A Grafana's annotations. Everything raises Refused."""

    def annotations(self, tags: Sequence[str]) -> list[Json]:
        """Those that have all of these tags, as Grafana tells them."""
        ...

    def add(self, mark: Json) -> None:
        """A new one: time, timeEnd (ms), tags, text."""
        ...

    def change(self, identifier: int, mark: Json) -> None:
        """The same for one that is there."""
        ...
