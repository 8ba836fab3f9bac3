"""Which nodes are fit: every check on what a machine may say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast_sidecar.components.gpu.links import LinkMemory, remember_links
from holdfast_sidecar.components.gpu.readings import Gpu, GpuReading, Signal
from holdfast_sidecar.components.health_check.checks import (
    CHECKS,
    Fitness,
    Subject,
    find_gate_troubles,
    judge_fitness,
)
from holdfast_sidecar.components.host.readings import (
    FilesystemSpace,
    HostReading,
    NetworkFilesystem,
)
from holdfast_sidecar.components.machine import MachineReading
from holdfast_sidecar.config.settings import GateSettings
from holdfast_sidecar.records.codec import decode, encode
from holdfast_sidecar.records.findings import Finding, Kind, Moment, Remedy
from holdfast_sidecar.records.reports import Exertion, GateVerdict, ProbeHealth

MOMENT = Moment(100.0, 1000.0, "n1", 0.0)
HOST = HostReading({}, 2, 0.1, 100, 90, 0, 0.0)
GIB = 2**30

OF_GPUS = ["gpus", "recovery", "gpu memory", "pcie", "nvlink"]
"""Checks that rest on what the driver says now."""


def gpu(index: int = 0, lost: str = "", **values: float) -> Gpu:
    told = {Signal[name]: value for name, value in values.items()}
    return Gpu(index, f"GPU-{index}", "H100", f"0000:{index:02x}:00.0", told, lost=lost)


def machine(
    *gpus: Gpu, rooms: dict[str, FilesystemSpace] | None = None, **about: Any
) -> MachineReading:
    reading = GpuReading(bool(gpus), "570", gpus, **about)
    return MachineReading(host=replace(HOST, rooms=rooms or {}), gpu=reading)


def judge(read: MachineReading, settings: GateSettings | None = None, **more: Any) -> Fitness:
    return judge_fitness(Subject(read, settings or GateSettings(), **more))


def reasons(read: MachineReading, **more: Any) -> list[str]:
    return judge(read, **more).verdict(1.0).reasons


def test_a_machine_without_a_gpu_is_fit_at_once() -> None:
    verdict = judge(machine()).verdict(1.0)
    assert (verdict.state, verdict.reasons, verdict.blind) == ("fit", [], [])
    assert (verdict.gpus, verdict.gpus_all) == (0, 0)


def test_healthy_gpus_are_fit() -> None:
    well = gpu(
        RECOVERY_ACTION=0, REMAP_PENDING=0, REMAP_FAILURE=0, NVLINKS_ACTIVE=18, NVLINKS_EXPECTED=18
    )
    verdict = judge(machine(well, gpu(1))).verdict(1.0)
    assert (verdict.state, verdict.gpus, verdict.gpus_all) == ("fit", 2, 2)


FAULTS = [
    ({"RECOVERY_ACTION": 1}, "recovery: GPU 0 (0000:00:00.0) needs a reset of the GPU, says the"),
    ({"RECOVERY_ACTION": 4}, "recovery: GPU 0 (0000:00:00.0) needs a reset once its work is done"),
    ({"RECOVERY_ACTION": 7}, "recovery: GPU 0 (0000:00:00.0) needs a restart of the whole system"),
    ({"REMAP_PENDING": 1}, "gpu memory: GPU 0 (0000:00:00.0) has rows to be remapped"),
    ({"REMAP_FAILURE": 1}, "gpu memory: GPU 0 (0000:00:00.0) could not remap a row"),
    ({"RETIREMENT_PENDING": 1}, "gpu memory: GPU 0 (0000:00:00.0) has pages to be retired"),
    ({"NVLINKS_ACTIVE": 17, "NVLINKS_EXPECTED": 18}, "nvlink: GPU 0 (0000:00:00.0) has 17 of 18"),
]


@pytest.mark.parametrize(("values", "told"), FAULTS)
def test_what_a_gpu_says_of_itself_makes_a_node_unfit(values: dict[str, float], told: str) -> None:
    verdict = judge(machine(gpu(0, "", **values), gpu(1))).verdict(1.0)
    (reason,) = verdict.reasons
    assert reason.startswith(told)
    assert (verdict.state, verdict.gpus, verdict.gpus_all) == ("unfit", 1, 2)


@pytest.mark.parametrize(
    "values",
    [
        {"NVLINKS_ACTIVE": 0},
        {"NVLINKS_EXPECTED": 18},
        {"RECOVERY_ACTION": -1},
        {"RECOVERY_ACTION": 3},
        {"RECOVERY_ACTION": 5},
        {"RECOVERY_ACTION": 9},
        {"NVLINKS_ACTIVE": -1, "NVLINKS_EXPECTED": 18},
        {"REMAP_PENDING": float("nan")},
        {"NVLINKS_ACTIVE": float("nan"), "NVLINKS_EXPECTED": 18},
    ],
)
def test_what_is_not_said_or_makes_no_sense_keeps_nobody_out(values: dict[str, float]) -> None:
    assert judge(machine(gpu(0, "", **values))).verdict(1.0).state == "fit"


def test_fewer_gpus_than_there_should_be() -> None:
    assert reasons(machine(), settings=GateSettings(expected_gpus=8)) == ["gpus: 0 of 8 are there"]
    assert reasons(machine(gpu()), settings=GateSettings(expected_gpus=1)) == []
    assert reasons(machine(gpu(), gpu(1), expected=4)) == ["gpus: 2 of 4 are there"]
    lost = machine(gpu(), gpu(1, lost="GPU is lost"), expected=2)
    assert reasons(lost) == [
        "gpus: GPU 1 (0000:01:00.0) is lost: GPU is lost",
        "gpus: 1 of 2 are there",
    ]
    assert judge(lost).verdict(1.0).gpus == 1


def test_a_driver_that_does_not_answer_blinds_the_gate_and_keeps_nobody_out() -> None:
    broken = gpu(RECOVERY_ACTION=2)
    fitness = judge(machine(broken, stale_since_s=1.0))
    assert fitness.verdict(1.0).state == "fit"
    assert fitness.blind == dict.fromkeys(OF_GPUS, "the driver does not answer")
    assert {check for check in CHECKS if fitness.passes(check) is None} == set(OF_GPUS)


def test_how_many_gpus_are_well_is_not_known_while_the_driver_does_not_answer() -> None:
    verdict = judge(machine(gpu(), gpu(1), stale_since_s=1.0)).verdict(1.0)
    assert (verdict.gpus, verdict.gpus_all) == (None, 2)
    told = decode(GateVerdict, encode(verdict))
    assert told == verdict
    failing = ProbeHealth("gpu", False, 3, 0.1, "SilentError")
    unread = judge(MachineReading(failing=(failing,)), GateSettings(expected_gpus=8)).verdict(1.0)
    assert (unread.gpus, unread.gpus_all) == (None, 8)


def test_a_probe_that_fails_blinds_the_gate_with_its_error() -> None:
    failing = ProbeHealth("gpu", False, 3, 0.1, "SilentError: gpu has not answered in 1 s")
    fitness = judge(MachineReading(host=HOST, failing=(failing,)))
    assert fitness.verdict(1.0).state == "fit"
    assert fitness.verdict(1.0).blind[0] == "gpus: SilentError: gpu has not answered in 1 s"
    assert list(fitness.blind) == OF_GPUS
    failing = replace(failing, name="host")
    fitness = judge(MachineReading(gpu=GpuReading(False), failing=(failing,)))
    assert list(fitness.blind) == ["room"]


def test_an_action_of_a_newer_driver_blinds_its_check_and_hides_no_other_gpu() -> None:
    fitness = judge(machine(gpu(RECOVERY_ACTION=9), gpu(1)))
    assert fitness.blind == {"recovery": "the driver asks for action 9, which is unknown"}
    (reason,) = reasons(machine(gpu(RECOVERY_ACTION=9), gpu(1, RECOVERY_ACTION=1)))
    assert "GPU 1 (0000:01:00.0) needs a reset" in reason


def test_before_the_first_reading_nothing_is_known() -> None:
    fitness = judge(MachineReading(host=HOST))
    assert fitness.verdict(1.0).state == "unknown"
    assert fitness.passes("gpus") is None


def test_garbage_blinds_one_check_and_the_others_go_on() -> None:
    garbage = replace(gpu(REMAP_FAILURE=1), values={Signal.RECOVERY_ACTION: "x"})  # type: ignore[dict-item]
    fitness = judge(machine(garbage, gpu(1, REMAP_FAILURE=1)))
    assert list(fitness.blind) == ["recovery"]
    assert "could not remap a row" in fitness.verdict(1.0).reasons[0]
    infinite = gpu(RECOVERY_ACTION=float("inf"))
    assert list(judge(machine(infinite)).blind) == ["recovery"]


def test_room_for_a_checkpoint() -> None:
    full = {"checkpoint": FilesystemSpace(100 * GIB, 200 * 2**20)}
    assert reasons(machine(rooms=full)) == [
        "room: 200 MiB are left for checkpoints, less than 1024 MiB"
    ]
    assert reasons(machine(rooms={"checkpoint": FilesystemSpace(100 * GIB, 2 * GIB)})) == []
    assert reasons(machine(rooms={"checkpoint": FilesystemSpace(0, 0)})) == [], "nothing was said"
    assert reasons(machine(rooms={"state": FilesystemSpace(100 * GIB, 0)})) == [], "another room"


def test_storage_that_nodes_share_says_nothing_and_one_that_is_silent_can_t_be_checked() -> None:
    read = machine(rooms={"checkpoint": FilesystemSpace(100 * GIB, 0)})
    assert read.host is not None
    shared = replace(read.host, storage=(NetworkFilesystem("checkpoint", "nfs4", "/shared"),))
    assert reasons(replace(read, host=shared)) == []
    silent = replace(read.host, rooms={}, silent_rooms={"checkpoint": 12.0})
    assert judge(replace(read, host=silent)).blind == {
        "room": "its file system has not answered for 12 s"
    }


def found(kind: Kind, remedy: Remedy = Remedy.NONE, what: str = "", gpu: str = "") -> Finding:
    return Finding(
        kind, "n1", 1.0, 0.9, evidence=["Xid 79: fell off"], what=what, remedy=remedy, gpu=gpu
    )


def works(read: MachineReading, **more: Any) -> bool:
    verdict = judge(read, **more).verdict(1.0)
    assert verdict.state == "unfit"
    return verdict.works


def test_what_an_attempt_would_run_on_is_told_from_what_would_end_it() -> None:
    assert works(machine(gpu(REMAP_PENDING=1)))
    assert works(machine(gpu(NVLINKS_ACTIVE=17, NVLINKS_EXPECTED=18)))
    assert works(machine(rooms={"checkpoint": FilesystemSpace(100 * GIB, GIB // 2)}))
    assert works(machine(), clock_off_s=93.4)
    assert works(machine(), exertion=Exertion("r", "done"), far_behind=["matmul: 40%"])
    log = [found(Kind.GPU_FAULT, Remedy.REPLACE, gpu="GPU-0")]
    assert works(machine(gpu()), findings=log)
    assert not works(machine(gpu(lost="fell off")), findings=log)
    assert not works(machine(gpu(), stale_since_s=1.0), findings=log)
    assert not works(machine(gpu(1)), findings=log), "it is not listed any more"
    assert not works(machine(gpu()), findings=[found(Kind.GPU_FAULT, Remedy.REPLACE)]), "a switch"
    assert not works(machine(gpu()), findings=[found(Kind.GPU_LOST, Remedy.RESET_GPU)])
    assert works(machine(gpu(RECOVERY_ACTION=1))), "it answers: it is tried once"
    assert not works(machine(gpu(RECOVERY_ACTION=2)))
    assert works(machine(gpu(RECOVERY_ACTION=4)))
    assert not works(machine(gpu(lost="fell off"), gpu(1, REMAP_PENDING=1)))
    assert not works(machine(), exertion=Exertion("r", "done", wrong=["a sum"]))
    assert not judge(machine(gpu())).verdict(1.0).works


def test_an_open_fault_of_the_hardware_keeps_a_node_out_and_one_of_the_program_does_not() -> None:
    read = machine(gpu(), gpu(1))
    hard = found(Kind.GPU_FAULT, Remedy.REBOOT_NODE, gpu="GPU-1")
    fitness = judge(read, findings=[hard])
    assert fitness.verdict(1.0).reasons == ["gpu faults: Xid 79: fell off (reboot node)"]
    assert fitness.verdict(1.0).gpus == 1
    assert reasons(read, findings=[found(Kind.GPU_FAULT, Remedy.RESTART_APP)]) == []
    assert reasons(read, findings=[found(Kind.GPU_THROTTLED, Remedy.REPLACE)]) == []


LINKS_TOLD = [
    (Kind.LINK_DOWN, "mlx5_0/1", Remedy.REPLACE, True),
    (Kind.LINK_DOWN, "eth3", Remedy.REPLACE, True),
    (Kind.LINK_DOWN, "eth3", Remedy.NONE, False),
    (Kind.LINK_FLAPPING, "mlx5_0/1", Remedy.NONE, False),
    (Kind.LINK_DEGRADED, "mlx5_0/1", Remedy.NONE, True),
    (Kind.LINK_DEGRADED, "eth3", Remedy.NONE, False),
    (Kind.LINK_DEGRADED, "errors of mlx5_0/1", Remedy.NONE, False),
]


@pytest.mark.parametrize(("kind", "what", "remedy", "is_unfit"), LINKS_TOLD)
def test_a_lost_link_and_a_slow_port_keep_a_node_out(
    kind: Kind, what: str, remedy: Remedy, is_unfit: bool
) -> None:
    verdict = judge(machine(), findings=[found(kind, remedy, what)]).verdict(1.0)
    assert verdict.reasons == (["links: Xid 79: fell off"] if is_unfit else [])
    assert verdict.works == is_unfit, "nobody knows whether the job needs this very link"


def test_a_clock_that_most_others_call_wrong() -> None:
    assert reasons(machine(), clock_off_s=93.4) == [
        "clock: it is 93 s ahead of those of most other nodes"
    ]
    assert reasons(machine(), clock_off_s=-93.4) == [
        "clock: it is 93 s behind those of most other nodes"
    ]


def test_a_test_that_came_out_wrong_keeps_a_node_out_and_one_that_failed_blinds() -> None:
    wrong = Exertion("r", "done", wrong=["cuda 3: 1 of 80 products came out wrong"])
    assert reasons(machine(), exertion=wrong) == ["test: cuda 3: 1 of 80 products came out wrong"]
    behind = ["matmul: 40% of the median of the other nodes"]
    assert reasons(machine(), exertion=Exertion("r", "done"), far_behind=behind) == [
        "test: matmul: 40% of the median of the other nodes"
    ]
    failed = judge(machine(), exertion=Exertion("r", "failed", "no torch here"))
    assert failed.verdict(1.0).state == "fit"
    assert failed.blind == {"test": "no torch here"}
    assert reasons(machine(), exertion=Exertion("r", "refused", "ranks run there")) == []


def test_it_is_told_that_a_node_is_unfit_and_what_can_t_be_seen() -> None:
    unfit = judge(machine(gpu(RECOVERY_ACTION=1)))
    (finding,) = find_gate_troubles(unfit, True, MOMENT)
    assert (finding.kind, finding.node, len(finding.evidence)) == (Kind.NODE_UNFIT, "n1", 1)
    (finding,) = find_gate_troubles(unfit, False, MOMENT)
    assert "taken in all the same" in finding.evidence[-1]
    blind = judge(machine(gpu(), stale_since_s=1.0))
    (finding,) = find_gate_troubles(blind, True, MOMENT)
    assert (finding.kind, finding.what) == (Kind.GATE_BLIND, "gpus")
    assert finding.evidence == [
        "gpus, recovery, gpu memory, pcie, nvlink can't be checked, the node counts as fit: the "
        "driver does not answer"
    ]
    assert list(find_gate_troubles(judge(machine()), True, MOMENT)) == []


def test_every_check_has_a_test_here() -> None:
    """A check that no fault was planted for may be one that can't fail."""
    planted = "gpus recovery gpu memory pcie nvlink gpu faults links room clock test"
    assert " ".join(CHECKS) == planted


def link(width: int, generation: int, busy: float = 0.0, most: bool = True) -> Gpu:
    values = {"PCIE_WIDTH": width, "PCIE_GENERATION": generation, "BUSY": busy}
    able = {"PCIE_WIDTH_MOST": 16, "PCIE_GENERATION_MOST": 5} if most else {}
    return gpu(0, "", **values, **able)


def after(*seen: Gpu) -> LinkMemory:
    memory = LinkMemory()
    for one in seen:
        memory = remember_links(memory, [one])
    return memory


LINKS = [
    ("at work and narrow", [link(8, 5, 0.9)], "PCIe 5 x8, which could be PCIe 5 x16"),
    ("at work and slow", [link(16, 3, 0.9)], "PCIe 3 x16, which could be PCIe 5 x16"),
    ("idle and slow, as idle GPUs are", [link(16, 1)], ""),
    ("remembered while it is idle", [link(8, 5, 0.9), link(8, 1)], "PCIe 5 x8, which could"),
    ("well again", [link(8, 5, 0.9), link(16, 5, 0.9)], ""),
    ("well again though idle", [link(8, 5, 0.9), link(16, 5)], ""),
    ("below what it had", [link(16, 4, 0.5, False), link(8, 4, 0.5, False)], "PCIe 4 x8, which"),
    ("no best is told", [link(8, 4, 0.5, False)], ""),
    ("garbage", [link(-8, 4, 0.5), link(0, 0, 0.5)], ""),
]


@pytest.mark.parametrize(("seen", "told"), [case[1:] for case in LINKS], ids=[c[0] for c in LINKS])
def test_a_pcie_link_is_judged_at_work_and_remembered(seen: list[Gpu], told: str) -> None:
    assert after(*seen).slow("GPU-0").startswith(told)
    assert bool(after(*seen).slow("GPU-0")) == bool(told)
    expected = [f"pcie: GPU 0 (0000:00:00.0) computes behind {after(*seen).slow('GPU-0')}"]
    assert reasons(machine(seen[-1]), links=after(*seen)) == (expected if told else [])
