"""Stories of GPU trouble as logs and NVML tell them, and what each GPU needs in the end.

What is expected was written by hand from the XID reference (`xid.md`: b.1 corrections to folklore,
b.2 table, b.3 policy) and the two places named beside it, never taken from the table under test.

GPUs are A to H of one node. Times are seconds. `R` says what a GPU tells of itself from then on,
once a second; a GPU without one tells nothing (an old driver, or it does not answer).
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR = 3600.0

PCI = {
    letter: f"0000:{bus}:00.0"
    for letter, bus in zip(
        "ABCDEFGH", ["17", "2a", "3d", "5d", "97", "ab", "bd", "dd"], strict=True
    )
}


@dataclass(frozen=True)
class X:
    """A line of the kernel's log about a GPU."""

    at_s: float
    gpu: str
    number: int
    rest: str = ""


@dataclass(frozen=True)
class N:
    """An event of NVML's about a GPU."""

    at_s: float
    gpu: str
    number: int


@dataclass(frozen=True)
class L:
    """Any line of the kernel's log."""

    at_s: float
    text: str


@dataclass(frozen=True)
class R:
    """What a GPU says of itself from now on."""

    at_s: float
    gpu: str
    action: int | None = None
    remap_failed: bool | None = None
    model: str = "NVIDIA H100 80GB HBM3"
    mig: bool = False


@dataclass(frozen=True)
class Teardown:
    """The launcher begins to end the ranks."""

    at_s: float


@dataclass(frozen=True)
class Attempt:
    """New ranks begin."""

    at_s: float


@dataclass(frozen=True)
class Boot:
    """The node starts anew."""

    at_s: float


Step = X | N | L | R | Teardown | Attempt | Boot


@dataclass(frozen=True)
class Expect:
    """What one GPU needs. `told`: at least one verdict is about it."""

    remedy: str
    blame: str = "nobody"
    suppressed: tuple[str, ...] = ()
    check: bool = False
    urgent: bool | None = None
    told: bool | None = None


@dataclass(frozen=True)
class Story:
    name: str
    source: str
    steps: tuple[Step, ...]
    expect: dict[str, Expect]
    at_s: float | None = None
    """When it is judged; two seconds after the last step, where nothing is said."""
    branch: int = 575
    times: dict[tuple[str, str], int] = field(default_factory=dict)
    """(GPU, number) -> how often it must have been counted within a day."""


NONE = Expect("none")
ROW_REMAP = "pid='<unknown>', name=<unknown>, Row Remapper: New row marked for remapping"
FELL = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
DBE = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
CONTAINED = "pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No"
UNCONTAINED = "pid=5171, Uncontained: FBHUB. RST: Yes, D-RST: No"
GSP = "pid=1582259, name=python3, Timeout after 6s of waiting for RPC response from GPU1 GSP!"
MMU = "pid=1942, name=python3, Ch 00000002, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC6 faulted"
WARP = "pid=4, name=python3, Graphics SM Warp Exception on (GPC 7, TPC 2, SM 0): Out Of Range"
ELSEWHERE = "pid=4, name=python3, Graphics SM Warp Exception on (GPC 1, TPC 5, SM 1): Range"
LINK14 = "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)"
LINK3 = "pid='<unknown>', NVLink: fatal error detected on link 3(0x200000, 0x0, 0x0, 0x0, 0x0, 0x0)"
TO_RESET = "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
TO_REBOOT = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
TO_NONE = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
RLW_NONFATAL = "RLW_REMAP Nonfatal XC0 i0 Link 08 (0x00000004 0x00000100 0x00000000 0x00000000)"
NETIR_FATAL = "NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x025525c6 0x00000000 0x00000000 0x00000000)"
RLW_FATAL = "RLW_SRC_TRACK Fatal XC0 i0 Link 03 (0x00000007 0x00000001 0x00000000 0x00000000)"
SWITCH = "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): "
SX_FATAL = SWITCH + "20034, Fatal, Link 30 LTSSM Fault Up"
SX_MILD = SWITCH + "12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
RESET = Expect("reset_gpu", "gpu")
APP = Expect("restart_app", "application")

SOLO = (
    Story("off the bus", "b.2 row 79", (X(0, "A", 79, FELL),), {"A": Expect("reboot_node", "gpu")}),
    Story("double-bit error", "b.2 row 48", (X(0, "A", 48, DBE),), {"A": RESET}),
    Story("page fault", "b.2 row 31, b.1.6", (X(0, "A", 31, MMU),), {"A": APP}),
    Story("kernel out of bounds", "b.2 row 13, b.1.6", (X(0, "A", 13, WARP),), {"A": APP}),
    Story("row remapped", "b.1.1, b.2 row 63", (X(0, "A", 63, ROW_REMAP),), {"A": NONE}),
    Story("many single-bit errors", "b.1.1, b.2 row 92", (X(0, "A", 92),), {"A": NONE}),
    Story("contained", "b.1.2", (X(0, "A", 94, CONTAINED),), {"A": Expect("restart_app", "gpu")}),
    Story("uncontained", "b.1.2", (X(0, "A", 95, UNCONTAINED),), {"A": RESET}),
    Story("context switch timeout is no program's fault", "b.1.3", (X(0, "A", 109),), {"A": RESET}),
    Story("remap failed", "b.1.4, b.2 row 64", (X(0, "A", 64),), {"A": Expect("replace", "gpu")}),
    Story("clean-up alone", "b.1.5", (X(0, "A", 45, "pid=1, Ch 00000010"),), {"A": NONE}),
    Story("no power cable", "b.1.8", (X(0, "A", 54),), {"A": Expect("replace", "gpu")}),
    Story(
        "program died",
        "b.2 row 43",
        (X(0, "A", 43, "Ch 00000020"),),
        {"A": Expect("none", "application")},
    ),
    Story(
        "firmware grumbles",
        "b.1.7",
        (X(0, "A", 38), X(20, "B", 44), X(30, "C", 66)),
        {"A": NONE, "B": NONE, "C": NONE},
    ),
    Story("GSP silent", "b.2 row 119", (X(0, "A", 119, GSP),), {"A": RESET}),
    Story("security fault", "b.2 row 110", (X(0, "A", 110),), {"A": RESET}),
    Story(
        "privilege error of a peer",
        "b.2 row 137",
        (X(0, "A", 137, "RLW_RXPIPE interrupt"),),
        {"A": APP},
    ),
    Story("key rotation", "b.2 row 151", (X(0, "A", 151),), {"A": Expect("reboot_node", "gpu")}),
    Story(
        "unknown number never pages",
        "b.3 unknown",
        (X(0, "A", 987, "something new"),),
        {"A": Expect("none", told=True, urgent=False)},
    ),
    Story(
        "unknown from NVML",
        "b.1.12 (999 = unknown)",
        (N(0, "A", 999),),
        {"A": Expect("none", told=True, urgent=False)},
    ),
    Story(
        "uncontained on A100",
        "b.1.13",
        (R(0, "A", model="NVIDIA A100-SXM4-80GB"), X(5, "A", 95, UNCONTAINED)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "uncontained on A100 with MIG",
        "b.1.13 (MIG off)",
        (R(0, "A", model="NVIDIA A100-SXM4-80GB", mig=True), X(5, "A", 95, UNCONTAINED)),
        {"A": RESET},
    ),
    Story(
        "remap failed by number, not by flag, on A100",
        "b.1.4, b.1.13",
        (R(0, "A", remap_failed=False, model="NVIDIA A100-SXM4-80GB"), X(5, "A", 64)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "remap failed by number, not by flag",
        "b.1.4 (use the flag to decide)",
        (R(0, "A", remap_failed=False), X(5, "A", 64)),
        {"A": RESET},
    ),
)

NVLINK = (
    Story("NVLink 5 not fatal", "b.2 row 145", (X(0, "A", 145, RLW_NONFATAL),), {"A": NONE}),
    Story("NVLink 5 fatal", "b.2 row 149", (X(0, "A", 149, NETIR_FATAL),), {"A": RESET}),
    Story("NVLink 5 unsaid", "b.2 row 145 (else follow 154)", (N(0, "A", 145),), {"A": NONE}),
    Story(
        "NVLink 5 unsaid, driver speaks",
        "b.2 row 145 (else follow 154)",
        (N(0, "A", 145), X(1, "A", 154, TO_RESET)),
        {"A": RESET},
    ),
    Story(
        "NVLink 5 not fatal, driver speaks",
        "b.1.10",
        (X(0, "A", 145, RLW_NONFATAL), X(1, "A", 154, TO_REBOOT)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "NVLink 5 first not fatal, then fatal",
        "b.2 row 145",
        (X(0, "A", 145, RLW_NONFATAL), X(1, "A", 145, RLW_FATAL)),
        {"A": RESET},
    ),
    Story(
        "NVLink 5 fatal by NVML and log",
        "b.2 row 149",
        (N(0, "A", 149), X(0.4, "A", 149, NETIR_FATAL)),
        {"A": RESET},
        times={("A", "xid 149"): 1},
    ),
    Story("link failed", "b.2 row 74", (X(0, "A", 74, LINK14),), {"A": RESET}),
    Story(
        "same link again",
        "b.2 row 74 (replace if same link repeats)",
        (X(0, "A", 74, LINK14), X(2 * HOUR, "A", 74, LINK14)),
        {"A": Expect("replace", "gpu")},
    ),
    Story(
        "another link",
        "b.2 row 74, b.3 (same action again)",
        (X(0, "A", 74, LINK14), X(2 * HOUR, "A", 74, LINK3)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "link failed after the switch",
        "b.1.9",
        (L(0, SX_MILD), X(2, "A", 74, LINK14)),
        {"A": Expect("reset_gpu", "switch"), "B": NONE},
    ),
)

SWITCHES = (
    Story(
        "switch fatal",
        "b.3 SXid",
        (R(0, "A"), R(0, "B"), L(5, SX_FATAL)),
        {"A": Expect("reset_gpu", "switch"), "B": Expect("reset_gpu", "switch")},
    ),
    Story(
        "switch not fatal",
        "b.3 SXid; Fabric Manager guide (informational)",
        (R(0, "A"), L(5, SX_MILD)),
        {"A": NONE},
    ),
    Story(
        "switch by table",
        "b.3 SXid (fatal: 24007)",
        (R(0, "A"), L(5, SWITCH + "24007, Data {0x000001c0, 0x00bd5c8a}")),
        {"A": Expect("reset_gpu", "switch")},
    ),
    Story(
        "switch's word above the table",
        "b.3 SXid; Fabric Manager guide (reporting)",
        (R(0, "A"), L(5, SWITCH + "12028, Data {0x000001c0, 0x00bd5c8a}"), L(5.1, SX_MILD)),
        {"A": NONE},
    ),
    Story(
        "switch and the links it took",
        "b.3 SXid, b.1.9",
        (R(0, "A"), R(0, "B"), L(5, SX_FATAL), X(6, "A", 74, LINK14), X(6, "A", 45)),
        {"A": Expect("reset_gpu", "switch"), "B": Expect("reset_gpu", "switch")},
    ),
    Story(
        "switch fatal again",
        "b.3 (same action again, next class)",
        (R(0, "A"), L(5, SX_FATAL), L(3 * HOUR, SX_FATAL)),
        {"A": Expect("reboot_node", "switch")},
    ),
    Story(
        "unlisted switch error without a word",
        "b.3 SXid (only fatal ones act)",
        (R(0, "A"), L(5, SWITCH + "99999, Data {0x000001c0}")),
        {"A": NONE},
    ),
)

SYMPATHETIC = (
    Story(
        "double-bit error and what follows",
        "b.3 sympathetic",
        (X(0, "A", 48, DBE), X(1, "A", 94, CONTAINED), X(2, "A", 45), X(3, "A", 45)),
        {"A": Expect("reset_gpu", "gpu", ("xid 45", "xid 94"))},
    ),
    Story(
        "uncontained after double-bit error",
        "b.3 sympathetic",
        (X(0, "A", 48, DBE), X(1, "A", 95, UNCONTAINED)),
        {"A": Expect("reset_gpu", "gpu", ("xid 95",))},
    ),
    Story(
        "contained after remap",
        "b.3 sympathetic (63 is a root)",
        (X(0, "A", 63, ROW_REMAP), X(1, "A", 94, CONTAINED)),
        {"A": Expect("none", suppressed=("xid 94",))},
    ),
    Story(
        "uncontained after remap keeps its reset",
        "b.2 row 95 (no reuse before reset)",
        (X(0, "A", 63, ROW_REMAP), X(1, "A", 95, UNCONTAINED)),
        {"A": RESET},
    ),
    Story(
        "clean-up after bus loss",
        "b.3 sympathetic",
        (X(0, "A", 79, FELL), X(30, "A", 45), X(40, "A", 43)),
        {"A": Expect("reboot_node", "gpu", ("xid 45", "xid 43"))},
    ),
    Story(
        "clean-up after NVLink 5",
        "b.3 sympathetic (144-150 are roots)",
        (X(0, "A", 149, NETIR_FATAL), X(0.2, "A", 45, "Ch 1 caused by previous Xid 149")),
        {"A": Expect("reset_gpu", "gpu", ("xid 45",))},
    ),
    Story(
        "contained, long after",
        "b.3 sympathetic (window 60 s)",
        (X(0, "A", 120), X(90, "A", 94, CONTAINED)),
        {"A": RESET},
    ),
    Story(
        "contained, long after a remap",
        "b.3 sympathetic (window 60 s)",
        (X(0, "A", 63, ROW_REMAP), X(90, "A", 94, CONTAINED)),
        {"A": Expect("restart_app", "gpu")},
    ),
    Story(
        "contained came first",
        "b.3 sympathetic (occurred first)",
        (X(0, "A", 94, CONTAINED), X(20, "A", 63, ROW_REMAP)),
        {"A": Expect("restart_app", "gpu")},
    ),
    Story(
        "root on another GPU does not excuse",
        "b.3 sympathetic (same GPU)",
        (X(0, "A", 48, DBE), X(1, "B", 95, UNCONTAINED)),
        {"A": RESET, "B": RESET},
    ),
    Story(
        "storm over the whole node",
        "b.1.5",
        (X(0, "A", 79, FELL), *(X(1 + n, letter, 45) for n, letter in enumerate("BCDEFGH"))),
        {"A": Expect("reboot_node", "gpu"), **dict.fromkeys("BCDEFGH", NONE)},
    ),
    Story(
        "storm of one number is one occurrence",
        "b.1.5",
        (*(X(n * 0.5, "A", 45) for n in range(60)),),
        {"A": NONE},
        times={("A", "xid 45"): 1},
    ),
    Story(
        "DRAM detail of a double-bit error",
        "b.2 row 171",
        (X(0, "A", 48, DBE), X(0.1, "A", 171, "Double Bit ECC Error in FBPA 4")),
        {"A": RESET},
    ),
    Story("DRAM detail alone", "b.2 row 171 (detail)", (X(0, "A", 171),), {"A": NONE}),
    Story("SRAM detail alone", "b.2 row 172 (reset_gpu)", (X(0, "A", 172),), {"A": RESET}),
)

REPEATED = (
    Story(
        "double-bit error again",
        "b.3 (same action again within 24 h)",
        (X(0, "A", 48, DBE), X(5 * HOUR, "A", 48, DBE)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "a third time",
        "b.3 (same action again within 24 h)",
        (X(0, "A", 48, DBE), X(5 * HOUR, "A", 48, DBE), X(9 * HOUR, "A", 48, DBE)),
        {"A": Expect("replace", "gpu")},
    ),
    Story(
        "again after more than a day",
        "b.3 (within 24 h)",
        (X(0, "A", 48, DBE), X(25 * HOUR, "A", 48, DBE)),
        {"A": RESET},
    ),
    Story(
        "other number, same action",
        "b.3 (same gpu and action)",
        (X(0, "A", 48, DBE), X(5 * HOUR, "A", 140)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "same action on another GPU",
        "b.3 (same gpu)",
        (X(0, "A", 48, DBE), X(5 * HOUR, "B", 48, DBE)),
        {"B": RESET},
    ),
    Story(
        "off the bus after a reboot",
        "b.2 row 79 (replace on repeat)",
        (X(0, "A", 79, FELL), Boot(300), X(2000, "A", 79, FELL)),
        {"A": Expect("replace", "gpu")},
    ),
    Story(
        "off the bus minutes after a reboot",
        "b.2 row 79 (replace on repeat)",
        (X(0, "A", 79, FELL), Boot(300), X(420, "A", 79, FELL)),
        {"A": Expect("replace", "gpu")},
    ),
    Story(
        "GSP silent for minutes is one fault",
        "b.2 row 119; policy counts faults",
        (*(X(6.0 * n, "A", 119, GSP) for n in range(30)),),
        {"A": RESET},
    ),
    Story(
        "GSP silent again",
        "b.2 row 119 (then reboot_node)",
        (X(0, "A", 119, GSP), X(2 * HOUR, "A", 120)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "not initialised twice",
        "b.2 row 143 (then replace)",
        (X(0, "A", 143), Boot(600), X(900, "A", 143)),
        {"A": Expect("replace", "gpu")},
    ),
    Story(
        "three page faults, one GPU",
        "b.3 (>= 3 in 24 h, others clean), b.1.6",
        (X(0, "A", 31, MMU), X(HOUR, "A", 31, MMU), X(2 * HOUR, "A", 31, MMU)),
        {"A": Expect("restart_app", check=True)},
    ),
    Story(
        "three contained errors, one GPU",
        "b.3 (>= 3 in 24 h, others clean)",
        (X(0, "A", 94, CONTAINED), X(HOUR, "A", 94, CONTAINED), X(2 * HOUR, "A", 94, CONTAINED)),
        {"A": Expect("restart_app", "gpu", check=True)},
    ),
    Story(
        "page faults on several GPUs are the program's",
        "b.1.6",
        (
            X(0, "A", 31, MMU),
            X(HOUR, "A", 31, MMU),
            X(HOUR, "B", 31, MMU),
            X(2 * HOUR, "A", 31, MMU),
        ),
        {"A": APP},
    ),
    Story(
        "two page faults prove nothing",
        "b.3 (>= 3)",
        (X(0, "A", 31, MMU), X(HOUR, "A", 31, MMU)),
        {"A": APP},
    ),
    Story(
        "three faults of one crash count once",
        "b.3 (>= 3 times)",
        (X(0, "A", 31, MMU), X(1, "A", 13, WARP), X(20, "A", 32)),
        {"A": APP},
    ),
    Story(
        "13 in the same place",
        "b.1.6 (same GPC+TPC)",
        (X(0, "A", 13, WARP), X(HOUR, "A", 13, WARP)),
        {"A": Expect("restart_app", check=True)},
    ),
    Story(
        "13 in two places",
        "b.1.6 (same GPC+TPC)",
        (X(0, "A", 13, WARP), X(HOUR, "A", 13, ELSEWHERE)),
        {"A": APP},
    ),
    Story(
        "13 in the same place of two GPUs",
        "b.1.6 (different GPUs: the program)",
        (X(0, "A", 13, WARP), X(1, "B", 13, WARP), X(HOUR, "A", 13, WARP)),
        {"A": APP},
    ),
)

OVERRIDDEN = (
    Story(
        "driver says reset for a bus loss",
        "b.1.10",
        (X(0, "A", 79, FELL), X(0.1, "A", 154, TO_RESET)),
        {"A": RESET},
    ),
    Story(
        "driver says reboot for a double-bit error",
        "b.1.10",
        (X(0, "A", 48, DBE), X(0.1, "A", 154, TO_REBOOT)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "driver says reboot for a page fault",
        "b.1.10; open-gpu-kernel-modules issue 1134",
        (X(0, "A", 31, MMU), X(1, "A", 154, TO_REBOOT)),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "field 230 says reset",
        "b.1.10 (field 230 overrides)",
        (R(0, "A", 0), X(5, "A", 79, FELL), R(6, "A", 1)),
        {"A": RESET},
    ),
    Story(
        "field 230 says nothing is needed",
        "b.1.10; catalogue links 48 to it",
        (R(0, "A", 0), X(5, "A", 48, DBE)),
        {"A": Expect("restart_app", "gpu", urgent=False)},
        at_s=9.0,
    ),
    Story(
        "a 0 that was read once stays true when nothing can be read any more",
        "b.1.10; the driver said it after this error",
        (R(0, "A", 0), X(5, "A", 48, DBE), R(7, "A", 0), R(9, "A", None)),
        {"A": Expect("restart_app", "gpu", urgent=False)},
        at_s=60.0,
    ),
    Story(
        "a 0 from before the error does not outlive what can be read",
        "b.1.10; it is not about this error",
        (R(0, "A", 0), X(5, "A", 48, DBE), R(5.5, "A", None)),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
        at_s=9.0,
    ),
    Story(
        "a 0 that was read once does not cover what comes after it",
        "b.1.10; it is not about this error",
        (R(0, "A", 0), X(5, "A", 48, DBE), R(7, "A", 0), R(9, "A", None), X(40, "A", 48, DBE)),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
    ),
    Story(
        "a 0 that was read once yields to what the driver asks for later",
        "b.1.10",
        (R(0, "A", 0), X(5, "A", 48, DBE), R(7, "A", 0), R(9, "A", 1), R(20, "A", None)),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
    ),
    Story(
        "field 230 stays at 0 while the GPU is off the bus",
        "b.2 row 79; who does not answer has taken nothing back",
        (R(0, "A", 0), X(5, "A", 79, FELL)),
        {"A": Expect("reboot_node", "gpu", urgent=True)},
        at_s=9.0,
    ),
    Story(
        "an older driver's 0 after a bus loss",
        "b.2 row 79; catalogue links it from R565",
        (R(0, "A", 0), X(5, "A", 79, FELL)),
        {"A": Expect("reboot_node", "gpu", urgent=True)},
        at_s=5.1,
        branch=550,
    ),
    Story(
        "a 0 of a driver whose version is not known",
        "b.1.10 (only where the driver answers for it)",
        (R(0, "A", 0), X(5, "A", 48, DBE)),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
        at_s=9.0,
        branch=0,
    ),
    Story(
        "field 230 does not speak of 119",
        "b.2 row 119; not linked",
        (R(0, "A", 0), X(5, "A", 119, GSP)),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
        at_s=9.0,
    ),
    Story(
        "an older driver does not speak of 109",
        "b.1.3; catalogue links it from R570",
        (R(0, "A", 0), X(5, "A", 109)),
        {"A": RESET},
        at_s=9.0,
        branch=565,
    ),
    Story(
        "the driver has its time to speak",
        "b.1.10",
        (R(0, "A", 0), X(5, "A", 48, DBE)),
        {"A": Expect("reset_gpu", "gpu", urgent=False)},
        at_s=5.3,
    ),
    Story(
        "where the driver can't speak, nothing waits",
        "b.1.10 (where readable)",
        (R(0, "A"), X(5, "A", 48, DBE)),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
        at_s=5.1,
    ),
    Story(
        "marked without any XID",
        "b.1.10; sichek pull request 121",
        (R(0, "A", 1),),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
    ),
    Story(
        "drain and reset waits for the work",
        "b.1.10 (Drain and Reset)",
        (R(0, "A", 0), X(5, "A", 63, ROW_REMAP), R(6, "A", 4)),
        {"A": Expect("reset_gpu", "gpu", urgent=False)},
    ),
    Story(
        "peers only",
        "b.1.10 (Drain P2P)",
        (R(0, "A", 0), X(5, "A", 74, LINK14), R(6, "A", 3)),
        {"A": Expect("restart_app")},
    ),
    Story(
        "mended by a reset",
        "b.1.10 (action back to none)",
        (X(0, "A", 48, DBE), X(0.1, "A", 154, TO_RESET), X(HOUR, "A", 154, TO_NONE)),
        {"A": Expect("none", told=False)},
        at_s=HOUR + 400.0,
    ),
    Story(
        "a silent GSP mended by a reset",
        "b.1.10 (action back to none)",
        (X(0, "A", 119, GSP), X(0.1, "A", 154, TO_RESET), X(HOUR, "A", 154, TO_NONE)),
        {"A": Expect("none", told=False)},
        at_s=HOUR + 400.0,
    ),
    Story(
        "mended, and there again",
        "b.3 (same action again)",
        (
            X(0, "A", 48, DBE),
            X(0.1, "A", 154, TO_RESET),
            X(120, "A", 154, TO_NONE),
            X(240, "A", 48, DBE),
            X(240.1, "A", 154, TO_RESET),
        ),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "remap failed by flag, whatever the driver says",
        "b.1.4 (flag decides replace)",
        (
            R(0, "A", 0, remap_failed=True),
            X(5, "A", 64),
            X(5.1, "A", 154, TO_RESET),
            R(5.2, "A", 1, remap_failed=True),
        ),
        {"A": Expect("replace", "gpu")},
    ),
    Story(
        "driver's action does not make a clean-up a cause",
        "b.1.5, b.1.10",
        (X(0, "A", 45), X(100, "B", 48, DBE), X(100.1, "B", 154, TO_RESET)),
        {"A": NONE, "B": RESET},
    ),
)

MIXED = (
    Story(
        "two GPUs, two troubles",
        "b.2 rows 79 and 31",
        (X(0, "A", 79, FELL), X(0.5, "B", 31, MMU)),
        {"A": Expect("reboot_node", "gpu"), "B": APP},
    ),
    Story(
        "one marked, one not",
        "b.1.10",
        (R(0, "A", 0), R(0, "B", 0), X(5, "A", 48, DBE), X(5, "B", 48, DBE), R(6, "A", 1)),
        {"A": RESET, "B": Expect("restart_app", "gpu")},
        at_s=9.0,
    ),
    Story(
        "page fault and remap",
        "b.2 rows 31 and 63",
        (X(0, "A", 31, MMU), X(1, "B", 63, ROW_REMAP)),
        {"A": APP, "B": NONE},
    ),
    Story(
        "every GPU of a crashed job",
        "b.1.6, b.1.5",
        (
            *(X(0.1 * n, letter, 31, MMU) for n, letter in enumerate("ABCDEFGH")),
            *(X(2 + n, letter, 45) for n, letter in enumerate("ABCDEFGH")),
        ),
        dict.fromkeys("ABCDEFGH", APP),
    ),
)

TEARDOWN = (
    Story(
        "faults while ranks are ended",
        "b.3 teardown",
        (Teardown(0), X(5, "A", 31, MMU), X(8, "B", 13, WARP), X(9, "C", 45), X(9, "D", 43)),
        {
            "A": Expect("none", suppressed=("xid 31",)),
            "B": Expect("none", suppressed=("xid 13",)),
            "C": Expect("none", suppressed=("xid 45",)),
            "D": Expect("none", suppressed=("xid 43",)),
        },
    ),
    Story(
        "the fault that ended them stands",
        "b.3 teardown (after the signal)",
        (X(0, "A", 31, MMU), Teardown(1), X(3, "B", 31, MMU)),
        {"A": APP, "B": Expect("none", suppressed=("xid 31",))},
    ),
    Story(
        "hardware is not excused",
        "b.3 teardown (only 13/31/43/45)",
        (Teardown(0), X(5, "A", 79, FELL), X(6, "B", 95, UNCONTAINED)),
        {"A": Expect("reboot_node", "gpu"), "B": RESET},
    ),
    Story(
        "long after the end", "b.3 teardown (60 s)", (Teardown(0), X(70, "A", 31, MMU)), {"A": APP}
    ),
    Story(
        "faults of ended ranks don't count for a test",
        "b.3 teardown and >= 3",
        (X(0, "A", 31, MMU), Teardown(HOUR), X(HOUR + 5, "A", 31, MMU), X(2 * HOUR, "A", 31, MMU)),
        {"A": APP},
    ),
)

BUS = (
    Story(
        "off the bus without a number",
        "b.1.11",
        (L(0, "NVRM: GPU 0000:17:00.0: GPU has fallen off the bus."),),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "off the bus at start",
        "b.1.11",
        (
            L(
                0,
                "NVRM: The NVIDIA GPU 0000:17:00.0\\x0a               NVRM: (PCI ID: 10de:26b5) "
                "installed in this system has\\x0a               NVRM: fallen off the bus and is "
                "not responding to commands.",
            ),
        ),
        {"A": Expect("reboot_node", "gpu")},
    ),
    Story(
        "off the bus in both words",
        "b.1.11; NVSentinel issue 155 (no duplicate)",
        (
            X(0, "A", 79, FELL),
            L(0.001, "NVRM: GPU 0000:17:00.0: GPU has fallen off the bus."),
            N(0.2, "A", 79),
        ),
        {"A": Expect("reboot_node", "gpu")},
        times={("A", "xid 79"): 1},
    ),
    Story(
        "off the bus, and the driver's word",
        "b.1.10, b.1.11",
        (L(0, "NVRM: GPU 0000:17:00.0: GPU has fallen off the bus."), X(0.5, "A", 154, TO_REBOOT)),
        {"A": Expect("reboot_node", "gpu")},
    ),
)

TWICE_TOLD = (
    Story(
        "NVML and log",
        "brief: two inputs, one event",
        (N(0.3, "A", 48), X(0, "A", 48, DBE)),
        {"A": RESET},
        times={("A", "xid 48"): 1},
    ),
    Story(
        "log, then NVML late",
        "brief: within a few seconds",
        (X(0, "A", 94, CONTAINED), N(3, "A", 94)),
        {"A": Expect("restart_app", "gpu")},
        times={("A", "xid 94"): 1},
    ),
    Story(
        "NVML alone", "b.1.12; no kernel log", (N(0, "A", 79),), {"A": Expect("reboot_node", "gpu")}
    ),
    Story(
        "two faults, not one told twice",
        "brief: within a few seconds",
        (X(0, "A", 31, MMU), X(30, "A", 31, MMU)),
        {"A": APP},
        times={("A", "xid 31"): 2},
    ),
)

BACKLOG = (
    Story(
        "from before the ranks began",
        "b.1.12; older than the attempt: told",
        (X(0, "A", 48, DBE), Attempt(700)),
        {"A": Expect("reset_gpu", "gpu", urgent=False, told=True)},
    ),
    Story(
        "from before, but the GPU is still marked",
        "b.1.10, b.1.12",
        (X(0, "A", 48, DBE), X(0.1, "A", 154, TO_RESET), R(600, "A", 1), Attempt(700)),
        {"A": Expect("reset_gpu", "gpu", urgent=True)},
    ),
    Story(
        "from before, and long mended",
        "b.1.10, b.1.12",
        (X(0, "A", 48, DBE), R(600, "A", 0), Attempt(700)),
        {"A": Expect("none", told=False)},
        at_s=1300.0,
    ),
    Story(
        "from before counts for what comes",
        "b.1.12, b.3 (same action again)",
        (X(0, "A", 48, DBE), Attempt(2000), X(5000, "A", 48, DBE)),
        {"A": Expect("reboot_node", "gpu", urgent=True)},
    ),
    Story(
        "application faults are told for minutes",
        "b.3 none and restart_app",
        (X(0, "A", 31, MMU),),
        {"A": Expect("none", told=False)},
        at_s=400.0,
    ),
    Story(
        "an earlier boot is history only",
        "b.1.12",
        (X(0, "A", 79, FELL), Boot(300)),
        {"A": Expect("none", told=False)},
    ),
)

STORIES: tuple[Story, ...] = (
    *SOLO,
    *NVLINK,
    *SWITCHES,
    *SYMPATHETIC,
    *REPEATED,
    *OVERRIDDEN,
    *MIXED,
    *TEARDOWN,
    *BUS,
    *TWICE_TOLD,
    *BACKLOG,
)
