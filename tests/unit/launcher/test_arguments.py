from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from holdfast_sidecar.config.settings import BadInput  # noqa: E402
from holdfast_sidecar.launcher.arguments import parse_arguments, parse_checkpoint_every  # noqa: E402


def test_what_comes_after_the_script_is_the_scripts() -> None:
    parsed = parse_arguments(["--nnodes", "1:2", "train.py", "--job", "x", "--redis", "y"])
    assert parsed.torch.training_script_args == ["--job", "x", "--redis", "y"]
    assert (parsed.job, parsed.flags["redis.url"], parsed.torch.nnodes) == (None, None, "1:2")


def test_our_options_are_settings_under_shorter_names() -> None:
    parsed = parse_arguments(
        [
            "--redis=unix:///x",
            "--checkpoint-dir=ck",
            "--checkpoint-every=100steps",
            "--set",
            "policy.budget=3",
            "--spares=1",
            "t.py",
        ]
    )
    assert parsed.flags["redis.url"] == "unix:///x"
    assert parsed.flags["checkpoint.dir"] == "ck"
    assert parsed.sets == ("policy.budget=3", "checkpoint.every_steps=100")
    assert parsed.spares == 1


def test_max_restarts_not_given_is_told_from_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_arguments(["t.py"]).torch.max_restarts is None
    assert parse_arguments(["--max-restarts=0", "t.py"]).torch.max_restarts == 0
    monkeypatch.setenv("PET_MAX_RESTARTS", "4")
    assert int(parse_arguments(["t.py"]).torch.max_restarts) == 4


@pytest.mark.parametrize(
    ("line", "own"),
    [
        (["t.py"], True),
        (["--rdzv-backend=holdfast", "t.py"], True),
        (["--rdzv-backend=c10d", "t.py"], False),
        (["--rdzv-backend=static", "t.py"], False),
        (["--standalone", "--rdzv-backend=c10d", "t.py"], True),
    ],
)
def test_only_a_backend_given_by_name_is_torchs_own(line: list[str], own: bool) -> None:
    assert parse_arguments(line).uses_own_rendezvous is own


def test_checkpoints_are_every_so_many_steps_or_so_long() -> None:
    assert parse_checkpoint_every(None) == []
    assert parse_checkpoint_every("1step") == ["checkpoint.every_steps=1"]
    assert parse_checkpoint_every("5m") == ["checkpoint.every_steps=0", "checkpoint.every_s=5m"]


@pytest.mark.parametrize(
    "text", ["0steps", "00steps", "-3steps", "manysteps", "0", "0s", "0.0s", "0 m"]
)
def test_an_impossible_number_of_steps_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="100steps"):
        parse_checkpoint_every(text)


def test_a_negative_number_of_spares_is_refused() -> None:
    with pytest.raises(BadInput, match="--spares"):
        parse_arguments(["--spares=-1", "t.py"])
