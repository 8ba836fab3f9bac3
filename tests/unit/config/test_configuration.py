import dataclasses
from pathlib import Path

import pytest

from holdfast_sidecar.config import loading
from holdfast_sidecar.config.settings import BadInput, Settings


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment and a working directory without any settings file."""
    monkeypatch.chdir(tmp_path)
    return {"XDG_CONFIG_HOME": str(tmp_path / "none")}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_without_anything_given_the_defaults_are_in_force(nowhere: dict[str, str]) -> None:
    effective = loading.load(environment=nowhere)
    assert effective.settings == Settings()
    assert set(effective.origins.values()) == {"default"}
    assert effective.file is None


def test_flag_beats_environment_beats_file_beats_default(
    tmp_path: Path, nowhere: dict[str, str]
) -> None:
    file = write(tmp_path / "my.toml", "[checkpoint]\nkeep = 4\nevery_s = 40\ndeadline_s = 44\n")
    environment = nowhere | {
        "HOLDFAST_SET_CHECKPOINT_EVERY_S": "50",
        "HOLDFAST_SET_CHECKPOINT_DEADLINE_S": "55",
    }
    effective = loading.load(file, ["checkpoint.deadline_s=66"], environment=environment)
    checkpoint = effective.settings.checkpoint
    assert (checkpoint.keep, checkpoint.every_s, checkpoint.deadline_s) == (4, 50.0, 66.0)
    assert effective.origins["checkpoint.keep"] == f"file {file}"
    assert effective.origins["checkpoint.every_s"] == "environment HOLDFAST_SET_CHECKPOINT_EVERY_S"
    assert effective.origins["checkpoint.deadline_s"] == "command line"
    assert effective.origins["checkpoint.every_steps"] == "default"


def test_a_flag_of_its_own_beats_set_and_is_ignored_when_not_given(
    nowhere: dict[str, str],
) -> None:
    effective = loading.load(
        sets=["redis.url=unix:///a"],
        flags={"redis.url": "unix:///b", "redis.user": None},
        environment=nowhere,
    )
    assert effective.settings.redis.url == "unix:///b"
    assert effective.origins["redis.user"] == "default"


def test_redis_comes_from_its_own_environment_names(nowhere: dict[str, str]) -> None:
    environment = nowhere | {
        "HOLDFAST_REDIS": "redis://h:1",
        "HOLDFAST_REDIS_USER": "u",
        "HOLDFAST_REDIS_PASSWORD_FILE": "/p",
        "HOLDFAST_REDIS_PASSWORD": "secret",
    }
    effective = loading.load(environment=environment)
    redis = effective.settings.redis
    assert (redis.url, redis.user, redis.password_file) == ("redis://h:1", "u", "/p")
    assert effective.origins["redis.url"] == "environment HOLDFAST_REDIS"
    assert "secret" not in repr(effective)


def test_the_first_file_found_is_read_and_no_other(tmp_path: Path, nowhere: dict[str, str]) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    write(tmp_path / "config/holdfast/holdfast.toml", "[checkpoint]\nkeep = 7\nevery_s = 70\n")
    assert loading.load(environment=environment).settings.checkpoint.keep == 7
    write(tmp_path / "holdfast.toml", "[checkpoint]\nkeep = 8\n")
    checkpoint = loading.load(environment=environment).settings.checkpoint
    assert (checkpoint.keep, checkpoint.every_s) == (8, 0.0)


def test_paths_are_made_absolute(tmp_path: Path, nowhere: dict[str, str]) -> None:
    effective = loading.load(sets=["checkpoint.dir=ck"], environment=nowhere)
    assert effective.settings.checkpoint.dir == str(tmp_path / "ck")


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no settings file .*gone\.toml"):
        loading.load(tmp_path / "gone.toml", environment={})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[checkpoint]\nevry_s = 3",
            r"unknown setting checkpoint\.evry_s .*nearest: checkpoint\.e",
        ),
        ("[chekpoint]\nkeep = 3", r"unknown section \[chekpoint\]; known: checkpoint, redis, "),
        ("checkpoint = 3", r"checkpoint is a section"),
        ("[checkpoint]\nkeep = 'many'", r"checkpoint\.keep = 'many' .*expected a whole number"),
        ("[checkpoint]\nkeep = 2.5", r"expected a whole number"),
        ("[checkpoint]\nkeep = true", r"expected a whole number"),
        ("[checkpoint]\nevery_s = '5 parsecs'", r"a duration is written 90, 90s"),
        ("[checkpoint]\nevery_s = -1", r"must not be negative"),
        ("[checkpoint]\nevery_s = nan", r"expected a duration"),
        ("[checkpoint]\ndir = 3", r"expected text"),
        ("[checkpoint", r"not valid TOML"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_what_is_wrong(
    tmp_path: Path, text: str, says: str
) -> None:
    file = write(tmp_path / "holdfast.toml", text)
    with pytest.raises(BadInput, match=says) as refused:
        loading.load(file, environment={})
    assert "\n" not in str(refused.value)
    assert str(file) in str(refused.value)


def test_an_unknown_section_lists_every_known_one() -> None:
    with pytest.raises(BadInput) as refused:
        loading.load(sets=["stal.factor=2"], environment={})
    assert "known sections: stall, " in str(refused.value)
    for field in dataclasses.fields(Settings):
        assert field.name in str(refused.value)


def test_an_unknown_name_in_a_section_is_followed_by_three_of_that_section() -> None:
    with pytest.raises(BadInput) as refused:
        loading.load(sets=["stall.factr=2"], environment={})
    _, _, suggested = str(refused.value).partition("nearest: ")
    meant = suggested.split(" (")[0].split(", ")
    assert meant[0] == "stall.factor"
    assert len(meant) == 3
    assert set(meant) <= set(loading.known_names())


def test_an_unknown_environment_setting_is_refused_with_the_nearest_first() -> None:
    with pytest.raises(BadInput, match="nearest: HOLDFAST_SET_CHECKPOINT_EVERY_S, "):
        loading.load(environment={"HOLDFAST_SET_CHECKPOINT_EVRY_S": "3"})


def test_set_wants_an_equals_sign() -> None:
    with pytest.raises(BadInput, match=r"section\.name=value"):
        loading.load(sets=["checkpoint.keep"], environment={})


def test_a_ladder_in_the_wrong_order_is_refused(nowhere: dict[str, str]) -> None:
    sets = ["sidecar.heartbeat_s=1"]
    with pytest.raises(BadInput, match=r"wrong order.*sidecar\.node_timeout_s = 1\.1 s"):
        loading.load(sets=sets, environment=nowhere)
    assert loading.read(sets=sets, environment=nowhere).settings.sidecar.heartbeat_s == 1


def test_a_child_started_with_our_arguments_has_the_same_settings(
    tmp_path: Path, nowhere: dict[str, str]
) -> None:
    file = write(tmp_path / "my.toml", "[checkpoint]\nkeep = 4\n")
    environment = nowhere | {"HOLDFAST_REDIS": "redis://:secret@h:1"}
    ours = loading.load(
        file, ["paths.shm_reserve_bytes=1MiB"], {"checkpoint.dir": "/c"}, environment
    )
    arguments = loading.arguments(ours)
    assert "secret" not in " ".join(arguments)
    sets = [
        value
        for flag, value in zip(arguments[::2], arguments[1::2], strict=True)
        if flag == "--set"
    ]
    theirs = loading.load(arguments[1], sets, environment=environment)
    assert theirs.settings == ours.settings
