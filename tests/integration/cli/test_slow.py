"""Who is slow and how well a job does, read from a real store."""

import dataclasses
import json

from tests.unit.records.slow_job import STANDING, line

from holdfast_sidecar.records.steps import spell
from holdfast_sidecar.store.protocol import Section


def slow_job(job):
    """Four ranks on two nodes, node a leads; rank 3 is slow."""
    job.leave_record()
    job.add_node("a", 0)
    job.add_node("b", 1)
    job.plan()
    job.lead()
    slow = [dataclasses.replace(STANDING.slow[0], ranks=[3])]
    told = dataclasses.replace(STANDING, attempt=1, slow=slow)
    for number, name in enumerate("ab"):
        steps = [spell(line(rank)) for rank in (2 * number, 2 * number + 1)]
        report = dataclasses.replace(
            job.nodes[number], steps=steps, slow=told if name == "a" else None
        )
        job.nodes[number] = report
        job.write(Section.NODES, name, report)


def test_who_is_slow_and_how_well_it_does_is_read_from_the_nodes_reports(job, run):
    slow_job(job)
    told = run("explain", "--slow")
    assert told.exit_code == 0, told.output
    assert told.output.startswith("job chargpt: rank 3 on b is slow\n")
    assert "rank 3  b  █" in told.output
    assert told.output.count("waiting\n") + told.output.count("<- slow") == 4
    report = run("report", "--json")
    assert report.exit_code == 0, report.output
    assert json.loads(report.output)["efficiency"]["mfu"] == 0.382


def test_the_status_says_it_in_a_line(job, run):
    slow_job(job)
    job.live()
    told = run("status")
    assert "slow        rank 3 on b, +31 % since step 1200: cpu_quota; the job" in told.output
    plain = json.loads(run("status", "--json").output)
    assert plain["slow"]["slow"][0]["ranks"] == [3]
