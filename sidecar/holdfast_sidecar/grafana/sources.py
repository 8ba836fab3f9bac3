"""Which data source the dashboards ask. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast_sidecar.config.settings import BadInput
from holdfast_sidecar.grafana.server import Source

PROMETHEUS = "prometheus"
"""Grafana's type for Prometheus and for all that speak like it (Mimir, Thanos, VictoriaMetrics)."""


def choose_source(known: Sequence[Source] | None, wanted: str) -> Source | None:
    """The one that was named, by uid or name; None: the dashboards take the default one.

    BadInput where it isn't there, isn't a Prometheus, or there is none at all.
    """
    if known is None:
        if wanted:
            raise BadInput(
                f"this token may not list data sources, so that {wanted!r} can't be checked: give "
                "it the role Admin, or push without --data-source and choose it in the dashboards"
            )
        return None
    fitting = [source for source in known if source.kind == PROMETHEUS]
    if not fitting:
        raise BadInput(
            "this Grafana has no data source of type Prometheus: add one first "
            "(Connections, Data sources), or provision dashboards/provisioning/datasources.yaml"
        )
    return _named(known, fitting, wanted) if wanted else None


def _named(known: Sequence[Source], fitting: Sequence[Source], wanted: str) -> Source:
    for source in fitting:
        if wanted in (source.uid, source.name):
            return source
    if any(wanted in (source.uid, source.name) for source in known):
        raise BadInput(f"data source {wanted!r} is not of type Prometheus")
    names = ", ".join(sorted(source.name for source in fitting))
    raise BadInput(
        f"no data source {wanted!r} in this Grafana; of type Prometheus there are: {names}"
    )
