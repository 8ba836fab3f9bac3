"""What part ranks have in the job, by the word of their launchers."""

from __future__ import annotations

from holdfast_sidecar.performance.stragglers.groups import read_roles
from holdfast_sidecar.records.plan import Member, Plan


def plan(*roles: str) -> Plan:
    members = [Member(f"n{n}", "i", n, 2 * n, 2, role) for n, role in enumerate(roles)]
    return Plan(3, 1, "running", members)


def test_roles_are_those_of_the_plan_where_there_are_several() -> None:
    assert read_roles(plan("a", "b"), 3) == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert (
        read_roles(plan("a", "a"), 3) == read_roles(plan("a", "b"), 2) == read_roles(None, 3) == {}
    )
