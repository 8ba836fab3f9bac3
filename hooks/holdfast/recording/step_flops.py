"""How many floating-point operations one step of this rank needs, for the utilisation that is told.

The script's own word counts first, else 6 for each parameter and token. A step is counted, by
torch's own counter, only where the user asks for it: every operation then passes through Python.
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.contract import environment
from holdfast.contract.page import Word, float_bits
from holdfast.recording.device_peaks import peak_flops
from holdfast.recording.env_numbers import read_number
from holdfast.recording.interface import Recording
from holdfast.recording.recorder import Recorder

log = logging.getLogger(__name__)

COUNTED = 4
"""The step that is counted: DDP is settled by the third, and so are lazy states."""

TOLD_EVERY = 16
"""Steps of which the middle one's tokens are told. In one in which the script evaluates more
batches are fetched than it trains on."""

PER_PARAMETER = 6
"""Of a dense model for each token: 2 forward, 4 backward (Kaplan et al. 2020, section 2.1)."""

COUNT = "count"


class StepFlops:
    """Told of the ends of steps until nothing more can be learned."""

    def __init__(
        self, torch: Any, recorder: Recorder, environ: Mapping[str, str] = os.environ
    ) -> None:
        self._torch = torch
        self._recorder = recorder
        self._environ = environ
        self._is_counted = False
        self._ended = 0
        self._tokens: list[int] = []
        self._reported = 0
        self._counter: Any = None

    def end_step(self, _: int = 0) -> bool:
        """A step ends; False: nothing more is learned from later ones."""
        self._ended += 1
        if self._ended == 1:  # by then the script may have said it itself
            self._is_counted = self._environ.get(environment.FLOPS, "").strip() == COUNT
        if self._is_counted:
            return self._count()
        if self._ended == 1 and self._is_said():
            return False
        self._learn_tokens()
        if self._ended == COUNTED or self._ended % TOLD_EVERY == 0:
            self._tell()
        return True

    def _is_said(self) -> bool:
        said = read_number(self._environ, environment.FLOPS)
        if said is not None and not self._recorder.word(Word.MODEL_FLOPS):
            tell_flops(self._recorder, said)
        if self._recorder.word(Word.MODEL_FLOPS):
            self._tell_peak()
            return True
        return said == 0

    def _learn_tokens(self) -> None:
        """What the script reports, else the token ids of the batches it fetched."""
        reported, seen = self._recorder.word(Word.TOKENS), self._recorder.take_ids_seen()
        self._tokens.append(reported - self._reported if reported else seen)
        self._reported = reported

    def _tell(self) -> None:
        tokens, self._tokens = statistics.median(self._tokens), []
        each = self._recorder.flops_per_token or PER_PARAMETER * self._recorder.parameters
        tell_flops(self._recorder, each * tokens)
        self._tell_peak()

    def _count(self) -> bool:
        if self._ended == COUNTED - 1:
            if _has_compiled():
                log.warning("holdfast: no step is counted: torch's counter fails compiled code")
                return False
            from torch.utils.flop_counter import FlopCounterMode

            self._counter = FlopCounterMode(display=False)
            self._counter.__enter__()
        if self._ended < COUNTED:
            return True
        self._counter.__exit__(None, None, None)
        total = float(self._counter.get_total_flops())
        tell_flops(self._recorder, total, total)
        self._tell_peak()
        return False

    def _tell_peak(self) -> None:
        said = read_number(self._environ, environment.PEAK_FLOPS)
        cuda, name = self._torch.cuda, ""
        if not said and cuda.is_initialized():
            name = cuda.get_device_name()
        self._recorder.set_word(Word.PEAK_FLOPS, float_bits(said or peak_flops(name)))


def _has_compiled() -> bool:
    """Whether torch.compile made anything that runs."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and any(dynamo.counters.values())


def tell_flops(recorder: Recording, model: float, hardware: float = 0.0) -> None:
    """So many operations has one step of this rank; what is no such number is not told.

    hardware: with what activation checkpointing computes again; 0: not known.
    """
    if 0 < model < float("inf"):
        recorder.set_word(Word.MODEL_FLOPS, float_bits(model))
        recorder.set_word(Word.HARDWARE_FLOPS, float_bits(hardware))


class Parameters:
    """Counts the parameters that are trained, by the optimizers that step. Those that a tensor
    spread over ranks (DTensor) has in all, but for what tensor-parallel ranks share out."""

    def __init__(self, tell: Callable[[int], None]) -> None:
        self._tell = tell
        self._sizes: dict[int, int] = {}

    def look(self, optimizer: Any) -> None:
        """One that steps. The same one twice counts once."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._sizes[id(parameter)] = _size(parameter)
        self._tell(sum(self._sizes.values()))


def _size(parameter: Any) -> int:
    size = int(parameter.numel())
    mesh: Any = getattr(parameter, "device_mesh", None)
    names = getattr(mesh, "mesh_dim_names", None) or ()
    for at, (name, placement) in enumerate(
        zip(names, getattr(parameter, "placements", ()), strict=False)
    ):
        if "tp" in name and placement.is_shard():
            size //= int(mesh.size(at))
    return size
