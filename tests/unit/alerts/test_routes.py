"""What the waits of the shipped routes have to be to each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from testing.alerting import seconds

from holdfast_sidecar.config.paths import asset


def routing() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(asset("alerts/alertmanager.yml").read_text())["route"]
    return document


def test_every_word_of_the_watchdog_is_passed_on() -> None:
    """What was sent a moment after one tick is not older than the interval at the next."""
    (watchdog,) = [route for route in routing()["routes"] if route.get("receiver") == "watchdog"]
    assert seconds(watchdog["repeat_interval"]) < seconds(watchdog["group_interval"])


@pytest.mark.parametrize("name", ["HoldfastNodeLost", "HoldfastStoreDown"])
def test_what_joins_an_open_page_is_told_as_soon_as_the_page_was(name: str) -> None:
    """A second node that is lost, another run whose store is away."""
    top = routing()
    (route,) = [one for one in top["routes"] if any(name in word for word in one["matchers"])]
    assert "alertname" in route["group_by"], "one page for all of them"
    assert seconds(route.get("group_interval", top["group_interval"])) <= seconds(top["group_wait"])
