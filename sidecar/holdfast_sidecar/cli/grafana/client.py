"""The door to a real Grafana: grafana-client's calls, with every refusal turned into one line.

The package (the optional extra `grafana`) is imported when a door is opened, and by nothing else:
its newer releases change the environment that they are installed into.
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from holdfast_sidecar.cli.grafana.api import DataSource, Folder, GrafanaError, Json, StoredDashboard
from holdfast_sidecar.config.settings import BadInput

# A Grafana's refusals in one line each: what was asked, why not, what helps. Pure.


def refused(status: int, what: str, url: str, said: str = "") -> GrafanaError:
    """`what` was asked, such as `save the dashboard holdfast-run`; `said` is Grafana's answer."""
    return GrafanaError(status, f"Grafana at {url} {_words(status, what, ' '.join(said.split()))}")


def silent(what: str, url: str, reason: str) -> GrafanaError:
    """It can't be reached."""
    return GrafanaError(
        0,
        f"Grafana at {url} does not answer when asked to {what} ({' '.join(reason.split())}): is "
        "the address right, and does it run?",
    )


def late(what: str, url: str) -> GrafanaError:
    """It answers, and so slowly that the time was over before it had."""
    return GrafanaError(
        0,
        f"Grafana at {url} answers too slowly: the time was over when it was asked to {what}; try "
        "again when it, or what stands before it, is less busy",
    )


def odd(what: str, url: str) -> GrafanaError:
    """Something answered, and not as a Grafana does: a login page, a proxy, another program."""
    return GrafanaError(
        0,
        f"what answers at {url} does not answer as Grafana does when asked to {what}: is the "
        "address right, and does a login page or a proxy stand before it?",
    )


def _words(status: int, what: str, said: str) -> str:
    if status == 401:
        return (
            "does not know the token (401): make a service account with the role Editor and give "
            "its token in --token-file or HOLDFAST_GRAFANA_TOKEN"
        )
    if status == 403:
        return (
            f"does not let this token {what} (403): it needs the role Editor, and Edit on the "
            "folder"
        )
    if status == 404:
        return (
            f"answers 404 when asked to {what}: is the address complete, with the sub-path that "
            "Grafana serves below?"
        )
    if status == 412 and "name" in said:
        return f"has another dashboard of that title there (412), so it won't {what}: rename that"
    if status == 412:
        return f"won't {what} (412): somebody changed it a moment ago; look at it, then push again"
    if 500 <= status < 600:
        return f"failed to {what} ({status}: {said or 'no reason given'}): see its log"
    return f"refuses to {what} ({status}: {said or 'no reason given'})"


# How long a Grafana is waited for, all requests together.
#
# The limits of an HTTP library count from byte to byte: an answer that drips has none.

AFTERWARDS_S = 2.0
"""What a request gets when the time is over: what was pushed by then is put back, and saving a
dashboard on a busy Grafana takes a second or two."""


class OutOfTime(Exception):
    """The request that was under way was given up."""


class Deadline:
    """Counts what requests take; what is decided between them takes nothing."""

    def __init__(self, limit_s: float) -> None:
        self._left_s = limit_s

    @contextmanager
    def over_request(self) -> Iterator[None]:
        """Ends what is done within by OutOfTime, in whatever call it stands; in a program's first
        thread alone, where commands run and signals arrive."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        given_s = self._left_s or AFTERWARDS_S
        handler = signal.signal(signal.SIGALRM, _give_up)
        before_s, _ = signal.setitimer(signal.ITIMER_REAL, given_s)
        try:
            yield
        finally:
            unused_s, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            self._left_s = unused_s if self._left_s else 0.0
            if before_s:  # somebody else's alarm
                used_s = given_s - unused_s
                signal.setitimer(signal.ITIMER_REAL, max(before_s - used_s, 0.001))


def _give_up(*_: object) -> None:
    raise OutOfTime


# Where a Grafana is, from the URL that a person gave. Pure.


@dataclass(frozen=True)
class GrafanaAddress:
    """A Grafana's, without any secret."""

    scheme: str
    host: str
    port: int | None
    prefix: str
    """Below which it serves, with a slash at its end; empty: at the top."""

    @property
    def url(self) -> str:
        """For people."""
        port = "" if self.port is None else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}/{self.prefix}".rstrip("/")


def parse_address(url: str) -> GrafanaAddress:
    """BadInput says what is wrong with it, without repeating a password that it carries."""
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput("--grafana is no address: give one such as https://grafana:3000") from None
    if parts.username or parts.password:
        raise BadInput(
            "a user and password in --grafana are visible to everyone: give a service account's "
            "token in --token-file or HOLDFAST_GRAFANA_TOKEN"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise BadInput(
            f"--grafana {url!r} is no address: give one such as https://grafana:3000, with the "
            "sub-path if it has one"
        )
    path = parts.path.strip("/")
    shown = f"[{host}]" if ":" in host else host
    return GrafanaAddress(parts.scheme, shown, port, f"{path}/" if path else "")


TIMEOUT_S = 15.0
"""Saving a dashboard on a busy Grafana takes a second or two."""

MOST_ANNOTATIONS = 5000
"""Of one run; Grafana tells of 100 unless asked for more."""


DEEPEST = 8
"""More exceptions than these are not wrapped in each other on the way up from a socket."""


def open_client(address: GrafanaAddress, token: str, limit_s: float) -> GrafanaClient:
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

    def sources(self) -> list[DataSource] | None:
        """All data sources; None where the token may not list them."""
        try:
            with self._asking("list its data sources"):
                found = self._door.datasource.list_datasources()
                return [
                    DataSource(one["uid"], one["name"], one["type"], bool(one.get("isDefault")))
                    for one in found
                ]
        except GrafanaError as error:
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

    def dashboard(self, uid: str) -> StoredDashboard | None:
        """The dashboard of this uid."""
        what = f"show the dashboard {uid}"
        found = self._found(what, lambda: self._door.dashboard.get_dashboard(uid))
        if found is None:
            return None
        with self._asking(what):
            meta = found["meta"]
            return StoredDashboard(
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
        except GrafanaError as error:
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
