"""A benchmark must not measure another checkout's code under its own commit."""

from __future__ import annotations

from bench.own_code import PACKAGES, differing

OWN = {"holdfast": "/ours/holdfast/__init__.py", "holdfast_sidecar": "/ours/sidecar/__init__.py"}


def test_the_same_code_is_right() -> None:
    assert differing(OWN, OWN) == ""


def test_code_of_another_checkout_is_told_with_both_places() -> None:
    told = differing(OWN, {**OWN, "holdfast_sidecar": "/theirs/sidecar/__init__.py"})
    assert "holdfast_sidecar is installed from /theirs/sidecar/__init__.py" in told
    assert OWN["holdfast_sidecar"] in told


def test_what_is_not_installed_is_left_to_whoever_imports_it() -> None:
    assert differing(OWN, dict.fromkeys(PACKAGES, "")) == ""
