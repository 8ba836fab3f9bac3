import contextlib
import dataclasses
from collections.abc import Callable

import pytest

from holdfast_sidecar.bad_input import BadInput
from holdfast_sidecar.coordination.keys import Section
from holdfast_sidecar.coordination.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.records.agent import AgentReport
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.shared_settings import check_settings_shared

OURS = {"nodes": "2:2", "slots": 4}
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
    dead = held(store)
    other = "{}" if not is_same else '{"nodes": "1:1"}'
    claim, beats = store.claim, iter(range(2, 99))

    def claim_late(
        section: Section, field: str, value: str, expected: str | None = None
    ) -> str | None:
        claim(section, field, other, expected=dead)
        return claim(section, field, value, expected)

    def beat() -> None:
        if held(store) != dead:
            store.report(Section.AGENTS, "b", encode(dataclasses.replace(AGENT, beat=next(beats))))

    monkeypatch.setattr(store, "claim", claim_late)
    with contextlib.nullcontext() if is_same else pytest.raises(BadInput):
        check_settings_shared(store, "j", {"nodes": "1:1"}, Clock(beat))
    assert held(store) == other
