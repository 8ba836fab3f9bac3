"""Handles that a backend written in Python answers: subclasses of torch's Work, waited for."""

from __future__ import annotations

import pytest

from holdfast.contract.page import Word

pytestmark = pytest.mark.torch

HANDLES = """
    import datetime
    import torch
    import torch.distributed as dist

    class Plain(dist.Work):
        pass

    class Own(dist.Work):
        def wait(self, timeout=None):
            return "own"

    class Chained(dist.Work):
        def wait(self, timeout):
            return ("chained", super().wait(timeout))

    class Further(Chained):
        def wait(self, timeout):
            return ("further", super().wait(timeout))

    def tell(work, *args, **kwargs):
        try:
            return work.wait(*args, **kwargs)
        except RuntimeError as error:
            return type(error).__name__, "timed out" in str(error)

    brief = datetime.timedelta(milliseconds=20)
    print(tell(Plain(), brief), tell(Plain(), timeout=brief), tell(Own()))
    print(tell(Chained(), brief), tell(Further(), brief))
    future = torch.futures.Future()
    future.set_result(torch.ones(2))
    print(tell(torch._C._distributed_c10d._create_work_from_future(future)))
    print(dist.Work.wait.__name__)
"""


def test_they_answer_what_they_answer_without_hooks_and_none_calls_itself(stage) -> None:
    hooked = stage.run(HANDLES)
    assert (hooked.code, hooked.err) == (0, "")
    assert stage.word(Word.HOOK_ERRORS) == 0
    env = {k: v for k, v in stage.environment().items() if "HOLDFAST" not in k}
    assert hooked.out == stage.run(HANDLES, env).out
