"""A request for a checkpoint, as the command line sees it go."""

from __future__ import annotations

import dataclasses
import io

import pytest

from holdfast_sidecar.cli.checkpoint import SAVES_NOWHERE, RequestResult, look_at_request
from holdfast_sidecar.cli.tables import EVERY_S, ProgressLine, size
from holdfast_sidecar.config.settings import CheckpointSettings
from holdfast_sidecar.records.checkpoint import CheckpointOrder, FileFact, LedgerEntry, SavedPart
from holdfast_sidecar.records.codec import encode
from holdfast_sidecar.records.plan import Plan, Request
from holdfast_sidecar.records.reports import NodeReport
from holdfast_sidecar.store.protocol import Lease, Section, View

NAME = "r1"
LEDGER = LedgerEntry("aa", "/ck/x", 7, 0, 1, "", "complete", 1, 2, 0.0, requested_by="r0,r1")


def order(state: str, asked_by: str = NAME, reason: str = "") -> CheckpointOrder:
    return CheckpointOrder("aa", 0, 1, 7, "/ck/x", state, 60.0, asked_by, reason)


def request(refused: str = "") -> Request:
    return Request(NAME, "checkpoint", refused=refused)


def view(
    order: CheckpointOrder | None = None,
    request: Request | None = None,
    plan: Plan | None = None,
    parts: tuple[SavedPart, ...] = (),
    ledger: LedgerEntry | None = None,
    leader: str = "a",
) -> View:
    nodes = {
        f"n{index}": encode(NodeReport(f"n{index}", "i", 1, 0, 1, 0, True, saved=part))
        for index, part in enumerate(parts)
    }
    held = {
        Section.PLAN: plan or Plan(0, 1, "running", world_size=4),
        Section.CHECKPOINT: order,
    }
    sections = {name: {"current": encode(record)} for name, record in held.items() if record}
    if request is not None:
        sections[Section.REQUESTS] = {NAME: encode(request)}
    if ledger is not None:
        sections[Section.LEDGER] = {ledger.identifier: encode(ledger)}
    return View(Lease(1, leader), "s", {**sections, Section.NODES: nodes})


def part(*states: str, done: int = 0, total: int = 0, is_hashed: bool = False) -> SavedPart:
    return SavedPart(
        "aa",
        {str(rank): state for rank, state in enumerate(states)},
        {"x": FileFact(1, "aa")} if is_hashed else {},
        done_bytes=done,
        total_bytes=total,
    )


ASKED = request()


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (view(request=ASKED), "waiting for all ranks to be stepping"),
        (view(request=ASKED, leader=""), "waiting for a leader"),
        (view(order("armed"), ASKED), "copying step 7: 0 of 4 ranks"),
        (
            view(order("armed", "r0,r1"), ASKED, parts=(part("copied", "armed"), part("copied"))),
            "copying step 7: 2 of 4 ranks",
        ),
        (
            view(order("writing"), ASKED, parts=(part(done=2**20, total=2**22), part(done=2**20))),
            f"writing step 7: {size(2**21)} of {size(2**22)}",
        ),
        (view(order("writing"), ASKED, parts=(part(),)), "writing step 7"),
        (view(order("writing"), ASKED, parts=(part(is_hashed=True),)), "sealing step 7"),
        (
            view(order("writing", "r0"), ASKED),
            "waiting until the checkpoint of step 7 is written, which came before",
        ),
        (
            view(order("void", reason="rank 1: missed"), ASKED),
            "again, further ahead: rank 1: missed",
        ),
    ],
)
def test_it_tells_how_far_the_request_is(seen: View, told: str) -> None:
    assert look_at_request(seen, NAME) == told


@pytest.mark.parametrize(
    ("seen", "outcome"),
    [
        (view(order("complete")), RequestResult(True, "aa", 7, "/ck/x")),
        (view(order("void", reason="why")), RequestResult(False, "aa", 7, reason="why")),
        (
            view(plan=Plan(0, 1, "stopped", message="no more budget")),
            RequestResult(False, reason="the job has ended: no more budget"),
        ),
        (view(plan=Plan(0, 1, "done")), RequestResult(False, reason="the job has ended")),
    ],
)
def test_it_knows_when_the_request_is_over(seen: View, outcome: RequestResult) -> None:
    assert look_at_request(seen, NAME) == outcome


def test_a_request_met_is_known_when_the_next_order_has_taken_its_orders_place() -> None:
    later = dataclasses.replace(order("armed", asked_by=""), identifier="bb", step=47)
    assert look_at_request(view(later, ledger=LEDGER), NAME) == RequestResult(
        True, "aa", 7, "/ck/x"
    )


def test_a_request_refused_is_told_the_reason_when_the_next_order_has_taken_its_orders_place() -> (
    None
):
    later = dataclasses.replace(order("armed", asked_by=""), identifier="bb", step=47)
    refused = request("rank 3: failed")
    assert look_at_request(view(later, refused), NAME) == RequestResult(
        False, reason="rank 3: failed"
    )


def saying(seen: View, *told: CheckpointSettings | None) -> View:
    """The view, with nodes that say how checkpoints are made, as leaders do, of now or before."""
    nodes = {
        f"n{index}": encode(NodeReport(f"n{index}", "i", 1, 0, 1, 0, True, checkpoint=settings))
        for index, settings in enumerate(told)
    }
    return dataclasses.replace(seen, sections={**seen.sections, Section.NODES: nodes})


def test_a_job_that_saves_nowhere_is_not_waited_for() -> None:
    seen, nowhere = view(request=ASKED), CheckpointSettings()
    refused = RequestResult(False, reason=SAVES_NOWHERE)
    assert look_at_request(saying(seen, nowhere, None), NAME) == refused
    for told in ((None,), (nowhere, CheckpointSettings(dir="/ck"))):
        assert look_at_request(saying(seen, *told), NAME) == "waiting for all ranks to be stepping"


def test_a_request_that_the_server_has_lost_is_told_as_such() -> None:
    found = look_at_request(view(), NAME)
    assert isinstance(found, RequestResult)
    assert "lost the request" in found.reason


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_in_a_log_the_same_work_is_told_of_now_and_then() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = ProgressLine(stream, clock=clock)
    for done in range(3):
        progress.tell(f"writing {done}")
    progress.tell("sealing")
    progress.tell("sealing")
    clock.now_s += EVERY_S
    progress.tell("sealing still")
    progress.close()
    assert stream.getvalue() == "writing 0 …\nsealing …\nsealing still …\n"


def test_on_a_terminal_one_line_changes_and_goes() -> None:
    stream = Terminal()
    progress = ProgressLine(stream)
    progress.tell("writing 0")
    progress.tell("writing 1")
    progress.close()
    assert stream.getvalue().split("\r\x1b[K") == ["", "writing 0 …", "writing 1 …", ""]


def test_nothing_is_told_to_a_script() -> None:
    stream = io.StringIO()
    ProgressLine(stream, is_quiet=True).tell("writing")
    assert stream.getvalue() == ""
