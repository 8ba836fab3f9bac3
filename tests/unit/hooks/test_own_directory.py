"""What is ours is opened part by part, and nothing else is taken for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from holdfast.contract.own_directory import NotPrivate, make_closed, open_node, open_private
from holdfast.contract.owned import remove_own

STRANGER = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes files of another user: needs root")


def opens(path: Path, own_parts: int = 3, make: bool = False) -> str:
    """Which directory was opened."""
    folder = open_private(path, own_parts, make=make)
    try:
        return os.readlink(f"/proc/self/fd/{folder}")
    finally:
        os.close(folder)


def test_what_is_missing_of_ours_is_made_private(tmp_path: Path) -> None:
    ours = tmp_path / "holdfast-7" / "job" / "node"
    with pytest.raises(FileNotFoundError):
        opens(ours)
    before = os.umask(0)
    try:
        assert opens(ours, make=True) == str(ours)
    finally:
        os.umask(before)
    parts = (ours, ours.parent, ours.parent.parent)
    assert [stat.S_IMODE(part.stat().st_mode) for part in parts] == [0o700] * 3


def test_what_the_user_named_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        opens(tmp_path / "not-mounted" / "holdfast-7" / "job" / "node", make=True)


def test_links_of_ours_may_stand_in_what_the_user_named(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("absolute/deep/../deep")
    named = tmp_path / "relative" / "holdfast-7" / "job" / "node"
    assert opens(named, make=True) == str(tmp_path / "real/deep/holdfast-7/job/node")


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        opens(tmp_path / "a" / "holdfast-7" / "job" / "node")


@needs_root
def test_a_link_of_another_users_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    os.chown(tmp_path / "link", STRANGER, STRANGER, follow_symlinks=False)
    with pytest.raises(NotPrivate, match="is a link of another user"):
        opens(tmp_path / "link" / "holdfast-7" / "job" / "node", make=True)


@pytest.mark.parametrize("part", ["holdfast-7", "holdfast-7/job", "holdfast-7/job/node"])
@pytest.mark.parametrize("make", [False, True])
def test_below_that_no_link_is_followed_even_one_of_ours(
    tmp_path: Path, part: str, make: bool
) -> None:
    ours = tmp_path / "holdfast-7" / "job" / "node"
    opens(ours, make=True)
    (tmp_path / part).rename(tmp_path / "aside")
    (tmp_path / part).symlink_to(tmp_path / "aside")
    with pytest.raises(NotPrivate, match=f"{part} is not a directory of yours"):
        opens(ours, make=make)


@needs_root
@pytest.mark.parametrize("part", ["holdfast-7", "holdfast-7/job", "holdfast-7/job/node"])
@pytest.mark.parametrize("make", [False, True])
def test_a_part_of_another_users_is_refused(tmp_path: Path, part: str, make: bool) -> None:
    ours = tmp_path / "holdfast-7" / "job" / "node"
    opens(ours, make=True)
    os.chown(tmp_path / part, STRANGER, STRANGER)
    with pytest.raises(NotPrivate, match=f"{part} is not a directory of yours"):
        opens(ours, make=make)


@pytest.mark.parametrize("make", [False, True])
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_part_that_others_may_write_is_refused_and_left_as_it_is(
    tmp_path: Path, make: bool, mode: int
) -> None:
    ours = tmp_path / "holdfast-7" / "job" / "node"
    opens(ours, make=True)
    ours.parent.chmod(mode)
    with pytest.raises(NotPrivate, match=r"others may write into .*job: chmod 700 it"):
        opens(ours, make=make)
    assert stat.S_IMODE(ours.parent.stat().st_mode) == mode


@pytest.mark.parametrize("make", [False, True])
def test_a_part_that_others_may_read_is_used_and_left_as_it_is(tmp_path: Path, make: bool) -> None:
    ours = tmp_path / "holdfast-7" / "job" / "node"
    opens(ours, make=True)
    ours.parent.chmod(0o755)
    assert opens(ours, make=make) == str(ours)
    assert stat.S_IMODE(ours.parent.stat().st_mode) == 0o755


def test_directories_are_made_closed_with_all_that_are_missing_above(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        make_closed(tmp_path / "a" / "b" / "c")
        make_closed(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    made = [tmp_path / "a", tmp_path / "a/b", tmp_path / "a/b/c"]
    assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="exists"):
        make_closed(tmp_path / "file")


def test_removing_ours_follows_no_link(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("x")
    ours = tmp_path / "ours"
    (ours / "deep" / "er").mkdir(parents=True)
    (ours / "deep" / "file").write_text("x")
    (ours / "deep" / "link").symlink_to(precious)
    (tmp_path / "link").symlink_to(precious)
    above = os.open(tmp_path, os.O_RDONLY)
    try:
        remove_own(above, "ours")
        with pytest.raises(NotPrivate):
            remove_own(above, "link")
        remove_own(above, "gone")
    finally:
        os.close(above)
    assert not ours.exists()
    assert (precious / "thesis.tex").exists()


def test_of_a_nodes_directory_all_is_ours_that_we_chose(tmp_path: Path) -> None:
    ours = tmp_path / "holdfast-7" / "job" / "node"
    opens(ours, make=True)
    ours.parent.chmod(0o777)
    with pytest.raises(NotPrivate, match="others may write"):
        open_node(ours)
    given = tmp_path / "everybodys" / "given"
    given.mkdir(parents=True, mode=0o700)
    given.parent.chmod(0o1777)
    os.close(open_node(given))
