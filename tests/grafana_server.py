"""A small Grafana for tests: real HTTP, the routes that Holdfast uses, and a memory.

Each request is held against what Grafana's API takes; what does not fit is answered 400 and
remembered in `broken`, so that a test can't pass by asking nonsense. No Grafana code is in it.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
Answer = tuple[int, Any]

TOKEN = "glsa_for_tests_only"
PROMETHEUS = {"id": 1, "uid": "prom", "name": "Prometheus", "type": "prometheus", "isDefault": True}


def said(status: int, message: str, kind: str = "") -> Answer:
    return status, {"message": message} | ({"status": kind} if kind else {})


@dataclass
class FakeGrafana:
    """What it has, how it behaves, and what was asked of it."""

    version: str = "11.2.0"
    prefix: str = ""
    token: str = TOKEN
    may_list_sources: bool = True
    migrates: bool = False
    """Brings what it reads up to its own schema, as Grafana 13 does."""
    sources: list[Json] = field(default_factory=lambda: [dict(PROMETHEUS)])
    folders: dict[str, str] = field(default_factory=dict)
    boards: dict[str, Json] = field(default_factory=dict)
    """uid -> {model, folder, provisioned, may_save}."""
    marks: dict[int, Json] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    failures: dict[str, list[int]] = field(default_factory=dict)
    """`POST /api/dashboards/db` -> what to answer one after the other; 0: as usual."""
    url: str = ""

    @property
    def changes(self) -> list[str]:
        """Requests that change something."""
        return [one for one in self.asked if not one.startswith("GET")]

    def answer(self, method: str, target: str, token: str, body: Any) -> Answer:
        place = urlsplit(target)
        if not place.path.startswith(f"{self.prefix}/api/"):
            return 404, "<html>not here</html>"
        path = place.path[len(self.prefix) :]
        self.asked.append(f"{method} {path}")
        if (forced := self._forced(f"{method} {path}")) is not None:
            return forced
        if path != "/api/health" and token != f"Bearer {self.token}":
            return said(401, "Invalid API key")
        for known_method, beginning, handle in self._routes():
            if method == known_method and path.startswith(beginning):
                return handle(path[len(beginning) :], parse_qs(place.query), body)
        return self._breach(f"no route {method} {path}")

    def _routes(self) -> Iterator[tuple[str, str, Callable[[str, Json, Any], Answer]]]:
        yield "GET", "/api/health", self._health
        yield "GET", "/api/datasources", self._sources
        yield "GET", "/api/folders/", self._folder
        yield "POST", "/api/folders", self._make_folder
        yield "DELETE", "/api/folders/", self._drop_folder
        yield "GET", "/api/dashboards/uid/", self._board
        yield "POST", "/api/dashboards/db", self._save
        yield "DELETE", "/api/dashboards/uid/", self._drop
        yield "GET", "/api/annotations", self._list_marks
        yield "POST", "/api/annotations", self._add_mark
        yield "PUT", "/api/annotations/", self._change_mark

    def _forced(self, request: str) -> Answer | None:
        due = self.failures.get(request, [])
        status = due.pop(0) if due else 0
        return said(status, "as the test wants") if status else None

    def _breach(self, words: str) -> Answer:
        self.broken.append(words)
        return said(400, words)

    def _health(self, rest: str, query: Json, body: Any) -> Answer:
        told = {"database": "ok", "commit": "abc"}
        return 200, told | ({"version": self.version} if self.version else {})

    def _sources(self, rest: str, query: Json, body: Any) -> Answer:
        if not self.may_list_sources:
            return said(403, "You'll need additional permissions: datasources:read")
        return 200, self.sources

    def _folder(self, rest: str, query: Json, body: Any) -> Answer:
        if rest not in self.folders:
            return said(404, "folder not found", "not-found")
        return 200, {"id": 5, "uid": rest, "title": self.folders[rest]}

    def _make_folder(self, rest: str, query: Json, body: Any) -> Answer:
        if not isinstance(body, dict) or set(body) - {"uid", "title", "parentUid"}:
            return self._breach(f"a folder is made of uid and title, not of {body}")
        if not body.get("title") or not _is_uid(body.get("uid")):
            return self._breach(f"a folder's title or uid: {body}")
        if body["uid"] in self.folders:
            return said(412, "The folder has been changed by someone else", "version-mismatch")
        self.folders[body["uid"]] = body["title"]
        return 200, {"id": 5, "uid": body["uid"], "title": body["title"]}

    def _drop_folder(self, rest: str, query: Json, body: Any) -> Answer:
        if self.folders.pop(rest, None) is None:
            return said(404, "folder not found", "not-found")
        return 200, {"message": "Folder deleted"}

    def _board(self, rest: str, query: Json, body: Any) -> Answer:
        kept = self.boards.get(rest)
        if kept is None:
            return said(404, "Dashboard not found", "not-found")
        meta = {
            "canSave": kept.get("may_save", True),
            "folderUid": kept["folder"],
            "provisioned": kept.get("provisioned", False),
            "version": kept["model"]["version"],
        }
        return 200, {"meta": meta, "dashboard": self._as_read(kept["model"])}

    def _as_read(self, model: Json) -> Json:
        read = copy.deepcopy(model)
        if self.migrates:
            read["schemaVersion"] = 42
            for panel in read["panels"]:
                panel["pluginVersion"] = self.version
                if not panel.get("transformations"):
                    panel.pop("transformations", None)
        return read

    def _save(self, rest: str, query: Json, body: Any) -> Answer:
        if (words := _unfit(body)) is not None:
            return self._breach(words)
        model, folder = body["dashboard"], body["folderUid"]
        if folder and folder not in self.folders:
            return said(400, "folder not found", "not-found")
        kept = self.boards.get(model["uid"])
        if kept is not None and kept.get("provisioned"):
            return said(400, "Cannot save provisioned dashboard")
        if (
            kept is not None
            and not body["overwrite"]
            and model["version"] != kept["model"]["version"]
        ):
            return said(412, "The dashboard has been changed by someone else", "version-mismatch")
        if not body["overwrite"] and self._is_taken(model, folder):
            return said(412, "A dashboard with the same name already exists", "name-exists")
        version = 1 if kept is None else kept["model"]["version"] + 1
        saved = copy.deepcopy(model) | {"version": version, "id": len(self.boards) + 1}
        self.boards[model["uid"]] = {"model": saved, "folder": folder}
        return 200, {
            "uid": model["uid"],
            "version": version,
            "status": "success",
            "folderUid": folder,
        }

    def _is_taken(self, model: Json, folder: str) -> bool:
        return any(
            kept["model"]["title"] == model["title"] and kept["folder"] == folder
            for uid, kept in self.boards.items()
            if uid != model["uid"]
        )

    def _drop(self, rest: str, query: Json, body: Any) -> Answer:
        if self.boards.pop(rest, None) is None:
            return said(404, "Dashboard not found", "not-found")
        return 200, {"message": "Dashboard deleted"}

    def _list_marks(self, rest: str, query: Json, body: Any) -> Answer:
        if set(query) - {"tags", "type", "limit", "from", "to"}:
            return self._breach(f"annotations are not asked for by {sorted(query)}")
        wanted = set(query.get("tags", []))
        return 200, [mark for mark in self.marks.values() if wanted <= set(mark["tags"])]

    def _add_mark(self, rest: str, query: Json, body: Any) -> Answer:
        if (words := _unfit_mark(body)) is not None:
            return self._breach(words)
        number = len(self.marks) + 1
        self.marks[number] = {"id": number, **_kept(body)}
        return 200, {"message": "Annotation added", "id": number}

    def _change_mark(self, rest: str, query: Json, body: Any) -> Answer:
        if not rest.isdigit() or int(rest) not in self.marks:
            return said(404, "Annotation not found")
        if (words := _unfit_mark(body)) is not None:
            return self._breach(words)
        self.marks[int(rest)] = {"id": int(rest), **_kept(body)}
        return 200, {"message": "Annotation updated"}


def _is_uid(value: Any) -> bool:
    return (
        isinstance(value, str)
        and 0 < len(value) <= 40
        and value.replace("-", "").replace("_", "").isalnum()
    )


def _unfit(body: Any) -> str | None:
    """Why Grafana would not take this as a dashboard to save; what it would only ignore, too."""
    wanted = {"dashboard": dict, "folderUid": str, "message": str, "overwrite": bool}
    if not isinstance(body, dict) or set(body) != set(wanted):
        return f"a dashboard is saved with {sorted(wanted)} (folderId is ignored by Grafana 13)"
    for key, kind in wanted.items():
        if not isinstance(body[key], kind):
            return f"{key} is no {kind.__name__}"
    model = body["dashboard"]
    if not _is_uid(model.get("uid")) or not model.get("title"):
        return "a dashboard without uid or title"
    if not isinstance(model.get("panels"), list) or not isinstance(model.get("schemaVersion"), int):
        return "not the classic schema"
    if not isinstance(model.get("version"), int):
        return "a dashboard's version is the one that was read"
    return None


def _unfit_mark(body: Any) -> str | None:
    if not isinstance(body, dict) or set(body) - {"time", "timeEnd", "tags", "text", "panelId"}:
        return f"an annotation is not made of {body}"
    if not all(type(body.get(key)) is int and body[key] > 10**12 for key in ("time", "timeEnd")):
        return "an annotation's times are whole milliseconds"
    if body["timeEnd"] < body["time"] or not body.get("text"):
        return "an annotation that ends before it begins, or says nothing"
    if not body.get("tags") or not all(isinstance(tag, str) for tag in body["tags"]):
        return "an annotation's tags are a list of words"
    return None


def _kept(body: Json) -> Json:
    return {key: body[key] for key in ("time", "timeEnd", "tags", "text")}


@contextmanager
def running(grafana: FakeGrafana) -> Iterator[FakeGrafana]:
    """On a free port of this machine, until the block is left."""

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            raw = self.rfile.read(length)
            body = json.loads(raw) if raw else None
            token = self.headers.get("Authorization", "")
            status, answer = grafana.answer(self.command, self.path, token, body)
            is_text = isinstance(answer, str)
            sent = answer.encode() if is_text else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/html" if is_text else "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def do_PUT(self) -> None:
            self._serve()

        def do_DELETE(self) -> None:
            self._serve()

        def log_message(self, *arguments: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    grafana.url = f"http://127.0.0.1:{server.server_port}{grafana.prefix}"
    try:
        yield grafana
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
