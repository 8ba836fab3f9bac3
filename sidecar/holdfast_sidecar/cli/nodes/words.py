"""Short words for what is known of a node."""

from __future__ import annotations

import time

from holdfast_sidecar.cli.table import BAD, DOUBTFUL, GOOD, paint
from holdfast_sidecar.node_lines import NodeLine
from holdfast_sidecar.policy.budget import Lemon
from holdfast_sidecar.policy.quarantine import ends_with
from holdfast_sidecar.records.formatting import span
from holdfast_sidecar.records.reports import GateVerdict

COLOURS = {"fit": GOOD, "unfit": BAD}


def gpus(verdict: GateVerdict | None) -> str:
    """How many are well, of how many there should be."""
    if verdict is None or not verdict.gpus_all:
        return "-"
    if verdict.gpus is None:
        return paint(f"?/{verdict.gpus_all}", DOUBTFUL)
    told = f"{verdict.gpus}/{verdict.gpus_all}"
    return told if verdict.gpus >= verdict.gpus_all else paint(told, BAD)


def well(verdict: GateVerdict) -> str:
    """The same in a sentence."""
    if verdict.gpus is None:
        return f"{verdict.gpus_all}, how they are is not known: the driver says nothing"
    return f"{verdict.gpus} of {verdict.gpus_all} are well"


def state(verdict: GateVerdict | None) -> str:
    """The verdict in a word."""
    if verdict is None:
        return "-"
    if verdict.state == "fit" and verdict.blind:
        return paint("fit (blind)", DOUBTFUL)
    return paint(verdict.state, COLOURS.get(verdict.state, DOUBTFUL))


def blamed(lemon: Lemon | None) -> str:
    """What still counts against its machine, of how many failures in all; nothing for most nodes.

    What it is kept outside for until it is replaced, or a person's word, is answered by that: then
    nothing counts of what it was blamed for.
    """
    return "-" if lemon is None else f"{lemon.score:.1f} of {sum(lemon.blamed.values())}"


def why(line: NodeLine, now_unix_s: float) -> str:
    """The one thing that a person should hear first."""
    if line.quarantine is not None:
        left = span(max(line.quarantine.until_unix_s - now_unix_s, 0.0))
        mended = ends_with(line.quarantine, now_unix_s)
        most = f"until {mended}, at most for another {left}" if mended else f"for another {left}"
        return f"outside {most}: {'; '.join(line.quarantine.evidence[:1])}"
    if line.gate is not None and line.gate.reasons:
        return line.gate.reasons[0]
    if line.gate is not None and line.gate.blind:
        return line.gate.blind[0]
    if line.has_job_ended and not (line.launcher or line.sidecar):
        return "the job has ended"
    if line.launcher is False:
        return "its launcher is silent"
    return "its sidecar is silent" if line.sidecar is False else ""


def until(unix_s: float) -> str:
    """A day and a time of this machine."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


def figure(name: str, value: float) -> str:
    """What was measured, as a data sheet has it."""
    if "flops" in name:
        return f"{value / 1e12:.1f} TFLOP/s" if value >= 1e12 else f"{value / 1e9:.1f} GFLOP/s"
    return f"{value / 1e9:.1f} GB/s"
