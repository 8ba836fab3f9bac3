"""The demonstration's configurations are the shipped ones, but for who is asked and who is told."""

from __future__ import annotations

from typing import Any

import yaml
from testing.pager import prometheus_settings, routes_to

from holdfast_sidecar.config.paths import asset

SHIPPED = asset("deploy/prometheus/prometheus.yml").read_text()
ROUTES = asset("alerts/alertmanager.yml").read_text()


def test_prometheus_differs_in_where_sidecars_and_alertmanager_are() -> None:
    made = yaml.safe_load(prometheus_settings(SHIPPED, ["127.0.0.1:1", "127.0.0.1:2"], "h:9"))
    shipped = yaml.safe_load(SHIPPED)
    assert made.pop("alerting") == {"alertmanagers": [{"static_configs": [{"targets": ["h:9"]}]}]}
    (block,), (shipped_block,) = made["scrape_configs"], shipped["scrape_configs"]
    found, described = block.pop("http_sd_configs"), shipped_block.pop("http_sd_configs")
    assert [one.pop("url") for one in found] == ["http://127.0.0.1:1/sd", "http://127.0.0.1:2/sd"]
    for one in described:
        del one["url"]
    assert found == described[: len(found)]
    assert made == shipped


def test_alertmanager_differs_in_its_receivers_alone() -> None:
    made, shipped = yaml.safe_load(routes_to(ROUTES, "http://h:1")), yaml.safe_load(ROUTES)
    told = {one["name"]: one.get("webhook_configs", []) for one in made.pop("receivers")}
    assert told.pop("nobody") == []
    assert {name: hooks[0]["url"] for name, hooks in told.items()} == {
        name: f"http://h:1/{name}" for name in told
    }
    shipped.pop("receivers")
    assert made == shipped


def test_every_receiver_that_a_route_names_is_there() -> None:
    made = yaml.safe_load(routes_to(ROUTES, "http://h:1"))
    assert named(made["route"]) == {one["name"] for one in made["receivers"]}


def named(route: dict[str, Any]) -> set[str]:
    """The receivers of a route and all below it."""
    below = [named(one) for one in route.get("routes", [])]
    own = {route["receiver"]} if "receiver" in route else set()
    return own.union(*below)
