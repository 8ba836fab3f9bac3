"""A node's part: its ranks' states at once, its files once they are hashed."""

from dataclasses import dataclass

from holdfast.page import Identity, Reply, ReplyState
from holdfast_sidecar.checkpoints.hashing import list_files, owner
from holdfast_sidecar.checkpoints.parts import PartHashing, states_of
from holdfast_sidecar.coordination.reports import CheckpointOrder


@dataclass
class Look:
    identity: Identity
    reply: Reply | None


def look(rank, state, identifier="aa", attempt=0):
    reply = None if state is None else Reply(state, 5, 1, 1, identifier)
    return Look(Identity(1, 1, attempt, 1, rank, rank, 2, 1, "a", "j"), reply)


def order(path, identifier="aa", state="armed"):
    return CheckpointOrder(identifier, 0, 1, 5, str(path), state, 60.0)


def test_states_are_those_of_this_order_and_attempt():
    looks = [
        look(0, ReplyState.SAVED),
        look(1, ReplyState.SAVED, identifier="older"),
        look(2, None),
        look(3, ReplyState.SAVED, attempt=9),
    ]
    assert states_of(order("x"), looks) == {"0": "saved", "1": "none", "2": "none"}


def test_nothing_is_hashed_before_every_local_rank_saved(tmp_path):
    (tmp_path / "__0_own.pt").write_bytes(b"x")
    hashing = PartHashing()
    looks = [look(0, ReplyState.SAVED), look(1, ReplyState.SAVING)]
    part = hashing.follow(order(tmp_path), looks)
    assert hashing.wait(0)
    assert part.states == {"0": "saved", "1": "saving"}
    assert part.files == {}


def test_the_files_of_the_nodes_own_ranks_are_hashed(tmp_path):
    for name in ("__0_own.pt", "__1_0.distcp", "__2_own.pt", ".metadata", "manifest.json"):
        (tmp_path / name).write_bytes(b"x")
    hashing = PartHashing()
    looks = [look(0, ReplyState.SAVED), look(1, ReplyState.SAVED)]
    hashing.follow(order(tmp_path), looks)
    assert hashing.wait(10)
    part = hashing.follow(order(tmp_path), looks)
    assert set(part.files) == {"__0_own.pt", "__1_0.distcp", ".metadata"}
    assert part.error == ""


def test_a_part_outlives_its_ranks(tmp_path):
    (tmp_path / "__0_own.pt").write_bytes(b"x")
    hashing = PartHashing()
    hashing.follow(order(tmp_path), [look(0, ReplyState.SAVED)])
    assert hashing.wait(10)
    part = hashing.follow(order(tmp_path), [])
    assert part.states == {"0": "saved"}
    assert set(part.files) == {"__0_own.pt"}


def test_files_that_can_not_be_found_are_an_error_and_no_silence(tmp_path):
    hashing = PartHashing()
    hashing.follow(order(tmp_path / "elsewhere"), [look(0, ReplyState.SAVED)])
    assert hashing.wait(10)
    assert "holds no file" in hashing.follow(order(tmp_path / "elsewhere"), []).error


def test_a_new_order_starts_anew(tmp_path):
    (tmp_path / "__0_own.pt").write_bytes(b"x")
    hashing = PartHashing()
    hashing.follow(order(tmp_path), [look(0, ReplyState.SAVED)])
    assert hashing.wait(10)
    part = hashing.follow(order(tmp_path, identifier="bb"), [look(0, ReplyState.SAVED)])
    assert (part.identifier, part.states, part.files) == ("bb", {"0": "none"}, {})


def test_without_an_order_there_is_no_part():
    assert PartHashing().follow(None, [look(0, None)]) is None


def test_what_names_no_rank_is_rank_zeros(tmp_path):
    assert [owner(n) for n in ("__12_0.distcp", ".metadata", "mine/__1_x")] == [12, 0, 0]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "weights.pt").write_bytes(b"x")
    (tmp_path / "poisoned-1.json").write_bytes(b"x")
    (tmp_path / ".x.writing").write_bytes(b"x")
    assert list_files(tmp_path, [0]) == ["mine/weights.pt"]
    assert list_files(tmp_path, [1]) == []
