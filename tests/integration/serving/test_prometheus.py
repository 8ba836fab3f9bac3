"""A real Prometheus finds a job's sidecars by itself, and a change of leader is no news to it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests import prometheus_server
from tests.integration.sidecar.node import Node, wait_for
from tests.servers import Server, free_port, required
from tests.unit.export.asking import make_certificate

from holdfast_sidecar.records.checkpoint import CheckpointTally
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.store.protocol import CURRENT, TALLY, Section

pytestmark = pytest.mark.prometheus

SHIPPED = Path(__file__).parents[3] / "deploy" / "prometheus"

COUNTERS = (
    "holdfast_job_restarts_total",
    "holdfast_job_incidents_total",
    "holdfast_job_lost_steps_total",
    "holdfast_checkpoint_saves_total",
    "holdfast_checkpoint_duration_seconds_count",
)


def tell_history(server: Server) -> None:
    """What a job that is over left in the store: nobody acts on it, its leader tells of it."""
    store = server.store("job")
    lease = store.campaign("history/x", 60.0, 0)
    plan = Plan(
        7,
        lease.epoch,
        "done",
        [Member("a", "x", 0, 0, 1), Member("b", "x", 1, 1, 1)],
        2,
        restarts=7,
    )
    written = [(Section.PLAN, CURRENT, encode(plan))]
    tally = CheckpointTally({"complete periodic": 400}, 400, 20.0, 800.0)
    written.append((Section.CHECKPOINT, TALLY, encode(tally)))
    for number in range(7):
        one = Incident(
            f"i{number}",
            number,
            "crash",
            recovered_unix_s=100.0,
            step_reached=50,
            step_resumed=40,
            decided="restart",
        )
        written.append((Section.INCIDENTS, one.identifier, encode(one)))
    for section, field, text in written:
        assert store.order(lease, section, field, text, None)
    store.resign("history/x")


@pytest.fixture
def nodes(tmp_path: Path, server: Server) -> Iterator[dict[str, Node]]:
    tell_history(server)
    made = {name: Node(tmp_path / name, server, name=name) for name in "ab"}
    yield made
    for node in made.values():
        node.close()


def scrape_block(*addresses: str, shipped: str = "prometheus.yml") -> str:
    """The block as it is shipped, but for where the sidecars are and how often they are asked."""
    config = yaml.safe_load((SHIPPED / shipped).read_text())
    config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    (block,) = config["scrape_configs"]
    (first, *_) = block["http_sd_configs"]
    block["http_sd_configs"] = [
        {**first, "url": address, "refresh_interval": "1s"} for address in addresses
    ]
    return str(yaml.safe_dump({"global": config["global"], "scrape_configs": [block]}))


def all_up(seen: dict[str, float]) -> bool:
    return seen == {"a": 1.0, "b": 1.0}


def test_both_sidecars_are_found_and_a_leader_that_dies_makes_no_spike(
    nodes: dict[str, Node], tmp_path: Path
) -> None:
    required("prometheus")
    ports = {name: free_port() for name in nodes}
    sidecars = {
        name: node.sidecar("--listen", f"127.0.0.1:{ports[name]}") for name, node in nodes.items()
    }
    seeds = [f"http://127.0.0.1:{port}/sd" for port in ports.values()]
    with prometheus_server.running(tmp_path / "prometheus", scrape_block(*seeds)) as prometheus:
        prometheus.wait_for('up{job="holdfast-sidecar",run="job"}', all_up)
        leaders = prometheus.wait_for("holdfast_node_is_leader == 1", lambda seen: len(seen) == 1)
        leader = next(iter(leaders))
        prometheus.wait_for("count_over_time(holdfast_job_restarts_total[1m]) > 3", bool)
        ((labels, restarts),) = prometheus.query("holdfast_job_restarts_total")
        assert labels == {
            "__name__": "holdfast_job_restarts_total",
            "job": "holdfast-sidecar",
            "run": "job",
        }
        assert restarts == 7

        sidecars[leader].kill()
        (other,) = set(nodes) - {leader}
        prometheus.wait_for(f'up{{node="{leader}"}} == 0', bool)
        prometheus.wait_for(f'holdfast_node_is_leader{{node="{other}"}} == 1', bool)
        taken_over_s = time.monotonic()
        prometheus.wait_for("holdfast_job_restarts_total", bool)
        wait_for(lambda: time.monotonic() > taken_over_s + 3.0)
        for name in COUNTERS:
            told = prometheus.query(name)
            assert told, name
            assert max(value for _, value in told) >= 7, name
            for spike in (f"increase({name}[1m])", f"resets({name}[1m])"):
                assert {value for _, value in prometheus.query(spike)} == {0.0}, spike
            (once,) = {v for _, v in prometheus.query(f"count(count_over_time({name}[1m]))")}
            assert once == len(told), f"{name} became another series"
        assert prometheus.query(f'up{{node="{leader}"}}')[0][1] == 0
        beats = prometheus.query("holdfast_node_last_heartbeat_timestamp_seconds")
        assert {labels["node"] for labels, _ in beats} == {"a", "b"}
        assert all("instance" not in labels for labels, _ in beats)


def test_over_tls_with_a_token_the_shipped_block_finds_them_too(
    nodes: dict[str, Node], tmp_path: Path
) -> None:
    required("openssl")
    certificate, key = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    port = free_port()
    settings = {"tls_cert_file": certificate, "tls_key_file": key, "token_file": token}
    given = [word for k, v in settings.items() for word in ("--set", f"sidecar.{k}={v}")]
    nodes["a"].sidecar("--listen", f"127.0.0.1:{port}", *given)
    nodes["b"].sidecar(*given)
    config = scrape_block(f"https://127.0.0.1:{port}/sd", shipped="prometheus-tls.yml")
    config = config.replace("/etc/prometheus/holdfast-token", str(token))
    config = config.replace("/etc/prometheus/holdfast-ca.crt", str(certificate))
    with prometheus_server.running(tmp_path / "prometheus", config) as prometheus:
        prometheus.wait_for('up{job="holdfast-sidecar",run="job"}', all_up)


@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-tls.yml"])
def test_promtool_takes_what_is_shipped(name: str) -> None:
    promtool = required("promtool")
    done = subprocess.run(
        [promtool, "check", "config", "--syntax-only", str(SHIPPED / name)],
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stdout + done.stderr
