"""The door to a real Grafana: grafana-client's calls, with every refusal turned into one line.

The package (the optional extra `grafana`) is imported when a door is opened, and by nothing else:
its newer releases change the environment that they are installed into.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.grafana.address import Address
from holdfast_sidecar.grafana.deadline import Deadline, OutOfTime
from holdfast_sidecar.grafana.refusals import late, odd, refused, silent
from holdfast_sidecar.grafana.server import Folder, Json, Refused, Source, Standing

TIMEOUT_S = 15.0
"""Saving a dashboard on a busy Grafana takes a second or two."""

MOST_ANNOTATIONS = 5000
"""Of one run; Grafana tells of 100 unless asked for more."""


DEEPEST = 8
"""More exceptions than these are not wrapped in each other on the way up from a socket."""


def open_client(address: Address, token: str, limit_s: float) -> GrafanaClient:
    """limit_s: for all that is asked of it. BadInput where the package is missing."""
    try:
        package = importlib.import_module("grafana_client")
        errors = importlib.import_module("grafana_client.client")
        requests = importlib.import_module("requests")
    except ImportError:
        raise BadInput(
            "this needs the package grafana-client: pip install 'holdfast[grafana]' (not beside "
            "your training: any machine that reaches Grafana will do), or use holdfast dashboards "
            "export and import the files"
        ) from None
    door = package.GrafanaApi(
        auth=errors.TokenAuth(token),
        host=address.host,
        port=address.port,
        url_path_prefix=address.prefix,
        protocol=address.scheme,
        timeout=TIMEOUT_S,
    )
    silences = (requests.ConnectionError, requests.Timeout)
    # What a server that is no Grafana makes of it: no JSON, or JSON of another shape.
    oddities = (requests.RequestException, ValueError, KeyError, TypeError, AttributeError)
    deadline = Deadline(limit_s)
    return GrafanaClient(door, address.url, deadline, errors.GrafanaException, silences, oddities)


class GrafanaClient:
    """DashboardServer and AnnotationServer over HTTP."""

    def __init__(
        self,
        door: Any,
        url: str,
        deadline: Deadline,
        refusal: type[Exception],
        silences: tuple[type[Exception], ...],
        oddities: tuple[type[Exception], ...],
    ) -> None:
        self._door = door
        self._url = url
        self._deadline = deadline
        self._refusal = refusal
        self._silences = silences
        self._oddities = oddities

    def version(self) -> str:
        """Its version; the first thing that is asked."""
        with self._asking("tell its version"):
            health = self._door.health.check()
            return str(dict(health).get("version") or "")

    def sources(self) -> list[Source] | None:
        """All data sources; None where the token may not list them."""
        try:
            with self._asking("list its data sources"):
                found = self._door.datasource.list_datasources()
                return [
                    Source(one["uid"], one["name"], one["type"], bool(one.get("isDefault")))
                    for one in found
                ]
        except Refused as error:
            if error.status == 403:
                return None
            raise

    def folder(self, uid: str) -> Folder | None:
        """The folder of this uid."""
        found = self._found(f"show the folder {uid}", lambda: self._door.folder.get_folder(uid))
        return None if found is None else Folder(found["uid"], found["title"])

    def create_folder(self, folder: Folder) -> None:
        """A new one, at the top."""
        with self._asking(f"make the folder {folder.title}"):
            self._door.folder.create_folder(folder.title, folder.uid)

    def remove_folder(self, uid: str) -> None:
        """With what is in it."""
        with self._asking(f"remove the folder {uid}"):
            self._door.folder.delete_folder(uid)

    def dashboard(self, uid: str) -> Standing | None:
        """The dashboard of this uid."""
        what = f"show the dashboard {uid}"
        found = self._found(what, lambda: self._door.dashboard.get_dashboard(uid))
        if found is None:
            return None
        with self._asking(what):
            meta = found["meta"]
            return Standing(
                found["dashboard"],
                meta.get("folderUid") or "",
                bool(meta.get("canSave", True)),
                bool(meta.get("provisioned", False)),
            )

    def save(self, model: Json, folder_uid: str, message: str, overwrite: bool) -> None:
        """Create or change it."""
        asked = {
            "dashboard": model,
            "folderUid": folder_uid,
            "message": message,
            "overwrite": overwrite,
        }
        with self._asking(f"save the dashboard {model['uid']}"):
            self._door.dashboard.update_dashboard(asked)

    def remove_dashboard(self, uid: str) -> None:
        """Take it away."""
        with self._asking(f"remove the dashboard {uid}"):
            self._door.dashboard.delete_dashboard(uid)

    def annotations(self, tags: Sequence[str]) -> list[Json]:
        """Those that have all of these tags."""
        with self._asking("list its annotations"):
            found = self._door.annotations.get_annotation(
                tags=list(tags), ann_type="annotation", limit=MOST_ANNOTATIONS
            )
            return [dict(one) for one in found]

    def add(self, mark: Json) -> None:
        """A new one, of no single dashboard."""
        with self._asking("add an annotation"):
            self._door.annotations.add_annotation(
                time_from=mark["time"],
                time_to=mark["timeEnd"],
                tags=mark["tags"],
                text=mark["text"],
            )

    def change(self, identifier: int, mark: Json) -> None:
        """The same for one that is there."""
        with self._asking("change an annotation"):
            self._door.annotations.update_annotation(
                identifier,
                time_from=mark["time"],
                time_to=mark["timeEnd"],
                tags=mark["tags"],
                text=mark["text"],
            )

    def _found(self, what: str, ask: Any) -> Any:
        """The answer; None for 404."""
        try:
            with self._asking(what):
                return dict(ask())
        except Refused as error:
            if error.status == 404:
                return None
            raise

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        try:
            with self._deadline.over_request():
                yield
        except OutOfTime:
            raise late(what, self._url) from None
        except self._refusal as error:
            status = int(getattr(error, "status_code", 0) or 0)
            if status == 0:
                raise silent(what, self._url, str(error)) from None
            raise refused(status, what, self._url, _said(error)) from None
        except self._silences as error:
            raise silent(what, self._url, _reason(error)) from None
        except self._oddities:
            raise odd(what, self._url) from None


def _said(error: Exception) -> str:
    """What Grafana gave as its reason; of a 412 also which kind it is."""
    answer = getattr(error, "response", None)
    if isinstance(answer, dict):
        return f"{answer.get('status', '')} {answer.get('message', '')}"
    return str(getattr(error, "message", error))


def _reason(error: Exception) -> str:
    """Of a connection that failed the innermost reason; libraries wrap it in addresses."""
    innermost: BaseException = error
    for _ in range(DEEPEST):
        innermost = innermost.__cause__ or innermost.__context__ or innermost
    return str(innermost) or type(error).__name__
