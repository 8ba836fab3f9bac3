"""What a person does next about one who is slow, by the cause."""

from __future__ import annotations

from holdfast_sidecar.records.steps import Cause

_ADVICE = {
    Cause.GPU_CLOCK: (
        "look at its cooling and its power supply (`nvidia-smi -q -d PERFORMANCE,TEMPERATURE`): "
        "airflow, dust, a fan, a brake that the supply asks for; until then take another node"
    ),
    Cause.GPU_POWER: (
        "compare its power limit with its neighbours' (`nvidia-smi -q -d POWER`) and set it alike "
        "(`nvidia-smi -pl`); a chip that needs more than others at the same clock stays slower"
    ),
    Cause.GPU_LINK: (
        "look at its PCIe link and NVLinks (`nvidia-smi -q -d PCIE`, `nvidia-smi nvlink -s`, AER "
        "errors in `dmesg`): reseat or reset the card; and at pinned memory and NUMA placement"
    ),
    Cause.GPU_SHARED: (
        "end the other process on its GPU, or keep it for the job alone (exclusive compute mode, "
        "the scheduler's own partition)"
    ),
    Cause.COMPUTE: (
        "compare it with a peer (`holdfast trace`): the same operators, slower, are the machine's "
        "doing (its CPU's clock, its memory), other ones the script's (a branch of that rank alone)"
    ),
    Cause.CPU_QUOTA: (
        "raise the CPU limit of its container (cpu.max, resources.limits.cpu), or start fewer "
        "loader workers and threads (OMP_NUM_THREADS) in it"
    ),
    Cause.CPU_CONTENTION: (
        "see what else runs on its cores (`top`, `holdfast status`): end it, bind ranks to cores "
        "of their own (`taskset`, `numactl`), or start fewer loader workers and threads"
    ),
    Cause.MEMORY_PRESSURE: (
        "give it more host memory, or need less: fewer loader workers, less prefetched, no swap; "
        "see who takes it (memory.stat of its cgroup, `ps --sort=-rss`)"
    ),
    Cause.COLLECTOR: (
        "keep Python's collector out of the step: `gc.freeze()` after the warm-up, then "
        "`gc.disable()` and `gc.collect()` every few hundred steps, at the same step on all ranks"
    ),
    Cause.DATA_LOADING: (
        "its loader is late: more workers or prefetching, less work per sample on the CPU, and see "
        "whether its shard is larger or differently stored than its peers'"
    ),
    Cause.STORAGE: (
        "look at what it reads from (`iostat -x`, `nfsiostat`, the mount and its server): move the "
        "data to a local or a quicker volume, or read further ahead"
    ),
    Cause.LINK: (
        "look at the cable, the transceiver, the card and the switch's port (`ethtool -S`, "
        "`rdma statistic`), and at what else uses that way; NCCL_DEBUG=INFO shows the routes taken"
    ),
    Cause.UNEVEN_WORK: (
        "even out what ranks are given: pack sequences to one length, sort or bucket them, or "
        "share batches out by tokens (squared, where attention dominates) and not by samples"
    ),
    Cause.PIPELINE: (
        "move layers from this stage to the others (embedding and loss count too), or give it more "
        "ranks; more micro-batches make the bubble smaller, not the stage quicker"
    ),
    Cause.RECOMPILATION: (
        "see what it compiles again for (TORCH_LOGS=recompiles): mark sizes that change as dynamic "
        "(`torch._dynamo.mark_dynamic`), pad batches to a few sizes, keep Python values constant"
    ),
    Cause.EVALUATION: (
        "share the evaluation out over all ranks, evaluate less often, or in a job of its own from "
        "a checkpoint: the others wait for it in their next collective"
    ),
    Cause.SAVING: (
        "let all ranks save their own part (torch.distributed.checkpoint), or save in the "
        "background (`job.checkpoint` does): the others wait for it in their next collective"
    ),
    Cause.UNKNOWN: (
        "`holdfast trace` takes a profile of it beside one of a healthy peer: what differs is the "
        "reason"
    ),
}

UNKNOWN_LINK = (
    "which node's link it is can't be told from groups that all nodes are in: look at the links' "
    "counters of all of them; process groups that span fewer nodes would tell"
)
"""Where a link is slow and nobody can be named."""


COMPUTE_ON_DEVICE = (
    "compare it with a peer (`holdfast trace`): the same kernels, slower, are the device's "
    "doing (`dcgmi diag -r 3`), other kernels the script's (a branch of that rank alone)"
)

ASLEEP = (
    "see where it stands meanwhile (`holdfast trace`, `py-spy dump --pid`): a sleep, a lock, a "
    "file or a call over the network that this rank alone waits for"
)


def advise(cause: Cause, has_device: bool = False, is_asleep: bool = False) -> str:
    """What to do about it, on a GPU or not, where the rank computes or where it waits."""
    if is_asleep:
        return ASLEEP
    if cause is Cause.COMPUTE and has_device:
        return COMPUTE_ON_DEVICE
    return _ADVICE[cause]
