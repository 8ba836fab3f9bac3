"""What to do next about an incident, by its cause and by what was found. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from holdfast_sidecar.incidents.explain import WITHOUT, IncidentStory
from holdfast_sidecar.policy.blame import LEFT, OF_A_MISMATCH
from holdfast_sidecar.policy.checkpoint_choice import ABOUT_NUMBERS
from holdfast_sidecar.policy.hardware import NO_MACHINE, OF_HARDWARE, SPARED
from holdfast_sidecar.policy.modes import setting_of
from holdfast_sidecar.policy.numbers import NO_DIRECTORY
from holdfast_sidecar.policy.replacement import STRAGGLER
from holdfast_sidecar.records.plan import LEFT_ALONE

OUT_OF_MEMORY = re.compile(r"\bOOM\b|out of memory|oom[-_ ]kill", re.IGNORECASE)

_OF_WORKERS = (
    (
        re.compile(
            r"DataLoader worker .*(killed by signal: Killed|exited unexpectedly)"
            r"|which loads for it, was ended by signal 9\b"
        ),
        "a loader's worker was gone all at once, most often by the OOM killer (`dmesg`, and "
        "memory.events of its cgroup): fewer workers, less prefetched, or a higher memory limit; "
        "look at the shared memory too (`df -h /dev/shm`)",
    ),
    (
        re.compile(
            r"killed by signal: Bus error|out of shared memory"
            r"|which loads for it, was ended by signal 7\b"
        ),
        "a loader's worker found no room in shared memory (`df -h /dev/shm`): fewer workers, or "
        "more of it (`docker run --shm-size`, an emptyDir of medium Memory)",
    ),
)
"""What a worker that was killed leaves: nothing of its own, and its rank speaks for it."""

_CRASHES = (
    (
        re.compile(re.escape(NO_MACHINE)),
        "the driver says that the program did something to its GPU that it must not (an access "
        "beyond its memory, an invalid instruction): `CUDA_LAUNCH_BLOCKING=1` or "
        "`compute-sanitizer` names the kernel",
    ),
    *_OF_WORKERS,
    (
        re.compile(LEFT),
        "the others lost it: look for what ends its loop before theirs (`sys.exit`, `os._exit`, "
        "fewer batches, an early stop of its own)",
    ),
    (
        OF_A_MISMATCH,
        "the ranks differ in a collective, and who noticed it need not be the one that is wrong: "
        "look for a tensor whose size, or a condition whose outcome, is not the same on all of "
        "them (a last batch that is smaller, a rank's number)",
    ),
    (
        re.compile(r"SIGABRT"),
        "a library aborted it, and said why in its output (`what(): …`): gloo does where ranks "
        "differ in a collective (`EnforceNotMet`, `op.preamble.length`), a tensor's size or a "
        "condition that is not the same on all of them; of anything else fatal-local-N.txt among "
        "the evidence tells where it was",
    ),
    (
        re.compile(r"SIGBUS"),
        "storage or shared memory was full under a file that it had mapped (`df /dev/shm`), or "
        "memory is bad (`dmesg`)",
    ),
    (
        re.compile(r"SIGSEGV|SIGILL|SIGFPE"),
        "native code failed: read fatal-local-N.txt among the evidence and try the newest versions "
        "of what it names; `ulimit -c unlimited` keeps a core next time",
    ),
    (
        re.compile(r"SIGKILL|exit(ed with)? code 137"),
        "a SIGKILL comes from outside, here not from Holdfast: ask who sent it (the OOM killer is "
        "in `dmesg`, a scheduler in its own log)",
    ),
    (
        re.compile(
            r"ended by SIG(TERM|INT|HUP|QUIT)\b|exit(ed with)? code (129|130|131|143)\b"
            r"|KeyboardInterrupt"
        ),
        "it was asked to end from outside, not by Holdfast, and such an end leaves no traceback of "
        "a fault: ask who sent the signal (a person's `kill` or Ctrl-C, a scheduler, systemd: "
        "`journalctl`)",
    ),
)
"""What the evidence of a crash says of its kind."""

_HANGS = (
    (
        re.compile(r"\(state T\)"),
        "find out who stopped the process (a debugger, `kill -STOP`, a frozen cgroup): "
        "`kill -CONT` and its pid let it go on, and `holdfast pause` before it has Holdfast leave "
        "it alone",
    ),
    *_OF_WORKERS,
    (
        re.compile(r"which loads for it, (was ended by signal (?![79]\b)|exited)"),
        "a loader's worker died: its traceback is in the rank's output, or it was short of memory "
        "(`dmesg`)",
    ),
    (
        re.compile(r"entered .+ as no\. \d+ of|skipped|out of turn|ended without having entered"),
        "the ranks took different ways through the script: look for a collective behind a "
        "condition that is not the same on all of them (a rank's number, a batch that only some "
        "have)",
    ),
    (
        re.compile(r"every member has entered"),
        "every rank is where it should be: look at the network between them (links, counters, "
        "NCCL_DEBUG=INFO)",
    ),
)
"""What the evidence of a hang says of its kind."""

_IN_NO_LINE = re.compile(r"\(state T\)|which loads for it, (was ended|exited)")
"""Hangs that no line of the script's is to blame for, wherever its stack stands."""

_BY_CAUSE = {
    "crash": (
        "read the traceback in the output of the rank that is to blame; those of its peers are of "
        "its death",
    ),
    "hang": (
        "read the stack of the one to blame beside those of its peers: the line it stands in is "
        "what to mend (a lock, a loader, a collective that the others don't enter)",
    ),
    "stall": (
        "read the stack of the one to blame: it had not arrived where the others waited. Where "
        "that may take so long (an evaluation, an upload), give init_process_group a longer "
        "timeout, and raise stall.act_after_s if it is set",
    ),
    "data_stall": (
        "look at the storage that the loader reads from, and at its number of workers: the ranks "
        "themselves are well",
    ),
    "node_lost": (
        "look at the node itself (power, console, network): Holdfast goes on without it, and takes "
        "it back when a launcher joins from there",
    ),
    "link": (
        "look at the cable, the transceiver and the switch's port; the node is let in again by "
        "`holdfast node return`",
    ),
    "host": (
        "have its memory modules tested and replaced (`edac-util -v`, the service processor's log)",
    ),
    "node_left": ("its launcher's log says why it left; start it again to have it back",),
    "unreachable": (
        "does a firewall close the ports above 1024 between these nodes? (--master-port fixes one)",
        "is the address the one that the others reach? (--local-addr; else that towards Redis)",
    ),
    "agent_restarted": ("its launcher's log says why it ended before",),
    "preempted": (
        "nothing is broken: when it is started again, by a requeue or by hand, it resumes where "
        "it was saved",
    ),
    "stop": (
        "nothing is broken: when it is started again it goes on from its newest checkpoint, and "
        "from the beginning where it has none",
    ),
    "nonfinite": ("look at the batch and the learning rate of that step",),
    "straggler": (
        "look at the node for what is named above: `holdfast node return` lets it in again, which "
        "a test (`holdfast nodes test`) should come before",
    ),
    "spike": ("look at the batches of those steps; a spike that heals needs nothing",),
}

_GOOD_ONES = "`holdfast checkpoint list` shows which checkpoints are good"

_STOPPED = (
    "mend what is named above before starting it again: Holdfast does not, because that did not "
    "help, was not possible, or was not allowed"
)

_LEFT_ALONE = (
    "the job goes on with such numbers, and what it computes may be worthless: `holdfast stop` "
    "ends it; to go back by itself it needs the three lines and a checkpoint from before"
)

_WITHHELD = {
    "observe": "set {mode}=act (`holdfast attach --mode act`) to have it done",
    "suggest": "set {mode}=act to have it done",
    "paused": "`holdfast resume` has it done",
}

_OPEN = "it is not over yet: `holdfast status` shows what is waited for"


GUESSED = 0.5
"""Of a rank that may be a victim itself, `blame` is so sure, or less."""

_GUESSES = {
    "crash": "it may have lost a peer; read what all ranks printed last",
    "hang": "compare the stacks of all ranks",
    "stall": "compare the stacks of all ranks",
}
"""What tells more."""


def advise(story: IncidentStory) -> list[str]:
    """What a person should do now, most urgent first; empty when there is nothing to do."""
    return list(_advice(story))


def _said(table: Iterable[tuple[re.Pattern[str], str]], reasons: str) -> Iterator[str]:
    return (line for pattern, line in table if pattern.search(reasons))


_REMEDIES = {
    "reset_gpu": (
        "reset the GPU once no process is on it (`nvidia-smi --gpu-reset -i {gpu}`; with NVLink all"
        " GPUs of the node together), or reboot its node"
    ),
    "reboot_node": "reboot the node: the GPU does not come back without",
    "replace": (
        "have the part tested and replaced (`dcgmi diag -r 3`, the vendor's field diagnostic): a"
        " reset hides the fault and does not mend it"
    ),
}
"""What brings ill hardware back."""

_COMES_BACK = {
    "reset_gpu": "it is let in again once a check finds it fit",
    "reboot_node": "it is let in again after a reboot",
}
"""How a node that is kept outside comes in again; others by a person's word, or in time."""

_BY_WORD = "`holdfast node return {node}` lets it in again"


_SPARED = (
    "its driver asks for nothing more than new ranks: where it comes back on the same GPU, have"
    " that tested (`holdfast nodes test {node}`, `dcgmi diag -r 3`)"
)


def _of_hardware(story: IncidentStory) -> Iterator[str]:
    """What mends it, and how the node comes back where the job went on without it."""
    if not story.remedy and any(SPARED in reason for reason in story.reasons):
        yield _SPARED.format(node=story.culprit_node)
    if story.remedy in _REMEDIES and story.cause == "gpu":
        yield _REMEDIES[story.remedy].format(gpu=story.gpu or "<index>")
    if story.how == WITHOUT:
        back = _COMES_BACK.get(story.remedy, _BY_WORD).format(node=story.culprit_node)
        yield f"node {story.culprit_node} is outside meanwhile: {back}"


def _blames(story: IncidentStory) -> bool:
    """Whether it would help to end one rank."""
    of_others = ABOUT_NUMBERS | OF_HARDWARE | {STRAGGLER}
    return bool(story.culprit_ranks) and story.cause not in of_others


def _of_cause(cause: str, reasons: str) -> Iterator[str]:
    yield from _BY_CAUSE.get(cause, ())
    if cause == "nonfinite" and NO_DIRECTORY not in reasons:
        yield _GOOD_ONES


def _advice(story: IncidentStory) -> Iterator[str]:
    if story.decided == "stop" and story.cause not in ("preempted", "stop"):
        yield _STOPPED
    elif story.decided == LEFT_ALONE and story.cause == "nonfinite":
        if not story.is_over:
            yield _LEFT_ALONE
    elif story.decided in _WITHHELD and not story.is_over:
        end = ": end the rank that is to blame, so that its launcher notices" * _blames(story)
        how = _WITHHELD[story.decided].format(mode=setting_of(story.cause))
        yield f"nothing is done by itself now{end}; {how}"
    elif not story.is_over and story.decided != LEFT_ALONE:
        yield _OPEN
    yield from _of_hardware(story)
    reasons = " ".join([*story.reasons, story.signature])
    if story.cause == "crash" and OUT_OF_MEMORY.search(reasons):
        yield (
            "it needs more memory than it may have: a smaller batch, fewer loader workers, or a "
            "higher limit"
        )
    elif story.cause == "crash" and (told := list(_said(_CRASHES, reasons))):
        yield from told
    else:
        told = list(_said(_HANGS, reasons)) if story.cause in ("hang", "stall") else []
        yield from told
        if not _IN_NO_LINE.search(reasons):
            yield from _of_cause(story.cause, reasons)
    if story.confidence <= GUESSED and story.cause in _GUESSES:
        yield f"who is to blame is a guess: {_GUESSES[story.cause]}"
