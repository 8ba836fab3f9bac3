"""One failure is one page: a real Alertmanager, the shipped routes, and all symptoms at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from tests.integration.alerts.alertmanager import ALERTS, GROUP_WAIT_S, Alertmanager, rest, running
from tests.servers import wait_until

pytestmark = pytest.mark.prometheus

SETTLED_S = GROUP_WAIT_S + 2.0


@pytest.fixture(scope="module")
def manager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with running(tmp_path_factory.mktemp("alertmanager")) as started:
        yield started


def labels_of_rules() -> dict[str, dict[str, str]]:
    documents = [yaml.safe_load(path.read_text()) for path in ALERTS.glob("rules/*.yaml")]
    return {
        rule["alert"]: rule["labels"]
        for document in documents
        for group in document["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }


SHIPPED = labels_of_rules()


def alert(name: str, run: str, node: str = "", **more: str) -> dict[str, str]:
    """As Prometheus would send it."""
    where = {"run": run} | ({"node": node} if node else {})
    return {"alertname": f"Holdfast{name}", **SHIPPED[f"Holdfast{name}"], **where, **more}


OF_THE_NODE = (
    "SidecarDown",
    "ProbeFailing",
    "GpuLost",
    "GpuDriverSilent",
    "NvlinkInactive",
    "FabricUnhealthy",
    "LinkDown",
    "HostHungTasks",
)
OF_THE_RUN = (
    "JobDown",
    "JobHung",
    "RanksMissing",
    "JobStuckRestarting",
    "CheckpointStale",
    "GoodputBurnFast",
)


def test_a_lost_node_with_all_its_symptoms_is_one_page_that_resolves(manager: Alertmanager) -> None:
    run = "lost"
    symptoms = [alert(name, run, "b") for name in OF_THE_NODE]
    symptoms += [alert(name, run) for name in OF_THE_RUN]
    cause, lately = alert("NodeLost", run, "b"), alert("HardwareTrouble", run)
    manager.post(*symptoms)
    manager.post(cause, lately)  # the cause may come last, as long as it comes within group_wait
    rest(SETTLED_S)
    assert manager.webhook.names("pager", run) == [["HoldfastNodeLost"]]
    assert manager.webhook.names("tickets", run) == []
    manager.post(*symptoms, over=True)
    rest(SETTLED_S)  # the cause lasts longer than they do: keep_firing_for
    manager.post(cause, over=True)
    wait_until(lambda: manager.webhook.names("pager", run, "resolved"), "the page resolves")
    assert manager.webhook.names("pager", run, "resolved") == [["HoldfastNodeLost"]]


def test_a_node_that_is_lost_while_another_s_page_is_open_joins_it_and_the_next_is_another(
    manager: Alertmanager,
) -> None:
    """The group's key is what PagerDuty tells incidents apart by, see docs/alerts.md."""
    run = "second"
    manager.post(alert("NodeLost", run, "a"), alert("NodeLost", run, "b"))
    rest(SETTLED_S)
    manager.post(alert("NodeLost", run, "c"))
    rest(SETTLED_S)
    assert manager.webhook.nodes("pager", run) == [["a", "b"], ["a", "b", "c"]]
    keys = [body["groupKey"] for _, body in manager.webhook.sent if run in body["groupKey"]]
    assert len(set(keys)) == 1
    manager.post(*(alert("NodeLost", run, node) for node in "abc"), over=True)
    wait_until(lambda: manager.webhook.names("pager", run, "resolved"), "the page resolves")
    manager.post(alert("NodeLost", run, "d"))
    rest(SETTLED_S)
    assert manager.webhook.nodes("pager", run)[2:] == [["d"]]


def test_a_run_that_is_short_of_a_node_for_days_still_pages_when_it_hangs(
    manager: Alertmanager,
) -> None:
    run = "short"
    manager.post(alert("NodeLost", run, "b"), alert("JobShrunk", run), alert("JobHung", run))
    rest(SETTLED_S)
    told = [name for names in manager.webhook.names("pager", run) for name in names]
    assert sorted(told) == ["HoldfastJobHung", "HoldfastNodeLost"]


def test_each_symptom_would_have_been_told_without_the_cause(manager: Alertmanager) -> None:
    """So that the test above can fail."""
    for name in (*OF_THE_NODE, *OF_THE_RUN):
        run = f"alone-{name.lower()}"
        manager.post(alert(name, run, "b" if name in OF_THE_NODE else ""))
    rest(SETTLED_S)
    silent = [
        name
        for name in (*OF_THE_NODE, *OF_THE_RUN)
        if not any(
            manager.webhook.names(receiver, f"alone-{name.lower()}")
            for receiver in ("pager", "tickets")
        )
    ]
    assert silent == []


def test_who_else_is_told_what(manager: Alertmanager) -> None:
    """Posted together and waited for once."""
    manager.post(
        # A spare took over: tickets, as one.
        alert("NodeReplaced", "spare", "b"),
        alert("SidecarDown", "spare", "b"),
        alert("SparesExhausted", "spare"),
        # A flapping link.
        alert("LinkFlapping", "flap", "a", device="mlx5_0"),
        # Planned work.
        alert("JobPaused", "paused"),
        alert("StoreDown", "paused"),
        alert("JobDown", "paused"),
        alert("NodeLost", "paused", "b"),
        # Redis is dead.
        alert("StoreDown", "redis"),
        alert("LeaderAnomaly", "redis"),
        alert("CheckpointStale", "redis"),
        alert("NodeLost", "redis", "b"),
        # It has given up.
        alert("JobStopped", "stopped"),
        alert("NodeLost", "stopped", "b"),
        alert("GpuXidHardware", "stopped", "b", gpu="3", xid="79", remedy="reboot_node"),
        # Ill hardware.
        alert("GpuXidHardware", "gpu", "b", gpu="3", xid="79", remedy="reboot_node"),
        alert("GpuLost", "gpu", "b"),
        alert("GpuRecoveryActionRequired", "gpu", "b", gpu="3"),
        alert("GpuUncorrectableEcc", "gpu", "b", gpu="3"),
        alert("JobDown", "gpu"),
        # Another run's trouble on the same machine stays its own.
        alert("NodeUnfit", "other", "b"),
    )
    rest(SETTLED_S)
    told = {
        (receiver, run): manager.webhook.names(receiver, run)
        for receiver in ("pager", "tickets")
        for run in ("spare", "flap", "paused", "redis", "stopped", "gpu", "other")
    }
    assert {where: names for where, names in told.items() if names} == {
        ("tickets", "spare"): [["HoldfastNodeReplaced"]],
        ("tickets", "flap"): [["HoldfastLinkFlapping"]],
        ("pager", "redis"): [["HoldfastStoreDown"]],
        ("pager", "stopped"): [["HoldfastJobStopped"]],
        ("pager", "gpu"): [["HoldfastGpuXidHardware"]],
        ("tickets", "other"): [["HoldfastNodeUnfit"]],
    }


def test_runs_whose_redis_is_away_are_one_page(manager: Alertmanager) -> None:
    runs = [f"shares-{number}" for number in range(3)]
    manager.post(*(alert("StoreDown", run) for run in runs))
    rest(SETTLED_S)
    pages = [
        sorted(one["labels"]["run"] for one in body["alerts"] if one["labels"]["run"] in runs)
        for receiver, body in list(manager.webhook.sent)
        if receiver == "pager" and body["groupLabels"].get("alertname") == "HoldfastStoreDown"
    ]
    assert [page for page in pages if page] == [runs]


def test_the_watchdog_is_passed_on_at_once(manager: Alertmanager) -> None:
    manager.post({"alertname": "HoldfastWatchdog", **SHIPPED["HoldfastWatchdog"]})
    wait_until(
        lambda: any(to == "watchdog" for to, _ in manager.webhook.sent), "the watchdog is heard"
    )
