"""What each XID means and what it asks for, as data; nothing is decided here.

From NVIDIA's XID catalogue (edition of 2025-10, Ampere and later) read side by side with what
gpud, GCM, DCGM and AWS's health check do about each. Where they disagree the note says why this
one was chosen. An XID that is not in here asks for nothing: it is told and never pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast_sidecar.records.findings import Remedy

NONE = Remedy.NONE
RESTART_APP = Remedy.RESTART_APP
RESET_GPU = Remedy.RESET_GPU
REBOOT_NODE = Remedy.REBOOT_NODE
REPLACE = Remedy.REPLACE


class FollowUp(str, Enum):
    """What to do besides."""

    CHECK_GPU = "check_gpu"  # test it once it repeats on the same GPU while the others are clean
    CHECK_SWITCH = "check_switch"  # an SXid near it says that the switch is the cause
    DECODE = "decode"  # the line itself says whether it is fatal
    PARSE = "parse"  # the line carries the driver's own verdict
    DETAIL = "detail"  # says more about another XID
    RESET_LATER = "reset_later"  # at the next restart
    REPLACE_LATER = "replace_later"  # in the next maintenance window
    TICKET = "ticket"  # nothing for a job to do; its owner should know


@dataclass(frozen=True)
class XidEntry:
    """One XID."""

    number: int
    mnemonic: str
    meaning: str
    remedy: Remedy
    follow_ups: tuple[FollowUp, ...] = ()
    is_application: bool = False
    """The program did it, not the GPU."""
    is_hardware: bool = False
    """The GPU did it, though the table asks for no more than new ranks. What asks for more is the
    GPU's anyway."""
    linked_since: int = 0
    """Driver branch from which XID 154 and field 230 answer for it: only from there on does a
    recovery action of 0 mean that it needs nothing. 0: never, so 0 says nothing about it."""
    on_repeat: Remedy | None = None
    """Harsher than merely the next class, where it happens again within a day."""
    note: str = ""


R565, R570, R575 = 565, 570, 575
_CHECK = (FollowUp.CHECK_GPU,)
_TICKET = (FollowUp.TICKET,)
_DECODE = (FollowUp.DECODE,)


def _application(number: int, mnemonic: str, meaning: str, note: str = "") -> XidEntry:
    return XidEntry(number, mnemonic, meaning, RESTART_APP, _CHECK, is_application=True, note=note)


def _engine(number: int, mnemonic: str, meaning: str) -> XidEntry:
    return XidEntry(number, mnemonic, meaning, RESTART_APP, _TICKET)


def _nvlink5(number: int, mnemonic: str, unit: str) -> XidEntry:
    text = f"NVLink 5: trouble in the {unit}; fatal or not, the line says"
    return XidEntry(number, mnemonic, text, NONE, _DECODE, linked_since=R565)


_ENTRIES = (
    _engine(8, "FIFO_ERROR_IDLE_TIMEOUT", "a channel did not get on in time"),
    _application(11, "GR_ERROR_MISSING_HW", "the stream of commands was invalid or damaged"),
    _application(
        13,
        "GR_EXCEPTION",
        "a kernel did what it must not: out of bounds, illegal instruction",
        "hardware only where it repeats in the same place (GPC and TPC) of one GPU",
    ),
    _application(25, "GR_ILLEGAL_NOTIFY", "the stream of commands was invalid"),
    _application(
        31,
        "FIFO_ERROR_MMU_ERR_FLT",
        "a kernel touched memory that is not mapped",
        "repeats on one GPU: maybe its hardware; on several: the program",
    ),
    _application(32, "PBDMA_ERROR", "the stream of commands arrived damaged"),
    XidEntry(37, "FECS_ERR_UNIMP_FIRMWARE_METHOD", "firmware was asked what it can't do", NONE),
    XidEntry(38, "FECS_ERR_WATCHDOG_TIMEOUT", "firmware did not answer in time", NONE, _TICKET),
    _engine(39, "CE0_ERROR", "copy engine 0 failed"),
    _engine(40, "CE1_ERROR", "copy engine 1 failed"),
    _engine(41, "CE2_ERROR", "copy engine 2 failed"),
    XidEntry(
        43,
        "RESETCHANNEL_VERIF_ERROR",
        "a program's channel was closed for the program's own fault; the GPU is healthy",
        NONE,
        is_application=True,
        note="the program's log says why",
    ),
    XidEntry(
        44,
        "GR_FAULT_DURING_CTXSW",
        "the graphics engine failed while programs changed places",
        NONE,
        _TICKET,
    ),
    XidEntry(
        45,
        "PREEMPTIVE_REMOVAL",
        "the driver cleans up after a program that ended or failed",
        NONE,
        note="comes in storms over whole racks after one job's crash, and is never a cause",
    ),
    XidEntry(46, "GPU_TIMEOUT_ERROR", "the GPU stopped working", RESET_GPU, _TICKET),
    XidEntry(
        48,
        "GPU_ECC_DBE",
        "memory lost two bits at once, which can't be corrected",
        RESET_GPU,
        linked_since=R565,
    ),
    XidEntry(
        54,
        "PWR_REDUCED_CLOCKING",
        "a power cable of the board is not connected",
        REPLACE,
        note="mechanical: nothing that software does mends it",
    ),
    XidEntry(60, "SEC2_ERROR", "the security processor failed", RESTART_APP),
    XidEntry(61, "PMU_BREAKPOINT", "the power controller stopped at a breakpoint", NONE, _TICKET),
    XidEntry(62, "PMU_HALT_ERROR", "the power controller halted", RESET_GPU, linked_since=R565),
    XidEntry(
        63,
        "DRAM_RETIREMENT_EVENT",
        "a bad memory row was noted down to be replaced by a spare one",
        NONE,
        (FollowUp.RESET_LATER,),
        linked_since=R565,
        note="the remap itself is no fault; what is pending takes effect at the next reset",
    ),
    XidEntry(
        64,
        "DRAM_RETIREMENT_FAILURE",
        "a bad memory row could not be replaced",
        REPLACE,
        _TICKET,
        linked_since=R565,
        note="decided by the GPU's own remap-failure flag where that can be read",
    ),
    XidEntry(66, "FECS_ERR_REG_ACCESS_VIOLATION", "the driver touched what it must not", NONE),
    XidEntry(67, "FECS_ERR_VERIF_VIOLATION", "the driver touched what it must not", NONE),
    _engine(68, "NVDEC0_ERROR", "video decoder 0 failed"),
    _application(69, "GR_CLASS_ERROR", "the graphics engine refused a command"),
    *(_engine(70 + n, f"CE{n + 3}_ERROR", f"copy engine {n + 3} failed") for n in range(3)),
    XidEntry(
        74,
        "NVLINK_ERROR",
        "an NVLink to another GPU or to the switch failed",
        RESET_GPU,
        (FollowUp.CHECK_SWITCH, FollowUp.DECODE),
        linked_since=R565,
        note="the cause may be the other end: a fatal SXid of the switch comes first",
    ),
    *(_engine(75 + n, f"CE{n + 6}_ERROR", f"copy engine {n + 6} failed") for n in range(3)),
    XidEntry(
        79,
        "GPU_HAS_FALLEN_OFF_THE_BUS",
        "the GPU does not answer over PCIe any more",
        REBOOT_NODE,
        _TICKET,
        linked_since=R565,
    ),
    _application(80, "PBDMA_PUSHBUFFER_CRC_MISMATCH", "commands arrived damaged at the GPU"),
    XidEntry(
        92,
        "EXCESSIVE_SBE_INTERRUPTS",
        "many single-bit errors, all corrected",
        NONE,
        _TICKET,
        note="their rate is watched; the event itself is no fault",
    ),
    XidEntry(93, "INFOROM_ERASE_LIMIT_EXCEEDED", "the board's own memory is worn", NONE),
    XidEntry(
        94,
        "CONTAINED_ERROR",
        "uncorrectable memory error, contained: only its program is hit",
        RESTART_APP,
        (FollowUp.RESET_LATER, FollowUp.CHECK_GPU),
        is_hardware=True,
        linked_since=R565,
    ),
    XidEntry(
        95,
        "UNCONTAINED_ERROR",
        "uncorrectable memory error, not contained: any program may be hit",
        RESET_GPU,
        linked_since=R565,
        note="the GPU must not be used again before the reset",
    ),
    XidEntry(
        109,
        "CTXSW_TIMEOUT_ERROR",
        "programs could not change places in time",
        RESET_GPU,
        _TICKET,
        linked_since=R570,
        note="older lists call it the program's fault; NVIDIA's asks for a reset",
    ),
    XidEntry(110, "SEC_FAULT_ERROR", "a security fault", RESET_GPU, _TICKET, linked_since=R565),
    XidEntry(
        119,
        "GSP_RPC_TIMEOUT",
        "the GPU's system processor did not answer the driver",
        RESET_GPU,
        note="repeats every few seconds while it lasts: one fault, not many",
    ),
    XidEntry(
        120,
        "GSP_ERROR",
        "the GPU's system processor failed",
        RESET_GPU,
        linked_since=R565,
    ),
    XidEntry(121, "C2C_ERROR", "corrected errors between CPU and GPU", NONE, _TICKET),
    XidEntry(
        136,
        "ALI_TRAINING_FAIL",
        "an NVLink could not be trained",
        RESET_GPU,
        _TICKET,
        linked_since=R565,
    ),
    _application(137, "NVLINK_PRIV_ERR", "a peer's memory was accessed that must not be"),
    XidEntry(
        140,
        "UNRECOVERABLE_ECC_ERROR_ESCAPE",
        "an uncorrectable memory error got past the driver",
        RESET_GPU,
        _TICKET,
    ),
    XidEntry(141, "FAST_PATH_ERROR", "a CUDA fast path failed", NONE),
    XidEntry(
        143,
        "GPU_INIT_ERROR",
        "the GPU could not be set up",
        RESET_GPU,
        _TICKET,
        linked_since=R575,
        on_repeat=REPLACE,
    ),
    _nvlink5(144, "NVLINK_SAW_ERROR", "system adaptation"),
    _nvlink5(145, "NVLINK_RLW_ERROR", "receiving side"),
    _nvlink5(146, "NVLINK_TLW_ERROR", "transmitting side"),
    _nvlink5(147, "NVLINK_TREX_ERROR", "traffic exerciser"),
    _nvlink5(148, "NVLINK_NVLPW_CTRL_ERROR", "control of the link's wrapper"),
    _nvlink5(149, "NVLINK_NETIR_ERROR", "network interface, often the link itself"),
    _nvlink5(150, "NVLINK_MSE_ERROR", "management engine"),
    XidEntry(
        151,
        "KEY_ROTATION_ERROR",
        "keys could not be changed",
        REBOOT_NODE,
        note="the virtual machine must start again",
    ),
    XidEntry(
        154,
        "GPU_RECOVERY_ACTION_CHANGED",
        "the driver says what the GPU needs",
        NONE,
        (FollowUp.PARSE,),
        note="it is the driver's verdict on the other XIDs, and stands above this table",
    ),
    XidEntry(
        155,
        "NVLINK_SW_DEFINED_ERROR",
        "an NVLink went down by order of software",
        RESET_GPU,
        linked_since=R565,
    ),
    XidEntry(
        156,
        "RESOURCE_RETIREMENT_EVENT",
        "a part of the GPU was taken out of use",
        RESET_GPU,
        linked_since=R565,
    ),
    XidEntry(
        157,
        "RESOURCE_RETIREMENT_FAILURE",
        "a part of the GPU could not be taken out of use",
        NONE,
        (FollowUp.TICKET, FollowUp.REPLACE_LATER),
        note="work may go on, and may meet it again",
    ),
    XidEntry(158, "GPU_FATAL_TIMEOUT", "the GPU timed out for good", RESET_GPU, linked_since=R565),
    XidEntry(
        159,
        "CHI_NON_DATA_ERROR",
        "an error between CPU and GPU that carries no data",
        NONE,
        _TICKET,
        note="whether unified memory was in use decides what it hit",
    ),
    XidEntry(
        160, "CHANNEL_RETIREMENT_EVENT", "a memory channel was taken out of use", NONE, _TICKET
    ),
    XidEntry(161, "CHANNEL_RETIREMENT_FAILURE", "a memory channel could not be", NONE, _TICKET),
    XidEntry(163, "PSHC_DISENGAGED", "power smoothing was switched off", NONE, _TICKET),
    XidEntry(164, "PSHC_LOW_LIFETIME", "power smoothing wears out soon", NONE, _TICKET),
    XidEntry(
        165, "PSHC_ZERO_LIFETIME", "power smoothing is worn out", NONE, (FollowUp.REPLACE_LATER,)
    ),
    XidEntry(
        167,
        "PCIE_FATAL_TIMEOUT",
        "a request over PCIe timed out for good",
        RESET_GPU,
        note="NVIDIA's catalogue leaves its action blank",
    ),
    XidEntry(168, "REDUCED_GPU_MEMORY_CAPACITY", "errors in protected memory", REBOOT_NODE),
    XidEntry(
        169,
        "SEC2_HALT_ERROR",
        "the security processor halted",
        RESET_GPU,
        note="NVIDIA's catalogue leaves its action blank",
    ),
    XidEntry(
        171,
        "UNCORRECTABLE_DRAM_ERROR",
        "says of an XID 48 that it was in DRAM",
        NONE,
        (FollowUp.DETAIL,),
    ),
    XidEntry(
        172,
        "UNCORRECTABLE_SRAM_ERROR",
        "says of an XID 48 that it was in SRAM",
        RESET_GPU,
        (FollowUp.DETAIL,),
    ),
)

XIDS: Mapping[int, XidEntry] = {entry.number: entry for entry in _ENTRIES}

NVLINK5 = frozenset(range(144, 151))
"""Their line says by itself whether it is fatal."""

FALLEN_OFF_THE_BUS = 79
"""What a line that says so without a number counts as."""

RECOVERY_ACTION_CHANGED = 154


def entry_of(number: int) -> XidEntry:
    """What is known of it; an unknown one asks for nothing."""
    unknown = XidEntry(number, "UNKNOWN", "not in this version's table", NONE, _TICKET)
    return XIDS.get(number, unknown)


# Errors of an NVSwitch (SXid) that are fatal by the lists of NVIDIA and gpud.
#
# Only for lines that don't say so themselves: the driver writes `Fatal` or `Non-fatal` into the
# first line of each, and that word counts: 11004, 12028 and 19084 are not always fatal. NVSwitches
# of Blackwell systems log none of them.

FATAL_SXIDS: Mapping[int, str] = {
    11001: "an invalid command came in",
    11004: "an incoming packet was not permitted",
    12001: "the switch's crossbar ran over on the way out",
    12022: "two bits were lost on the way to the output",
    12024: "two bits were lost at the output",
    12028: "a request on its way out had no privilege",
    14017: "a request's time ran out in the switch",
    19047: "two bits of a header were lost",
    19084: "a heartbeat of a multicast engine did not come",
    20034: "a link's training ended in a fault",
    22003: "a link's controller halted",
    24007: "a request's source was not answered in time",
}


def is_fatal_by_table(sxid: int) -> bool:
    """Whether it is, for a line that does not say."""
    return sxid in FATAL_SXIDS


def meaning_of(sxid: int) -> str:
    """In a few words; of one that is not listed, that it is not."""
    return FATAL_SXIDS.get(sxid, "an error of the NVSwitch")


# What the driver itself says a GPU needs: field 230, and the value that XID 154 carries.

NOTHING = 0


@dataclass(frozen=True)
class RecoveryAction:
    """One value of NVML's field 230, and whether running work must end for it; otherwise it may
    go on until it ends by itself."""

    name: str
    remedy: Remedy
    ends_work: bool


ACTIONS: Mapping[int, RecoveryAction] = {
    NOTHING: RecoveryAction("nothing", Remedy.NONE, ends_work=False),
    1: RecoveryAction("a reset of the GPU", Remedy.RESET_GPU, ends_work=True),
    2: RecoveryAction("a reboot of the node", Remedy.REBOOT_NODE, ends_work=True),
    3: RecoveryAction("an end of all peer-to-peer work", Remedy.RESTART_APP, ends_work=False),
    4: RecoveryAction("a reset once its work is done", Remedy.RESET_GPU, ends_work=False),
    5: RecoveryAction("a recovery of its IMEX domain", Remedy.NONE, ends_work=False),
    6: RecoveryAction("a reset of its PCIe bus", Remedy.RESET_GPU, ends_work=True),
    7: RecoveryAction("a restart of the whole system", Remedy.REBOOT_NODE, ends_work=True),
}
"""nvmlDeviceGpuRecoveryAction_t (nvml.h). 3: once what uses peers has ended, the driver says what
comes next, often nothing. 4: work that runs is safe. 5: is about other nodes as well, and not about
this GPU (NVIDIA's own driver for Kubernetes leaves such a GPU in service, too)."""


def action_of(value: float) -> RecoveryAction:
    """What it asks for; a value from a newer driver asks for nothing we know, and is told."""
    unknown = f"action {value:.0f}, which is unknown"
    return ACTIONS.get(int(value), RecoveryAction(unknown, Remedy.NONE, ends_work=False))
