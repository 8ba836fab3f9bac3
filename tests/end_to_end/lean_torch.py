"""Leaves torch's compiler out of a rank that compiles nothing: `leave_out`, after torch's import.

The constructor of DistributedDataParallel and the first call of an optimizer import torch._dynamo,
which takes a rank as much CPU time as all the rest of torch. What they then ask of it is below;
whatever else is asked of it is an error. The tests in checkpoint/, adapters/ and run/ that bring
scripts of their own have it whole.
"""

import sys
from types import ModuleType
from typing import Any


class Absent(ModuleType):
    """What eager training asks of torch._dynamo."""

    utils: Any
    trace_rules: Any

    def disable(self, function=None, recursive=True, **_):
        return function if function is not None else lambda decorated: decorated

    def graph_break(self, msg=""):
        pass


def leave_out():
    """Later imports of torch._dynamo find a stand-in. What watches for its import sees none."""
    import torch

    if "torch._dynamo" in sys.modules:
        return
    absent = Absent("torch._dynamo")
    absent.utils = ModuleType("torch._dynamo.utils")
    absent.utils.get_optimize_ddp_mode = lambda: "ddp_optimizer"
    absent.trace_rules = ModuleType("torch._dynamo.trace_rules")
    absent.trace_rules.clear_lru_cache = lambda: None
    sys.modules["torch._dynamo"] = torch._dynamo = absent
