"""A failover behind real sentinels: the master dies, epochs go on."""

from __future__ import annotations

import pytest
from tests.servers import Sentinels, wait_until

from holdfast_sidecar.store.connection import check_server, connect
from holdfast_sidecar.store.protocol import Lease, Section, Store, StoreUnavailable

pytestmark = pytest.mark.redis_server


def test_epochs_never_go_back_when_the_master_is_killed(sentinels: Sentinels) -> None:
    store, other = sentinels.store(), sentinels.store()
    first = store.campaign("a", 30, 41)
    assert first == Lease(42, "a")
    before = store.read().server
    while other.wait(0.02):
        pass
    assert check_server(connect(sentinels.settings, {})) == []

    sentinels.servers[0].kill()
    with pytest.raises(StoreUnavailable):
        store.read()
    wait_until(lambda: is_back(store), "the replica was promoted")

    assert store.read().server != before
    # The promoted replica may or may not have seen the lease; the floor holds either way.
    second = store.campaign("a", 30, first.epoch)
    assert second.epoch >= first.epoch
    store.resign("a")
    third = store.campaign("b", 30, second.epoch)
    assert third.epoch > second.epoch
    assert not store.order(first, Section.PLAN, "current", "stale", None)
    assert store.order(third, Section.PLAN, "current", "1", None)

    # The other store's subscription died with the old master.
    assert other.wait(5)
    other.read()
    while other.wait(0.02):
        pass
    store.report(Section.NODES, "a", "1")
    assert other.wait(5)


def test_a_frozen_master_is_left_behind(sentinels: Sentinels) -> None:
    store = sentinels.store()
    lease = store.campaign("a", 30, 41)
    before = store.read().server
    while store.wait(0.02):
        pass
    sentinels.servers[0].pause()
    with pytest.raises(StoreUnavailable):
        store.read()
    wait_until(lambda: is_back(store), "the replica was promoted")
    newer = store.campaign("a", 30, lease.epoch + 1)
    assert newer.epoch > lease.epoch
    assert store.read().server != before
    assert not store.order(lease, Section.PLAN, "current", "stale", None)
    assert store.order(newer, Section.PLAN, "current", "1", None)

    # The subscription on the frozen master heard nothing and was not closed either.
    while store.wait(0.02):
        pass
    sentinels.store().report(Section.NODES, "a", "1")
    assert store.wait(5)


def is_back(store: Store) -> bool:
    try:
        store.report(Section.NODES, "probe", "1")
    except StoreUnavailable:
        return False
    return True


def test_an_unknown_service_is_told_so(sentinels: Sentinels) -> None:
    settings = sentinels.sentinels[0].with_settings(
        url=sentinels.settings.url.replace("/training", "/unknown")
    )
    (problem,) = check_server(connect(settings, {}))
    assert problem.kind == "unreachable"
    assert "unknown" in problem.line
