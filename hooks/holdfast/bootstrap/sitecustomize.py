"""Found by the interpreter of a rank because the launcher put this directory on PYTHONPATH.

Attaches Holdfast, then runs the sitecustomize that this one hides, if there is another.
"""

from __future__ import annotations

import os
import sys


def _attach() -> None:
    try:
        from holdfast.rank.attachment import arm
    except ImportError as error:
        # What a rank starts inherits our path, may be another Python, and would stay inert anyway.
        wanted = os.environ.get("HOLDFAST_PAGE_DIR") and not os.environ.get("HOLDFAST_CLAIMED")
        if wanted and os.environ.get("HOLDFAST_HOOKS") != "0":
            sys.stderr.write(f"holdfast: this Python runs without hooks: {error}\n")
        return
    arm()


def _run_the_hidden_one() -> None:
    from importlib.machinery import PathFinder

    # This directory may be on the path under two names, or be there in two copies: each of them
    # would take the other for the one that it hides, without end.
    been = vars(sys).setdefault("_holdfast_bootstraps", set())
    been.add(os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120 - no pathlib at start
    elsewhere = [path for path in sys.path if os.path.realpath(path) not in been]
    spec = PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _attach()
finally:
    _run_the_hidden_one()
