"""The run's account in the store: the server's script and its twin in memory do the same sums."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import pytest
from tests.servers import Server

from holdfast_sidecar.records.account import (
    CLOSED,
    PENDING,
    Category,
    IncidentCost,
    Phase,
    parse_account,
    spell_cost,
)
from holdfast_sidecar.store.account import TURNS, PhaseFold, Turn, turned
from holdfast_sidecar.store.memory_store import MemoryServer, MemoryStore
from holdfast_sidecar.store.protocol import Keys, Lease, Section, Store

LONG_S = 30.0
S = 1_000_000


@pytest.fixture(params=["memory", "redis"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "memory":
        return MemoryStore(MemoryServer(clock=time.time))
    server: Server = request.getfixturevalue("server")
    return server.store("job")


@pytest.fixture
def lease(store: Store) -> Lease:
    return store.campaign("a/i", LONG_S, 0)


def test_only_the_lease_in_force_turns_the_account(store: Store, lease: Lease) -> None:
    assert store.turn_account(Lease(lease.epoch + 1, "b/i"), Turn("init")) == {}
    assert store.read().section(Section.ACCOUNT) == {}
    told = store.turn_account(lease, Turn("init", gpus=4, fields={"run": "7"}))
    assert store.read().section(Section.ACCOUNT) == told
    account = parse_account(told)
    assert account is not None
    assert (account.open, account.gpus, account.run, account.total_us) == ("init", 4, "7", 0)
    assert account.began_us == account.at_us


def test_it_is_closed_by_the_store_s_own_clock(store: Store, lease: Lease) -> None:
    before = time.time()
    store.turn_account(lease, Turn("init", gpus=3))
    time.sleep(0.02)
    account = parse_account(store.turn_account(lease, Turn("setup")))
    assert account is not None
    assert before * S - S < account.began_us < time.time() * S + S
    assert account.micros == {"init": account.at_us - account.began_us}
    assert account.gpu_micros == {"init": 3 * account.micros["init"]}
    assert account.micros["init"] >= 20_000


def test_turning_wakes_nobody_and_lengthens_no_life(store: Store, lease: Lease) -> None:
    store.turn_account(lease, Turn("init"))
    store.keep(0.1)
    store.turn_account(lease, Turn("setup"))
    time.sleep(0.15)
    assert store.read().section(Section.ACCOUNT) == {}


def pieces(chance: random.Random) -> tuple[tuple[str, int], ...]:
    names = [category.value for category in Category]
    return tuple(
        (chance.choice(names), chance.randrange(3_000)) for _ in range(chance.randrange(4))
    )


def some_turn(chance: random.Random, seen: Mapping[str, str]) -> Turn:
    """Anything that a leader may do, and much that it won't."""
    opened = chance.choice([PENDING, PENDING, "restart", "draining", "setup", CLOSED])
    phase = chance.choice([*Phase]).value
    cost = IncidentCost({Phase.DETECT.value: 7}, 5, 10, 2, "crash", chance.choice(["", "n 1"]))
    return Turn(
        opened,
        stage=chance.choice(["", f"i{chance.randrange(3)}:{phase}"]),
        gpus=chance.randrange(20_000),
        is_anew=chance.random() < 0.02,
        is_seen=chance.random() < 0.2,
        base=dict(seen) if seen and chance.random() < 0.1 else {},
        moves=pieces(chance),
        shares=pieces(chance) if chance.random() < 0.7 else (),
        fields={"run": "1.5", "marks": "0:0 4:70"} if chance.random() < 0.5 else {},
        folds=(PhaseFold(f"i{chance.randrange(3)}", *spell_cost(cost)),) * chance.randrange(2),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_server_s_script_does_what_the_twin_in_memory_does(server: Server, seed: int) -> None:
    store, chance = server.store("job"), random.Random(seed)
    lease = store.campaign("a/i", LONG_S, 0)
    client, key = server.client(), Keys("job").section(Section.ACCOUNT)
    held: dict[str, str] = {}
    seen: dict[str, str] = {}
    for _ in range(150):
        if held and chance.random() < 0.2:
            held = rewound(held, chance.choice([-2, 3, 15, 4000]) * S)
            client.hset(key, mapping=dict(held.items()))
        turn = some_turn(chance, seen)
        told = dict(store.turn_account(lease, turn))
        held = turned(held, turn, int(told["at"]))
        assert told == held
        account = parse_account(held)
        assert account is not None
        assert account.total_us == account.at_us - account.began_us
        seen = held if chance.random() < 0.3 else seen
    client.close()


def rewound(fields: Mapping[str, str], by_us: int) -> dict[str, str]:
    """As if it had been turned last so much earlier."""
    earlier = {name: str(int(fields[name]) - by_us) for name in ("at", "began")}
    return {**fields, **earlier, TURNS: str(max(0, int(fields[TURNS]) - by_us // S))}
