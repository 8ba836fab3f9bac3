"""Hardware that is ill: a fault, who runs where, a job in which it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.controller.simulated_job import SimulatedJob

from holdfast_sidecar.policy.cluster import Cluster
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.findings import Finding, Kind, Remedy
from holdfast_sidecar.records.plan import Incident, Member, Plan
from holdfast_sidecar.records.reports import AgentReport, NodeReport

NOW = 5000.0


LINE = "NVRM: Xid (PCI:0000:17:00): 79, pid=123, GPU has fallen off the bus."


def fault(
    remedy: Remedy = Remedy.REBOOT_NODE,
    node: str = "a",
    rank: int = 1,
    since: float = NOW,
    **given: object,
) -> Finding:
    facts = {
        "kind": Kind.GPU_FAULT,
        "node": node,
        "since_unix_s": since,
        "confidence": 0.95,
        "ranks": [rank],
        "evidence": [LINE],
        "acts": remedy.blames_hardware,
        "what": "xid 79",
        "gpu": f"GPU-{node}{rank}",
        "remedy": remedy,
    }
    return Finding(**(facts | given))  # type: ignore[arg-type]


PLAN = Plan(3, 1, "running", [Member("a", "i", 0, 0, 2), Member("b", "i", 1, 2, 2)], 4)


def cluster(
    *findings: Finding, incidents: tuple[Incident, ...] = (), mode: str = "act", spare: bool = False
) -> Cluster:
    names = ("a", "b", "c")[: 2 + spare]
    return Cluster(
        agents={
            name: AgentReport(
                name,
                "i",
                "running" if name != "c" else "joining",
                3,
                1,
                2,
                "",
                2,
                2,
                machine=f"m-{name}",
            )
            for name in names
        },
        nodes={
            name: NodeReport(
                name,
                "i",
                1,
                3,
                1,
                attempt=3 if name != "c" else -1,
                launcher_alive=True,
                findings=[f for f in findings if f.node == name],
                mode=mode,
                boot=f"boot-{name}",
            )
            for name in names
        },
        plan=PLAN,
        incidents={one.identifier: one for one in incidents},
        incident_texts={one.identifier: encode(one) for one in incidents},
    )


def crash(**given: object) -> Incident:
    facts = {
        "identifier": "x",
        "attempt": 3,
        "cause": "crash",
        "culprit_node": "a",
        "culprit_ranks": [1],
        "confidence": 0.95,
        "since_unix_s": NOW,
        "detected_unix_s": NOW,
        "signature": "ended by SIGSEGV at step 9",
        "evidence": ["rank 1: ended by SIGSEGV"],
        "culprit_part": "m-a",
    }
    return Incident(**(facts | given))  # type: ignore[arg-type]


def started(tmp_path: Path, **options: object) -> SimulatedJob:
    job = SimulatedJob(tmp_path, **options)  # type: ignore[arg-type]
    job.run_until(lambda: job.is_running(0))
    job.run(0.5)
    return job


def ill(remedy: Remedy, job: SimulatedJob, local_rank: int = 0, **given: object) -> Finding:
    """As SimulatedNode.ill wants it."""
    uuid: dict[str, Any] = {"gpu": f"GPU-{local_rank}"} | given
    return fault(remedy, rank=local_rank, since=job.now, **uuid)


def members(job: SimulatedJob) -> list[str]:
    assert job.plan is not None
    return [member.node for member in job.plan.members]
