"""Real ranks over gloo save together, are killed, and go on as if nothing had happened."""

import pytest
from tests.integration.checkpoints.ranks import directory, hash_part, plan, seal

from holdfast.contract.page import Flag, checkpoint_name
from holdfast_sidecar.records.checkpoint import CheckpointOrder

pytestmark = pytest.mark.torch


def order(step, seen_at=4, identifier="aa", **fields):
    at = seen_at if isinstance(seen_at, dict) else {"all": seen_at}
    return {"identifier": identifier, "step": step, "seen_at": at, **fields}


def files(root, step, identifier="aa"):
    return root / checkpoint_name(step, identifier)


@pytest.mark.parametrize(
    ("ranks", "config"),
    [
        (2, {}),
        (2, {"workers": 2}),
        (2, {"source": "range"}),
        (2, {"model": "fsdp", "source": "range"}),
        (2, {"model": "fsdp", "source": "range", "evaluates": True}),
        (2, {"model": "fsdp blocks", "source": "range", "evaluates": True}),
        (2, {"model": "experts", "source": "range"}),
        (1, {"optimizer": "sgd"}),
    ],
    ids=[
        "shuffled and augmented",
        "two workers",
        "by step",
        "sharded by FSDP2",
        "sharded by FSDP2 and evaluated before every boundary",
        "blocks and root sharded by FSDP2 and evaluated",
        "experts that DDP ignores",
        "one rank",
    ],
)
def test_killed_and_resumed_ends_with_the_same_bits(run_ranks, tmp_path, ranks, config):
    # A pass has 6 batches on two ranks, 12 on one: the save lies in the second or first pass.
    config = {**config, "until": 15}
    whole = run_ranks(ranks, tmp_path, config)
    cut = run_ranks(ranks, tmp_path, {**config, "orders": [order(8)], "killed_at": 11})
    assert [end.exit_code for end in cut] == [-9] * ranks
    seal(tmp_path, 8, "aa", ranks)
    resumed = run_ranks(ranks, tmp_path, config, resume=directory(tmp_path).candidates())
    for before, after in zip(whole, resumed, strict=True):
        assert after.said["start"] == after.said["word_resumed"] == 8, after.log
        assert before.said["seen"][8:] == after.said["seen"]
        assert before.said["weights"] == after.said["weights"]
        assert before.said["lr"] == after.said["lr"]
        assert before.said["random"] == after.said["random"]
        assert after.said["word_errors"] == after.said["word_failures"] == 0


@pytest.mark.parametrize(
    ("kind", "workers", "saved_at"),
    [
        ("stream", 2, 8),
        ("stateful stream", 0, 6),
        ("stateful stream", 2, 6),
        ("stateful stream", 2, 8),
    ],
)
def test_a_stream_goes_on_with_the_same_batches(run_ranks, tmp_path, kind, workers, saved_at):
    if kind == "stateful stream":
        pytest.importorskip("torchdata")
    config = {"source": kind, "workers": workers, "until": 14}  # a pass has 6 batches
    whole = run_ranks(2, tmp_path, config)
    orders = [order(saved_at, saved_at - 1)]
    run_ranks(2, tmp_path, {**config, "orders": orders, "killed_at": 9})
    seal(tmp_path, saved_at, "aa", 2)
    resumed = run_ranks(2, tmp_path, config, resume=directory(tmp_path).candidates())
    for before, after in zip(whole, resumed, strict=True):
        assert after.said["start"] == saved_at, after.log
        assert before.said["seen"][saved_at:] == after.said["seen"]
        if kind == "stream":  # torchdata makes its samples anew without their random numbers
            assert before.said["weights"] == after.said["weights"]
        assert after.said["word_errors"] == 0


def test_what_was_saved_on_an_object_store_goes_on_with_the_same_bits(run_ranks, object_store):
    root = f"{object_store.url}/job"
    # A rank that imports the driver for S3 on a busy machine may keep the other waiting.
    environment = {**object_store.environment, "HOLDFAST_CHECKPOINT_WRITE_TIMEOUT_S": "30"}
    config = {"until": 9, "model": "fsdp", "source": "range"}
    whole = run_ranks(2, root, {**config, "orders": [order(5, 2)]}, environment=environment)
    seal(root, 5, "aa", 2)
    found = directory(root).candidates()
    resumed = run_ranks(2, root, config, resume=found, environment=environment)
    for before, after in zip(whole, resumed, strict=True):
        assert after.said["start"] == 5, after.log
        assert before.said["weights"] == after.said["weights"]


def test_a_plain_run_without_holdfast_is_only_a_loop(run_ranks, tmp_path):
    (end,) = run_ranks(1, tmp_path, {"until": 3})
    assert end.said["start"] == 0
    assert end.said["steps"] == [0, 1, 2]
    assert end.said["flags"] & (Flag.STATE_REGISTERED | Flag.LOOP_WRAPPED)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("saved_by", "resumed_by"), [(2, 1), (1, 2)])
def test_another_number_of_ranks_takes_up_the_same_weights(
    run_ranks, tmp_path, saved_by, resumed_by
):
    config = {"until": 8, "orders": [order(8)]}
    saved = run_ranks(saved_by, tmp_path, config)
    seal(tmp_path, 8, "aa", saved_by)
    found = directory(tmp_path).candidates()
    for end in run_ranks(resumed_by, tmp_path, {"until": 8}, resume=found):
        assert end.said["start"] == 8, end.log
        assert end.said["weights"] == saved[0].said["weights"]


def test_sharded_state_is_resharded_for_one_rank(run_ranks, tmp_path):
    config = {"model": "fsdp", "source": "range", "until": 6, "orders": [order(6)]}
    saved = run_ranks(2, tmp_path, config)
    seal(tmp_path, 6, "aa", 2)
    found = directory(tmp_path).candidates()
    (end,) = run_ranks(1, tmp_path, {**config, "model": "unsharded", "orders": []}, resume=found)
    assert end.said["start"] == 6, end.log
    assert end.said["weights"] == saved[0].said["weights"]


def test_the_users_own_functions_save_and_load(run_ranks, tmp_path):
    config = {"functions": True, "until": 8}
    saved = run_ranks(2, tmp_path, {**config, "orders": [order(8)]})
    assert [end.states[-1] for end in saved] == ["saved"] * 2
    seal(tmp_path, 8, "aa", 2, nodes=[[0], [1]])
    found = directory(tmp_path).candidates()
    manifest = directory(tmp_path).kept()[0].manifest
    assert {"mine-0.pt", "mine-1.pt"} <= set(manifest.files)
    ends = run_ranks(2, tmp_path, config, resume=found)
    assert [end.said["start"] for end in ends] == [8, 8]


def test_the_manifest_knows_parent_position_and_layout(run_ranks, tmp_path):
    orders = [order(3, 0, "aa"), order(6, 3, "bb")]
    run_ranks(2, tmp_path, {"until": 7, "orders": orders})
    seal(tmp_path, 3, "aa", 2)
    seal(tmp_path, 6, "bb", 2)
    newest, oldest = directory(tmp_path).kept()
    assert (newest.manifest.parent, oldest.manifest.parent) == ("aa", "")
    assert newest.manifest.position == {"epoch": 0, "taken": 6}
    assert newest.manifest.random_state
    assert newest.manifest.torch_version
    found = directory(tmp_path).candidates()
    run_ranks(2, tmp_path, {"until": 10, "orders": [order(9, 7, "cc")]}, resume=found)
    seal(tmp_path, 9, "cc", 2, attempt=0)
    assert directory(tmp_path).kept()[0].manifest.parent == "bb"


def test_the_same_file_hashed_differently_by_two_nodes_is_not_sealed(run_ranks, tmp_path):
    run_ranks(1, tmp_path, {"until": 4, "orders": [order(3, 1)]})
    checkpoints = directory(tmp_path)
    armed = CheckpointOrder("aa", 0, 1, 3, checkpoints.path(3, "aa"), "armed", 60.0)
    one = hash_part(armed, [0])
    (files(tmp_path, 3) / "__0_own.pt").write_bytes(b"other")
    with pytest.raises(OSError, match="different bytes"):
        checkpoints.finish(armed, plan(1), [one, hash_part(armed, [0])])
    assert checkpoints.candidates() == []
