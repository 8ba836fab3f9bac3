"""What the waits of the shipped routes have to be to each other."""

from __future__ import annotations

import yaml

from holdfast_sidecar.assets import asset
from holdfast_sidecar.demo.stack.haste import seconds


def test_every_word_of_the_watchdog_is_passed_on() -> None:
    """What was sent a moment after one tick is not older than the interval at the next."""
    routes = yaml.safe_load(asset("alerts/alertmanager.yml").read_text())["route"]["routes"]
    (watchdog,) = [route for route in routes if route.get("receiver") == "watchdog"]
    assert seconds(watchdog["repeat_interval"]) < seconds(watchdog["group_interval"])
