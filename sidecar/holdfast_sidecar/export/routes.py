"""/metrics: the newest picture, drawn when somebody asks."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from holdfast.contract.own_directory import make_closed
from holdfast_sidecar.config.addresses import stays_within
from holdfast_sidecar.export.exposition import draw, expose, while_leading, without_former_ranks
from holdfast_sidecar.export.http_server import (
    JSON,
    HttpRequest,
    Response,
    Route,
    Server,
    TickListener,
)
from holdfast_sidecar.export.state import TickState
from holdfast_sidecar.records.plan import TERMINAL
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.orders import Orders

logger = logging.getLogger(__name__)


# /healthz: whether this sidecar is well, for whoever restarts it; nothing about the job.

STALE_AFTER_S = 10.0
"""A loop that has not ticked for this long (some twenty ticks) is not well."""


@dataclass(frozen=True)
class HealthRoute:
    """Open to everybody, as a kubelet shows no token: those without one hear `ok` and no more."""

    path: str = "/healthz"
    is_open: bool = True
    clock: Callable[[], float] = time.monotonic

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """200 when it is well, else 503."""
        told = health(picture, self.clock())
        status = HTTPStatus.OK if told["ok"] else HTTPStatus.SERVICE_UNAVAILABLE
        shown = told if request.is_known else {"ok": told["ok"]}
        return Response(json.dumps(shown).encode(), JSON, status)


def health(picture: TickState | None, now_s: float) -> dict[str, Any]:
    """What there is to say of this sidecar. `now_s` is monotonic, as the picture's moment is."""
    if picture is None:
        return {"ok": False, "why": "no tick yet"}
    age_s = now_s - picture.moment.now_s
    return {
        "ok": age_s < STALE_AFTER_S,
        "store_up": picture.orders.store_up,
        "leader": picture.orders.lease.candidate,
        "is_leader": picture.orders.is_leader,
        "attempt": picture.ranks.attempt,
        "ranks": len(without_former_ranks(picture).ranks.local),
        "findings": [finding.kind.value for finding in picture.findings],
        "last_tick_age_s": round(age_s, 3),
    }


# Holds the newest picture of one job's node, and serves what is to be known of it.


@dataclass
class Exporter:
    """The loop's teller: hands pictures on; answers are made when somebody asks."""

    routes: Sequence[Route]
    listeners: Sequence[TickListener] = ()
    server: Server | None = None
    orders: Callable[[], Orders] | None = None
    """What coordination agreed on since the newest picture, once there is coordination."""
    clock: Callable[[], float] = time.monotonic
    _picture: TickState | None = None

    def tell(self, picture: TickState) -> None:
        """Take the newest picture (one assignment; a scrape in progress keeps the one it has)."""
        self._picture = picture
        for listener in self.listeners:
            listener.hear(picture)

    def serve(self) -> None:
        """Begin to answer."""
        if self.server is not None:
            self.server.start(self.answer)

    def close(self) -> None:
        """Stop serving."""
        if self.server is not None:
            self.server.close()

    def answer(self, request: HttpRequest) -> Response:
        """What the path's route says; 401 to those who need the token, 404 where there is none."""
        route = next((one for one in self.routes if one.path == request.path), None)
        if not request.is_known and (route is None or not route.is_open):
            return REFUSED
        if route is None:
            known = ", ".join(one.path for one in self.routes)
            return Response(f"here are {known}\n".encode(), status=HTTPStatus.NOT_FOUND)
        return route.answer(request, self._current())

    def _current(self) -> TickState | None:
        picture = self._picture
        if picture is None or self.orders is None:
            return picture
        return while_leading(picture, self.orders(), self.clock())


REFUSED = Response(
    b"a token is needed: Authorization: Bearer ...\n",
    status=HTTPStatus.UNAUTHORIZED,
    headers={"WWW-Authenticate": 'Bearer realm="holdfast"'},
)


# Whether a Prometheus that comes by has yet to hear how the run ended.

EXPECTED_S = 70.0
"""Who came within this time comes again: nobody scrapes less often than once a minute, as
Prometheus forgets a series after five."""


@dataclass
class LastWords:
    """Hears of every scrape, from the server's threads; is asked by the loop. Times are monotonic.

    A run that ends leaves within a second, and Prometheus comes every fifteen: without waiting for
    it, a run that ended well and one whose machines all died would look the same. Of two that watch
    the same run each has to hear it.
    """

    _scraped_s: dict[str, float] = field(default_factory=dict)
    """Caller -> when it came last without having heard of the end."""
    _have_heard: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    """Two may come at the same moment."""

    def told(self, picture: TickState | None, now_s: float, caller: str) -> None:
        """This picture was just told to a Prometheus. caller: its address."""
        with self._lock:
            if picture is not None and tells_the_end(picture):
                self._have_heard.add(caller)
            seen = {**self._scraped_s, caller: now_s}
            # Replaced whole: the loop may be reading it.
            self._scraped_s = {
                who: at_s
                for who, at_s in seen.items()
                if who not in self._have_heard and _is_expected(at_s, now_s)
            }

    def is_awaited(self, now_s: float) -> bool:
        """Whether one is expected that has not heard of the end."""
        return any(_is_expected(at_s, now_s) for at_s in self._scraped_s.values())


def _is_expected(scraped_s: float, now_s: float) -> bool:
    return now_s - scraped_s < EXPECTED_S


def tells_the_end(picture: TickState) -> bool:
    """Whether the run is over, and this sidecar is the one that tells of it; or it tells that its
    launcher was told to end."""
    plan = picture.orders.plan
    is_over = plan is not None and plan.state in TERMINAL
    return picture.is_told_to_end or (picture.orders.is_leader and is_over)


@dataclass(frozen=True)
class MetricsRoute:
    """In Prometheus' text format, or in OpenMetrics for who asks for it."""

    job: str
    path: str = "/metrics"
    is_open: bool = False
    last_words: LastWords = field(default_factory=LastWords)
    clock: Callable[[], float] = time.monotonic

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """An empty page before the first tick: there is nothing to tell, and nothing is wrong."""
        samples = [] if picture is None else draw(picture, self.job)
        body, content_type = expose(samples, request.accept)
        if request.is_scrape:
            self.last_words.told(picture, self.clock(), request.caller)
        return Response(body, content_type)


# Which sidecars of the job Prometheus is to scrape: those there are, and for an hour those there
# were, so that it sees that one is gone. Pure; what outlives this sidecar is in `target_file`.

LISTED_S = 3600.0
"""`up == 0` of a sidecar that is gone is there as long as somebody may be looking into it. A node
that is gone for good would else be an alert for ever."""

SILENT_S = 30.0
"""What is written down as silent: far more than a sidecar needs to be started again."""


@dataclass(frozen=True)
class Target:
    """A node's sidecar, as it was last heard of."""

    address: str
    """host:port, with `https://` before it where that is spoken; empty: nobody else gets there."""
    beat: str
    """By which it is seen to live."""
    silent_s: float = 0.0
    """How long the store has answered without a new beat of it."""


@dataclass
class Targets:
    """Remembers them from reading to reading. Time while the store is away does not count: then
    nobody is heard, and the last list stands."""

    node: str
    """This one, which is on the list whatever the store says."""
    address: str
    by_node: Mapping[str, Target] = field(default_factory=dict)
    is_known: bool = False
    """Whether there is more to tell than of this node: a reading, or what a former one left."""
    boot: str = ""
    """Which start of this machine it is; of another machine a report has another one."""
    left_out: frozenset[str] = frozenset()
    """Nodes that listen for their own machine alone, which is not this one."""
    _read_at_s: float | None = None

    def __post_init__(self) -> None:
        self.by_node = {**self.by_node, self.node: Target(self.address, "")}

    def read(self, reports: Mapping[str, NodeReport], now_s: float) -> None:
        """A reading of the store, at this time on a monotonic clock."""
        passed_s = 0.0 if self._read_at_s is None else max(0.0, now_s - self._read_at_s)
        self._read_at_s, self.is_known = now_s, True
        followed = {**self.by_node}
        others = {*followed, *reports} - {self.node}
        self.left_out = frozenset(n for n in others if self._is_beyond_reach(reports.get(n)))
        for node in others:
            followed[node] = _followed(followed.get(node), reports.get(node), passed_s)
            if node in self.left_out:
                followed[node] = replace(followed[node], address="")
        # Of a report that is still there it has to be known how old it is.
        gone = {n for n, t in followed.items() if n not in reports and t.silent_s >= LISTED_S}
        self.by_node = {node: target for node, target in followed.items() if node not in gone}

    def _is_beyond_reach(self, report: NodeReport | None) -> bool:
        """Under a loopback address of another machine somebody else is met on this one."""
        if report is None or not (self.boot and report.boot and report.boot != self.boot):
            return False
        return stays_within(report.metrics_address.removeprefix("https://"))

    def pause(self) -> None:
        """The store does not answer: what passes from here on is nobody's silence."""
        self._read_at_s = None

    def listed(self) -> dict[str, str]:
        """node -> address, of those to be scraped."""
        known = sorted(self.by_node.items())
        return {n: t.address for n, t in known if t.address and t.silent_s < LISTED_S}


def _followed(known: Target | None, report: NodeReport | None, passed_s: float) -> Target:
    """One of them is None at most."""
    if report is None:
        assert known is not None
        return replace(known, silent_s=known.silent_s + passed_s)
    beat = f"{report.incarnation} {report.beat}"
    address = report.metrics_address or (known.address if known else "")
    if known is None or known.beat != beat:
        return Target(address, beat)
    return replace(known, address=address, silent_s=known.silent_s + passed_s)


def as_discovered(listed: Iterable[tuple[str, str]], run: str) -> list[dict[str, object]]:
    """The list as Prometheus' HTTP service discovery reads it: one group for each node."""
    return [
        {"targets": [address.removeprefix("https://")], "labels": _labels(run, node, address)}
        for node, address in listed
    ]


def _labels(run: str, node: str, address: str) -> dict[str, str]:
    scheme = {"__scheme__": "https"} if address.startswith("https://") else {}
    return {"run": run, "node": node, **scheme}


# The list of targets on disk, so that a sidecar that is started again goes on from it: one that
# was lost an hour ago stays lost, and while Redis is away the list is not empty.

KEEP_EVERY_S = 600.0
"""How often it is written though nothing is new: by that it is known how old it is."""


class TargetFile:
    """Written when somebody comes, goes, or has moved: not at every beat."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: object = None
        self._written_at = float("-inf")
        self._is_broken = False

    def read(self, now_unix_s: float) -> dict[str, Target]:
        """What a former sidecar of this node left; nothing where it left none."""
        try:
            return parse_targets(self._path.read_text(), now_unix_s)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def keep(self, targets: Mapping[str, Target], now_unix_s: float) -> None:
        """Write it down if it is news. A disk that is full only costs the memory of it."""
        news = {n: (t.address, t.silent_s >= SILENT_S) for n, t in targets.items()}
        if news == self._written and now_unix_s - self._written_at < KEEP_EVERY_S:
            return
        self._written, self._written_at = news, now_unix_s
        temporary = self._path.with_suffix(".new")
        try:
            make_closed(self._path.parent)
            temporary.write_text(spell_targets(targets, now_unix_s))
            temporary.replace(self._path)
        except OSError as error:
            if not self._is_broken:
                logger.warning("can't keep the list of targets: %s", error)
            self._is_broken = True


def spell_targets(targets: Mapping[str, Target], now_unix_s: float) -> str:
    """With the time since when each is silent."""
    known = {
        node: {
            "address": target.address,
            "beat": target.beat,
            "heard_unix_s": round(now_unix_s - target.silent_s, 3),
        }
        for node, target in targets.items()
    }
    return json.dumps(known, indent=1)


def parse_targets(text: str, now_unix_s: float) -> dict[str, Target]:
    """What was written. Who was heard then counts as silent since then until it is heard again:
    what lies here from another time of the job's life is not listed."""
    return {
        node: Target(
            str(one["address"]), str(one["beat"]), max(0.0, now_unix_s - one["heard_unix_s"])
        )
        for node, one in json.loads(text).items()
    }


# /sd: where the job's sidecars are, for Prometheus' HTTP service discovery.
#
# Any sidecar of a job knows all of them, so that one address leads Prometheus to every node.

UNKNOWN = Response(
    b"no reading of the store yet\n",
    status=HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Prometheus keeps the list it has when it gets an error; an empty one it would believe."""


@dataclass
class DiscoveryRoute:
    """Follows who is there, tick by tick, and lists them for whoever asks."""

    job: str
    targets: Targets
    file: TargetFile
    path: str = "/sd"
    is_open: bool = False
    _read: object = None
    _missed: frozenset[str] = frozenset()
    """Nodes of which it was said that they can't be listed."""

    def hear(self, picture: TickState) -> None:
        """Take in a new reading of the store, where this picture has one."""
        orders = picture.orders
        if not orders.store_up or orders.nodes is None:
            self.targets.pause()
            return
        if orders.nodes is self._read:
            return
        self._read = orders.nodes
        self.targets.read(orders.nodes, picture.moment.now_s)
        self.file.keep(self.targets.by_node, picture.moment.now_unix_s)

    def answer(self, request: HttpRequest, picture: TickState | None) -> Response:
        """The list, also while Redis is away; an error while nothing is known."""
        if not self.targets.is_known:
            return UNKNOWN
        self._say_who_is_left_out(self.targets.left_out)
        listed = self.targets.listed().items()
        return Response(json.dumps(as_discovered(listed, self.job)).encode(), JSON)

    def _say_who_is_left_out(self, nodes: frozenset[str]) -> None:
        """Once for each, and only to those who have a Prometheus: it asks."""
        if nodes <= self._missed:
            return
        self._missed |= nodes
        logger.warning(
            "/sd leaves out %s: their sidecars listen for their own machines alone, and Prometheus"
            " would not find them; give them sidecar.listen = 0.0.0.0:PORT (docs/prometheus.md)",
            ", ".join(sorted(nodes)),
        )
