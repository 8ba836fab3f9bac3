"""Where the project's files that are not code lie: examples, dashboards, alerts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def asset(name: str) -> Path:
    """A file or folder named as in the repository, such as `examples/chargpt.py`.

    A checkout has them at its top, a wheel carries them as the package `holdfast_assets`.
    FileNotFoundError when this installation has neither.
    """
    for root in _roots():
        if (root / name).exists():
            return root / name
    raise FileNotFoundError(f"{name} is neither in the wheel nor in a checkout of Holdfast")


def _roots() -> list[Path]:
    # An editable install has copies too, as old as the day it was made: the checkout comes first.
    above = Path(__file__).parents[2]
    checkout = [above] if (above / "pyproject.toml").exists() else []
    packed = find_spec("holdfast_assets")
    places = [] if packed is None else packed.submodule_search_locations
    return [*checkout, *(Path(place) for place in places or [])]
