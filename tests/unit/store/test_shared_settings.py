import contextlib
import dataclasses
import json
from collections.abc import Callable

import pytest

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Member, Plan
from holdfast_sidecar.records.reports import AgentReport
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Section, Store
from holdfast_sidecar.store.shared_settings import check_settings_shared

OURS: dict[str, str | int] = {"nodes": "2:2", "slots": 4}
AGENT = AgentReport("a", "i", "running", 0, 1, 2, "", 2, 2)


class Clock:
    """Moves on by a second whenever it is read; `then` happens in between."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.now = 0.0
        self.then = then

    def __call__(self) -> float:
        self.now += 1.0
        self.then()
        return self.now


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    made = MemoryStore(MemoryServer(), "j")
    monkeypatch.setattr(made, "wait", lambda timeout_s: False)
    return made


def held(store: MemoryStore) -> str:
    """What is claimed, without what it was claimed after."""
    claimed = json.loads(store.read().section(Section.SETTINGS)["current"])
    return json.dumps({name: value for name, value in claimed.items() if name != "after"})


def claimed(store: MemoryStore) -> str:
    return store.read().section(Section.SETTINGS)["current"]


def test_nodes_with_the_same_settings_share_a_job_however_they_order_them(
    store: MemoryStore,
) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    check_settings_shared(store, "j", dict(reversed(OURS.items())), Clock())


def test_a_led_job_with_other_settings_is_refused_in_one_line(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    store.campaign("a/i", 60.0, 0)
    with pytest.raises(BadInput, match="is running with other settings") as refused:
        check_settings_shared(store, "j", {"nodes": "2:2", "slots": 8, "script": "x"}, Clock())
    assert "(script: not set, here x; slots: 4, here 8)" in str(refused.value)
    assert "HOLDFAST_LAUNCH_ID" in str(refused.value)
    assert held(store) == '{"nodes": "2:2", "slots": 4}'


def test_a_job_that_nobody_leads_yet_lives_when_a_heartbeat_moves(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    beats = iter(range(2, 99))

    def beat() -> None:
        moved = dataclasses.replace(AGENT, beat=next(beats))
        store.report(Section.AGENTS, "a", encode(moved))

    with pytest.raises(BadInput):
        check_settings_shared(store, "j", {"nodes": "1:1"}, Clock(beat))


def test_a_claim_left_behind_by_a_dead_job_is_replaced(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    store.report(Section.AGENTS, "a", encode(AGENT))
    clock = Clock()
    check_settings_shared(store, "j", {"nodes": "1:1"}, clock)
    assert held(store) == '{"nodes": "1:1"}'
    assert clock.now >= 3.0


@pytest.mark.parametrize("is_same", [True, False])
def test_of_two_nodes_that_find_a_dead_claim_one_replaces_it(
    is_same: bool, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    dead = claimed(store)
    other = "{}" if not is_same else '{"nodes": "1:1"}'
    claim, beats = store.claim, iter(range(2, 99))

    def claim_late(
        section: Section, field: str, value: str, expected: str | None = None
    ) -> str | None:
        claim(section, field, other, expected=dead)
        return claim(section, field, value, expected)

    def beat() -> None:
        if claimed(store) != dead:
            store.report(Section.AGENTS, "b", encode(dataclasses.replace(AGENT, beat=next(beats))))

    monkeypatch.setattr(store, "claim", claim_late)
    with contextlib.nullcontext() if is_same else pytest.raises(BadInput):
        check_settings_shared(store, "j", {"nodes": "1:1"}, Clock(beat))
    assert held(store) == other


def end_the_run(store: Store, attempt: int = 0, state: str = "done") -> None:
    """Write its end into the plan, as its leader does before any launcher leaves."""
    lease = store.campaign("a/i", 60.0, 0)
    before = store.read().section(Section.PLAN).get("current")
    plan = encode(Plan(attempt, lease.epoch, state, [Member("a", "i", 0, 0, 2)]))
    assert store.order(lease, Section.PLAN, "current", plan, before)


@pytest.mark.parametrize("state", ["done", "stopped"])
def test_what_an_ended_run_shared_is_replaced_at_once(store: MemoryStore, state: str) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    end_the_run(store, state=state)
    store.resign("a/i")
    clock = Clock()
    check_settings_shared(store, "j", {"nodes": "3:3"}, clock)
    assert held(store) == '{"nodes": "3:3"}'
    assert clock.now < 3.0


def test_an_ended_runs_leader_is_let_leave_before_the_next_run_begins(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    end_the_run(store)
    looks = iter(range(99))
    clock = Clock(lambda: store.resign("a/i") if next(looks) == 1 else None)
    check_settings_shared(store, "j", {"nodes": "3:3"}, clock)
    assert store.read().lease.candidate == ""


def test_a_sidecar_that_stays_holds_nobody_to_an_ended_runs_settings(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    end_the_run(store)
    clock = Clock()
    check_settings_shared(store, "j", {"nodes": "3:3"}, clock)
    assert held(store) == '{"nodes": "3:3"}'
    assert 3.0 <= clock.now < 10.0


def test_the_next_run_binds_though_its_first_attempt_is_not_open_yet(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    end_the_run(store)
    store.resign("a/i")
    check_settings_shared(store, "j", {"nodes": "3:3"}, Clock())
    store.campaign("b/j", 60.0, 0)
    with pytest.raises(BadInput, match="nodes: 3:3, here 5:5"):
        check_settings_shared(store, "j", {"nodes": "5:5"}, Clock())


def test_a_run_started_again_as_it_was_binds_anew(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    end_the_run(store)
    check_settings_shared(store, "j", OURS, Clock())
    with pytest.raises(BadInput):
        check_settings_shared(store, "j", {"nodes": "5:5"}, Clock())
    end_the_run(store, attempt=1)
    store.resign("a/i")
    check_settings_shared(store, "j", {"nodes": "5:5"}, Clock())


def test_a_node_that_watches_a_dead_claim_sees_another_replace_it_and_lead(
    store: MemoryStore,
) -> None:
    """Both start at the same moment; the other was through with watching a little earlier."""
    check_settings_shared(store, "j", OURS, Clock())
    new = {"nodes": "3:3"}
    looks = iter(range(99))

    def another() -> None:
        if next(looks) == 1:
            check_settings_shared(store, "j", new, Clock())
            store.campaign("b/j", 60.0, 0)

    check_settings_shared(store, "j", new, Clock(another))
    assert held(store) == '{"nodes": "3:3"}'


def test_a_run_that_ends_while_its_claim_is_watched_binds_nobody(store: MemoryStore) -> None:
    check_settings_shared(store, "j", OURS, Clock())
    looks = iter(range(99))

    def end() -> None:
        if next(looks) == 1:
            end_the_run(store)
            store.resign("a/i")

    check_settings_shared(store, "j", {"nodes": "3:3"}, Clock(end))
    store.campaign("b/j", 60.0, 0)
    with pytest.raises(BadInput):
        check_settings_shared(store, "j", {"nodes": "5:5"}, Clock())
