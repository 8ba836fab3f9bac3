"""Which series a query means: those of the variables at the top, and of no other scrape job."""

from __future__ import annotations

OF_RUN = 'job=~"$job", cluster=~"$cluster", run=~"$run"'
OF_NODE = f'{OF_RUN}, node=~"$node"'

PER_RUN = "by (cluster, run)"
PER_NODE = "by (cluster, run, node)"
PER_RANK = "by (cluster, run, node, rank)"
PER_GPU = "by (cluster, run, node, gpu)"


def of_run(metric: str, more: str = "") -> str:
    """The metric, of the runs that are chosen; `more` are further matchers."""
    return _selector(metric, OF_RUN, more)


def of_node(metric: str, more: str = "") -> str:
    """The metric, of the nodes that are chosen."""
    return _selector(metric, OF_NODE, more)


def gauge(metric: str, more: str = "", per: str = PER_RUN) -> str:
    """A job's gauge, once: two sidecars tell it for a moment when the leader changes."""
    return f"max {per} ({of_run(metric, more)})"


def rate(metric: str, per: str = PER_RUN, more: str = "") -> str:
    """What a job's counters gain a second."""
    return f"sum {per} (rate({of_run(metric, more)}[$__rate_interval]))"


def gained(metric: str, per: str = PER_RUN, more: str = "") -> str:
    """What a job's counters gained in the time that is shown."""
    return f"sum {per} (increase({of_run(metric, more)}[$__range]))"


def node_gauge(metric: str, more: str = "", per: str = PER_NODE, how: str = "max") -> str:
    """A node's gauge: the worst of what it has several of."""
    return f"{how} {per} ({of_node(metric, more)})"


def node_rate(metric: str, per: str = PER_NODE, more: str = "") -> str:
    """What a node's counters gain a second."""
    return f"sum {per} (rate({of_node(metric, more)}[$__rate_interval]))"


def node_gained(metric: str, per: str = PER_NODE, more: str = "") -> str:
    """What a node's counters gained in the time that is shown."""
    return f"sum {per} (increase({of_node(metric, more)}[$__range]))"


def or_zero(expression: str, known: str) -> str:
    """0 where nothing is found although `known`, of the same labels, is: else no data stays so."""
    return f"{expression} or 0 * {known}"


def _selector(metric: str, matchers: str, more: str) -> str:
    return f"{metric}{{{matchers}{', ' + more if more else ''}}}"
