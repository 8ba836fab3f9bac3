"""Real ranks take snapshots, one is killed at a bad moment, and all go on from what they share."""

import os

import pytest
from tests.integration.checkpoints.ranks import JOB
from tests.unit.three_lines.slots import make_slot, sealed_steps

from holdfast.contract.snapshot_file import OWN_DIRECTORY
from holdfast.state.resuming import Candidate

pytestmark = pytest.mark.torch

UNTIL = 12
SNAPSHOT = [Candidate("snapshot", "", -1, "snapshot")]


class Node:
    """The directory of shared memory of one node, with slots as the sidecar makes them."""

    def __init__(self, run_ranks, path, ranks, slots=2):
        self.run_ranks, self.path, self.ranks, self.slots = run_ranks, path, ranks, slots
        self.folder = path / OWN_DIRECTORY
        for rank in range(ranks):
            for number in range(slots):
                make_slot(self.folder, rank, number, 1 << 20)

    def run(self, attempt, config, per_rank=None, resume=SNAPSHOT):
        environment = {"HOLDFAST_PAGE_DIR": str(self.path), "HOLDFAST_ATTEMPT": str(attempt)}
        config = {"until": UNTIL, "slots": self.slots, **config}
        resume = resume if attempt else None
        return self.run_ranks(
            self.ranks, self.path / "none", config, resume, per_rank, environment=environment
        )

    def steps(self):
        return [set(sealed_steps(self.folder, rank)) - {None} for rank in range(self.ranks)]


@pytest.fixture(scope="module")
def undisturbed(run_ranks, tmp_path_factory):
    """How a run ends that nobody disturbs; run once for each configuration."""
    root = tmp_path_factory.mktemp("undisturbed")
    ends = {}

    def run(ranks, **config):
        key = (ranks, repr(sorted(config.items())))
        if key not in ends:
            ends[key] = run_ranks(ranks, root, {"until": UNTIL, **config})
        return ends[key]

    return run


@pytest.fixture
def node(run_ranks, tmp_path):
    def make(ranks, slots=2):
        return Node(run_ranks, tmp_path, ranks, slots)

    return make


def assert_equal(whole, resumed, start):
    for before, after in zip(whole, resumed, strict=True):
        assert after.said["start"] == after.said["word_resumed"] == start, after.log
        assert before.said["seen"][start:] == after.said["seen"]
        assert before.said["weights"] == after.said["weights"]
        assert before.said["lr"] == after.said["lr"]
        assert before.said["random"] == after.said["random"]
        assert after.said["word_errors"] == 0


@pytest.mark.parametrize(
    ("ranks", "slots", "config"),
    [
        (2, 2, {}),
        (2, 3, {"workers": 2}),
        (2, 2, {"model": "fsdp", "source": "range"}),
        (2, 3, {"model": "fsdp blocks", "source": "range", "evaluates": True}),
        (2, 2, {"model": "own"}),
        (1, 2, {"optimizer": "sgd"}),
    ],
    ids=[
        "two",
        "DataLoader workers",
        "FSDP2",
        "FSDP2, evaluated",
        "ranks with models of their own",
        "one",
    ],
)
def test_whoever_is_killed_all_go_on_from_the_last_boundary(
    node, undisturbed, ranks, slots, config
):
    here = node(ranks, slots)
    whole = undisturbed(ranks, **config)
    cut = here.run(0, config, per_rank={ranks - 1: {"killed_at": 7}})
    assert cut[ranks - 1].exit_code == -9
    start = 7
    if config.get("model") == "own":  # nobody waits for anybody, so they may have been apart
        start = max(set.intersection(*here.steps()), default=0)
    assert_equal(whole, here.run(1, config), start)


@pytest.mark.parametrize(
    ("moment", "start", "slots"),
    [
        ("in the copy", 6, 2),
        ("in the copy", 6, 3),
        ("before the others know", 7, 2),
        ("after the others know", 7, 2),
    ],
)
def test_a_rank_killed_inside_the_boundary_takes_no_completed_step_with_it(
    node, undisturbed, moment, start, slots
):
    here = node(4, slots)
    whole = undisturbed(4)
    here.run(0, {}, per_rank={2: {"moment": moment, "dies_at": 7}})
    assert set.intersection(*here.steps()) >= {start}
    assert_equal(whole, here.run(1, {}), start)


def test_killed_again_and_again_it_still_ends_with_the_same_bits(node, undisturbed):
    here = node(2)
    whole = undisturbed(2)
    here.run(0, {}, per_rank={0: {"killed_at": 3}})
    here.run(1, {}, per_rank={1: {"moment": "in the copy", "dies_at": 6}})
    here.run(2, {}, per_rank={0: {"moment": "after the others know", "dies_at": 6}})
    here.run(3, {}, per_rank={0: {"killed_at": 6}, 1: {"killed_at": 6}})
    assert_equal(whole, here.run(4, {}), start=6)


def test_what_lies_ahead_of_where_the_job_goes_on_is_cleared(node):
    here = node(2)
    here.run(0, {}, per_rank={1: {"moment": "in the copy", "dies_at": 7}})
    assert here.steps() == [{6, 7}, {6}]
    here.run(1, {"until": 6})
    assert here.steps() == [{6}, {6}]


def test_a_torn_slot_a_foreign_one_and_none_at_all_are_not_gone_on_from(node):
    here = node(2)
    here.run(0, {"until": 5})
    assert here.steps() == [{4, 5}, {4, 5}]
    five = next(path for path in here.folder.glob("rank-0-*") if _header(path).sealed_step == 5)
    os.truncate(five, 4096)
    ends = here.run(1, {"until": 6})
    assert [end.said["start"] for end in ends] == [4, 4]
    for path in here.folder.glob("rank-1-*"):
        data = path.read_bytes()
        path.write_bytes(data.replace(JOB.encode(), b"tasted"))
    ends = here.run(2, {"until": 6})
    assert [end.said["start"] for end in ends] == [0, 0]
    assert "no snapshot is whole on all ranks" in ends[0].log


def _header(path):
    from holdfast.contract.snapshot_file import parse_header

    return parse_header(path.read_bytes())


def test_numbers_that_are_not_finite_take_all_ranks_to_the_one_before(node):
    here = node(2)
    here.run(0, {"until": 5})
    for path in here.folder.glob("rank-1-*"):
        header = _header(path)
        if header.sealed_step == 5:
            data = bytearray(path.read_bytes())
            data[header.data_offset : header.data_offset + 4] = b"\x00\x00\xc0\x7f"
            path.write_bytes(data)
    first, second = here.run(1, {"until": 6})
    assert (first.said["start"], second.said["start"]) == (4, 4)
    assert "not finite" in second.log


def test_those_since_numbers_went_wrong_are_not_gone_on_from(node):
    here = node(2)
    here.run(0, {"until": 5})
    before = [Candidate("snapshot", "", 4, "snapshot", below=5)]
    first, second = here.run(1, {"until": 6}, resume=before)
    assert (first.said["start"], second.said["start"]) == (4, 4)


def test_snapshots_behind_the_newest_checkpoint_are_not_used(node):
    here = node(2)
    here.run(0, {"until": 5})
    ahead = [*SNAPSHOT, Candidate("aa", str(here.path / "gone"), 6)]
    for end in here.run(1, {"until": 6}, resume=ahead):
        assert end.exit_code != 0
        assert "none of the checkpoints could be loaded" in end.log
    assert here.steps() == [set(), set()]
