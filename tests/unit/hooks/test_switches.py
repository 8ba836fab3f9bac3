"""Which hooks a rank gets."""

from __future__ import annotations

import pytest

from holdfast.contract import environment, switches
from holdfast.patches import PATCHES
from holdfast.patches.communication import PARTS


def said(text: str) -> dict[str, str]:
    return {environment.HOOKS: text}


def test_every_patch_has_a_switch() -> None:
    names = [name for name, _ in (*PATCHES, *PARTS)]
    assert set(names) <= {*switches.HOOKS, *switches.OPTIONAL}


@pytest.mark.parametrize("hook", switches.HOOKS)
def test_each_is_on_and_can_be_left_out_alone(hook: str) -> None:
    assert switches.is_on(hook, {})
    assert switches.is_on(hook, said("1"))
    assert not switches.is_on(hook, said("0"))
    left = [one for one in switches.HOOKS if switches.is_on(one, said(f"+transfers, -{hook}"))]
    assert {*left, hook} == set(switches.HOOKS)
    assert hook not in left


def test_what_is_left_out_by_default_can_be_asked_for() -> None:
    assert not switches.is_on("transfers", {})
    assert switches.is_on("transfers", said("+transfers"))


@pytest.mark.parametrize("text", ["", "0", "1", "-backward", "-data,+transfers", " -data , "])
def test_what_can_be_said(text: str) -> None:
    assert switches.problem(said(text)) == ""


@pytest.mark.parametrize("text", ["off", "backward", "-backwards", "0,-nothing"])
def test_what_can_not_is_told_with_what_can(text: str) -> None:
    told = switches.problem(said(text))
    assert repr(text.split(",")[-1]) in told
    assert "backward, buffers" in told
