"""Whom a view is asked of: whoever answered last, the leader where it can be reached, and everybody
who can be found when nobody answers any more."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest
from tests.unit.export.live.pretend_views import healthy, troubled
from tests.unit.ranks.large_job import Job, picture

from holdfast_sidecar.cli.tui import sources
from holdfast_sidecar.cli.tui.http_client import Access, AccessRefused, Away, MemorySource
from holdfast_sidecar.cli.tui.sources import (
    LEFT_ALONE,
    SidecarSource,
    StoreSource,
    look,
    parse_view,
    replay,
)
from holdfast_sidecar.cli.tui.state import Latest
from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.export.live.packing import pack
from holdfast_sidecar.export.live.view import LiveView
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import OPEN_SECTIONS, Section, View

LEADER = replace(healthy(4), node="b", leader_node="b", leader_address="b:1")
FOLLOWER = replace(healthy(4), node="a", is_leader=False, leader_node="b", leader_address="b:1")


@dataclass
class Net:
    """Sidecars by their addresses; who isn't there doesn't answer."""

    told: dict[str, LiveView]
    asked: list[str] = field(default_factory=list)
    shown: dict[str, bool] = field(default_factory=dict)
    """Address -> whether it would have got a token."""
    found: list[str] = field(default_factory=lambda: ["a:1"])

    def ask(self, address: str, access: Access) -> LiveView:
        self.asked.append(address)
        self.shown[address] = bool(access.token_file) and access.shows_token_to(address)
        if address not in self.told:
            raise Away(f"{address} does not answer")
        return self.told[address]

    def source(self, job: str = "llm") -> SidecarSource:
        return SidecarSource(job, lambda: self.found, asked=self.ask)


def test_the_leader_is_asked_where_it_can_be_reached() -> None:
    net = Net({"a:1": FOLLOWER, "b:1": LEADER})
    source = net.source()
    assert [source.read().node for _ in range(3)] == ["b", "b", "b"]
    assert net.asked == ["a:1", "b:1", "b:1", "b:1"]


def test_when_the_leader_is_gone_the_nearest_tells_what_it_knows() -> None:
    net = Net({"a:1": FOLLOWER, "b:1": LEADER})
    source = net.source()
    source.read()
    del net.told["b:1"]
    assert source.read().node == "a"


def test_when_another_leads_that_one_is_asked() -> None:
    net = Net({"a:1": FOLLOWER, "b:1": LEADER})
    source = net.source()
    source.read()
    net.told["b:1"] = replace(LEADER, is_leader=False, leader_node="c", leader_address="c:1")
    net.told["a:1"] = replace(FOLLOWER, leader_node="c", leader_address="c:1")
    net.told["c:1"] = replace(LEADER, node="c", leader_node="c", leader_address="c:1")
    assert source.read().node == "c"


def test_a_leader_that_can_t_be_reached_is_left_alone_for_a_while() -> None:
    net = Net({"a:1": FOLLOWER})
    source = net.source()
    for _ in range(LEFT_ALONE + 2):
        assert source.read().node == "a"
    assert net.asked.count("b:1") == 2


def test_who_listens_on_the_leader_s_loopback_address_here_is_not_the_leader() -> None:
    """Both machines have a 127.0.0.1, and on ours another job's sidecar, or this very one."""
    for impostor in (replace(LEADER, run="other"), FOLLOWER, replace(LEADER, node="z")):
        net = Net({"a:1": FOLLOWER, "b:1": impostor})
        assert net.source().read() == FOLLOWER


def test_a_sidecar_that_started_again_elsewhere_is_found_again() -> None:
    net = Net({"a:1": LEADER})
    source = net.source()
    source.read()
    net.told, net.found = {"a:2": LEADER}, ["a:2"]
    assert source.read() == LEADER
    net.asked.clear()
    source.read()
    assert net.asked == ["a:2"]


def test_the_next_one_is_asked_where_the_first_does_not_answer() -> None:
    net = Net({"a:2": LEADER}, found=["a:1", "a:2"])
    assert net.source().read() == LEADER


def test_when_nobody_answers_the_last_reason_is_told() -> None:
    with pytest.raises(Away, match="a:1 does not answer"):
        Net({}).source().read()
    with pytest.raises(Away, match="no sidecar of the job is known"):
        Net({}, found=[]).source().read()


def test_another_job_s_sidecar_is_not_believed_unless_any_will_do() -> None:
    net = Net({"a:1": LEADER})
    with pytest.raises(AccessRefused, match="a sidecar of job 'llm', not of 'other'"):
        net.source("other").read()
    assert net.source("").read() == LEADER


def test_what_was_known_is_kept_while_nobody_answers() -> None:
    source = MemorySource([healthy(4), Away("gone"), Away("still gone"), troubled(4)])
    latest = Latest()
    for now_s in (1.0, 2.0, 3.0):
        latest = look(source, latest, now_s)
    assert latest.view == healthy(4)
    assert (latest.away_since_s, latest.why, latest.silence_s(5.0)) == (2.0, "still gone", 3.0)
    latest = look(source, latest, 4.0)
    assert (latest.view, latest.away_since_s, latest.why) == (troubled(4), None, "")


def test_a_token_file_that_goes_away_does_not_end_the_watch() -> None:
    class Tokenless:
        name = "x"

        def read(self) -> LiveView:
            raise BadInput("can't read the token")

    assert look(Tokenless(), Latest(healthy(4)), 1.0).why == "can't read the token"


def test_a_recording_is_shown_view_by_view_and_stays_at_its_last(tmp_path: Path) -> None:
    path = tmp_path / "views.jsonl"
    path.write_bytes(pack(healthy(4)) + b"\nnot a view\n\n" + pack(troubled(4)) + b"\n")
    source = replay(path)
    assert [source.read().light for _ in range(3)] == ["green", "red", "red"]
    assert source.name == "the recording views.jsonl"


@pytest.mark.parametrize("line", ["", "{}", "[]", "[" * 100_000, '{"heat": 3}', "nonsense", '"x"'])
def test_a_line_that_is_no_view_is_none(line: str) -> None:
    assert parse_view(line) is None


def test_a_recording_without_a_view_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(BadInput, match="holds no view: record some with"):
        replay(tmp_path / "empty")
    with pytest.raises(BadInput, match=r"can't read .*: No such file"):
        replay(tmp_path / "missing")


def test_a_token_that_was_shown_under_TLS_is_not_shown_without() -> None:
    net = Net({"https://a:1": FOLLOWER, "b:1": LEADER}, found=["https://a:1"])
    assert net.source().read() == FOLLOWER
    assert "b:1" not in net.asked
    secured = replace(FOLLOWER, leader_address="https://b:1")
    net = Net({"https://a:1": secured, "https://b:1": LEADER}, found=["https://a:1"])
    assert net.source().read() == LEADER


def test_a_token_is_shown_in_the_clear_to_what_this_machine_knows_as_its_own_alone() -> None:
    """Behind another machine's loopback address anybody may listen on this one."""
    near, far = "127.0.0.1:1", "127.0.0.1:2"
    told = {near: replace(FOLLOWER, leader_address=far), far: LEADER}
    for here in ([], [near], [near, far]):
        net = Net(told, found=[near])
        SidecarSource("llm", lambda: [near], Access("token"), net.ask, partial(list, here)).read()
        assert net.shown == {near: near in here, far: far in here}


def test_what_is_no_number_in_the_store_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    told = replace(healthy(4), mfu=float("nan"), tokens_per_s=float("inf"))
    monkeypatch.setattr(sources, "of_store", lambda job, view, now_unix_s, heartbeats: told)
    view = StoreSource("llm", MemoryStore(MemoryServer(), "llm"), "here").read()
    assert (view.mfu, view.tokens_per_s) == (None, None)
    assert view.by_rank.keys() == told.by_rank.keys()


class Beating(MemoryStore):
    """Two nodes; only node-0 goes on reporting."""

    reads = 0

    def read(self, sections: Collection[Section] = OPEN_SECTIONS) -> View:
        self.reads += 1
        still, moving = (picture(Job(16), now_s=float(at)).orders.view for at in (1, self.reads))
        assert still is not None
        assert moving is not None
        nodes = {
            "node-0": moving.section(Section.NODES)["node-0"],
            "node-1": still.section(Section.NODES)["node-1"],
        }
        return replace(moving, sections={**moving.sections, Section.NODES: nodes})


def test_by_redis_alone_too_who_does_not_move_is_not_taken_for_alive() -> None:
    now = iter([1_000_001.0, 1_000_002.0, 1_000_004.0])
    store = Beating(MemoryServer(), "llm")
    source = StoreSource("llm", store, "here", clock=lambda: next(now))
    first, second, third = (source.read() for _ in range(3))
    assert {node.heartbeat_unix_s for node in first.nodes} == {None}
    assert [node.heartbeat_unix_s for node in second.nodes] == [1_000_002.0, None]
    assert {rank.silence for rank in [*first.ranks, *second.ranks]} == {""}
    assert {rank.silence for rank in third.ranks[:8]} == {""}
    assert {rank.silence for rank in third.ranks[8:]} == {"silent"}
