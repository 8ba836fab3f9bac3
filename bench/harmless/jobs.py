"""The odd jobs: healthy, each unlike the textbook's in one way.

Rows are what is measured in one sitting. Most last some seconds: what they do is scaled down, and
so, by `QUICK_TO_SUSPECT`, is how soon silence is told. Those of the row `real time` are not scaled:
they outlast what Holdfast's limits are by default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from bench.harmless import disturbing as d
from bench.harmless import neighbours, object_store, storage
from bench.harmless import redis_ways as r
from bench.harmless.job import Job, nothing

WORK, REAL_TIME, TRAINING = "work", "real time", "training"
LIMITS, REDIS, FILES = "limits", "redis", "files"

QUICK_TO_SUSPECT = ("--set", "stall.first_step_s=3")
"""Against 600 s by default: a scaled job is silent for longer than that."""

SAVES = ("--checkpoint-dir", "{checkpoints}", "--checkpoint-every", "7steps")

SAVES_OBJECTS = ("--checkpoint-dir", f"s3://{object_store.BUCKET}/jobs", *SAVES[2:])

SAVING_STEPS = ("ODD_STEPS", "80")
"""Ten checkpoints; a kill comes at step 20 to 50."""


def _lasting(seconds: float, steps: int = 300) -> tuple[tuple[str, str], ...]:
    """Steps that last so long at least, for what is done from outside to be over before they are;
    as many whatever they last, so that such jobs have one plain twin."""
    return (("ODD_STEPS", str(steps)), ("ODD_STEP_SECONDS", f"{seconds / steps:.4f}"))


def _work(name: str, what: str, **more: object) -> Job:
    made = Job(name, WORK, ("working.py", what), options=QUICK_TO_SUSPECT)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def _real_time(name: str, what: str, odd_s: float) -> Job:
    """Runs once: it takes minutes."""
    full = f"{name}, {odd_s:g} s in real time"
    return Job(full, REAL_TIME, ("working.py", what), odd_s=odd_s, limit_s=odd_s + 120, runs=1)


def _outside(name: str, during: d.Step, lasts_s: float = 5.0, **more: object) -> Job:
    """`lasts_s`: of which its steps take half as long again, and 5 s."""
    made = Job(
        name,
        LIMITS,
        ("working.py", "nothing_odd"),
        environment=_lasting(1.5 * lasts_s + 5.0, 200),
        during=during,
        is_shared=True,
        runs=3,
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def _redis(name: str, during: d.Step, lasts_s: float = 4.0, **more: object) -> Job:
    made = Job(
        name,
        REDIS,
        ("working.py", "nothing_odd"),
        ranks=1,
        nodes=2,
        environment=_lasting(lasts_s + 8.0),
        before=r.with_redis,
        during=during,
        limit_s=150.0 + 2 * lasts_s,
    )
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def _spare(name: str, during: d.Step, lasts_s: float) -> Job:
    """With a spare node, which takes some seconds more until it is ready."""
    return _redis(f"{name}, a spare ready", during, lasts_s + 6.0, spares=1)


def _training(what: str, **more: object) -> list[Job]:
    """Left alone, and with a rank killed, after which its weights must be the same."""
    name = what.replace("_", " ")
    made = Job(
        name, TRAINING, ("training.py", what), options=SAVES, environment=(SAVING_STEPS,), runs=1
    )
    made = dataclasses.replace(made, **more)  # type: ignore[arg-type]
    killed = dataclasses.replace(
        made, name=f"{name}, a rank killed", during=d.rank_killed, starts=2, runs=3
    )
    return [made, killed]


def _saving(name: str, before: d.Step, during: d.Step | None = None, **more: object) -> Job:
    made = Job(
        name,
        FILES,
        ("training.py", "textbook"),
        options=SAVES,
        environment=(SAVING_STEPS,),
        before=before,
    )
    if during is not None:
        made = dataclasses.replace(made, during=during)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


JOBS = (
    _work("rollouts on one rank", "rollouts"),
    _work("generate() on all ranks", "generate"),
    _work("long evaluation", "long_evaluation"),
    _work("an index before the first step", "first_step_late"),
    _work("weights trickle in", "loads_slowly"),
    _work("motionless before the first step", "sleeps_before_the_first_step"),
    _work("all ranks sleep", "sleeps_together"),
    _work("packing in children", "packing"),
    _work("upload by a subprocess", "uploads_by_subprocess"),
    _work("upload by a thread", "uploads_by_thread"),
    _work("upload over HTTP", "uploads_over_http"),
    _work("a checkpoint of its own, slowly", "writes_slowly"),
    _work("busy by name", "busy_by_name"),
    _work("steps of seconds", "long_steps"),
    _work("ever longer steps", "uneven_steps"),
    _work("no optimizer", "no_optimizer"),
    _work("no process group", "without_a_group"),
    _work("signals of its own", "own_signals"),
    _work("a child that is killed", "forks_a_child_that_dies"),
    _real_time("rollouts on one rank", "rollouts", 150.0),
    _real_time("generate() on all ranks", "generate", 150.0),
    _real_time("an index before the first step", "first_step_late", 660.0),
    _real_time("all ranks sleep", "sleeps_together", 150.0),
    *_training("textbook"),
    *_training("fork_workers"),
    *_training("spawn_workers"),
    *_training("stream"),
    *_training("stateful_stream"),
    *_training("accumulation"),
    *_training("skipped_by_the_scaler"),
    *_training("moving_average"),
    *_training("sharpness_aware"),
    *_training("two_optimizers"),
    *_training("line_search"),
    *_training("scheduled"),
    *_training("compiled"),
    *_training("compiled_by_inductor", needs=("c++",)),
    *_training("sharded_with_evaluation"),
    *_training("weight_noise"),
    _outside("the whole launch stopped for 10 s", d.whole_launch_stopped(10.0)),
    Job(
        "the job grows to 90% of its memory limit",
        LIMITS,
        ("training.py", "grows_into_its_limit"),
        environment=(("ODD_STEPS", "500"),),
        before=d.memory_limit(3000),
        is_shared=True,
        runs=2,
        limit_s=300.0,
    ),
    _outside(
        "the launcher alone stopped for 35 s",
        d.launcher_stopped(35.0),
        35.0,
        options=("--set", "policy.join_timeout_s=20"),  # or a loss would cost it only in 10 min
        is_shared=False,
        limit_s=240.0,
        runs=2,
    ),
    _outside("one rank stopped for up to 0.4 s", d.one_rank_stopped_briefly(0.4, 6)),
    _outside("a debugger for 6 s", d.debugged(6.0), 6.0, needs=("gdb",)),
    _outside("py-spy", d.profiled(5), 8.0),
    _outside("frozen for 10 s", d.frozen(10.0)),
    _outside("a twentieth of a core for 10 s", d.cpu_quota(0.05, 10.0), 10.0),
    _outside("few processes", d.has_few_processes, before=d.few_processes(160)),
    _outside("1,024 files", d.has_few_files, before=d.few_files),
    # torchrun itself ends on a SIGHUP that nohup told it to ignore.
    _outside("nohup", d.terminal_closes, before=d.no_terminal, needs=("nohup",), is_shared=False),
    _outside("the sidecar is killed", d.sidecars_die, is_shared=False),
    _outside("the sidecar stands still for 6 s", d.sidecars_stand_still(6.0), 6.0, is_shared=False),
    _outside(
        "the clock goes forward an hour",
        storage.clock_jumps(1),
        before=storage.own_clock,
        needs=("cc",),
    ),
    _outside(
        "the clock goes back an hour",
        storage.clock_jumps(-1),
        before=storage.own_clock,
        needs=("cc",),
    ),
    _outside(
        "the state's disk fills up",
        storage.disk_fills_up("state"),
        before=storage.small_disk("state", "8m"),
        is_shared=False,
    ),
    _outside(
        "the state's disk is full before the start",
        nothing,
        before=storage.full_disk("state", "8m"),
        is_shared=False,
    ),
    _outside(
        "the state's disk turns read-only",
        storage.disk_turns_read_only("state"),
        before=storage.small_disk("state", "8m"),
        is_shared=False,
    ),
    *(
        _redis(f"Redis out of {whose} reach, {seconds:g} s", r.cut_off(who, seconds), seconds)
        for who, whose in (("one", "one node's"), ("leader", "the leader's"), ("all", "all"))
        for seconds in (0.5, 2.0, 10.0)
    ),
    *(
        _redis(f"Redis out of {whose} reach, 60 s", r.cut_off(who, 60.0), 60.0, runs=1)
        for who, whose in (("one", "one node's"), ("leader", "the leader's"), ("all", "all"))
    ),
    *(
        _redis(f"Redis out of two nodes' reach of three, {s:g} s", r.cut_off("some", s), s, nodes=3)
        for s in (2.0, 10.0)
    ),
    _redis(
        "a node unheard of for 3 s, steps of 0.7 s, a spare ready",
        r.node_unheard(3.0),
        spares=1,
        environment=(("ODD_STEPS", "45"), ("ODD_STEP_SECONDS", "0.7")),
    ),
    _spare("Redis out of one node's reach, 3 s", r.cut_off("one", 3.0), 3.0),
    _redis("Redis stands still for 4 s", r.redis_stands_still(4.0)),
    _redis("Redis refuses for 3 s, then knows nothing", r.redis_refuses(3.0)),
    _redis("Redis forgets all", r.redis_forgets),
    _redis("all sidecars are killed", d.sidecars_die),
    _spare("one node stopped for 1 s", d.node_stopped(1.0), 1.0),
    _redis("one node stopped for 4 s", d.node_stopped(4.0)),
    _redis("two launches more", neighbours.two_more_launches, 20.0),
    _saving("foreign folders", storage.foreign_folders),
    _saving(
        "another user was in shared memory first",
        neighbours.somebody_in_shared_memory,
        needs=("setpriv",),
        may_refuse=True,
    ),
    _saving(
        "another user was among the checkpoints first",
        neighbours.somebody_among_the_checkpoints,
        needs=("setpriv",),
        may_refuse=True,
    ),
    _saving(
        "another user was in the state first",
        neighbours.somebody_in_the_state,
        needs=("setpriv",),
        may_refuse=True,
    ),
    _saving(
        "64 MB of shared memory",
        storage.small_shared_memory(64),
        script=("training.py", "fork_workers"),
        environment=(SAVING_STEPS, ("ODD_WIDTH", "800")),
        is_shared=True,
        needs=("unshare",),
    ),
    _saving(
        "2 MB of shared memory",
        storage.small_shared_memory(2),
        script=("training.py", "fork_workers"),
        is_shared=True,
        needs=("unshare",),
    ),
    _saving("storage syncs slowly", storage.slow_storage, storage.must_be_loaded, needs=("cc",)),
    _saving("storage reads slowly", storage.slow_reads, storage.must_be_loaded, needs=("cc",)),
    _saving(
        "an object store that is slow",
        object_store.ailing_store(slow_s=1.5),
        object_store.follow_to_its_end,
        options=SAVES_OBJECTS,
    ),
    _saving(
        "an object store that often refuses",
        object_store.ailing_store(share=0.4),
        object_store.follow_to_its_end,
        options=SAVES_OBJECTS,
    ),
    _saving("storage is full from the start", storage.full_disk("checkpoints", "4m")),
    _saving(
        "storage fills up",
        storage.small_disk("checkpoints", "4m"),
        storage.disk_fills_up("checkpoints"),
    ),
    _saving(
        "storage turns read-only",
        storage.small_disk("checkpoints", "16m"),
        storage.disk_turns_read_only("checkpoints"),
    ),
)
"""All of them, in the order of their rows."""

QUICK = (
    "rollouts on one rank",
    "motionless before the first step",
    "textbook, a rank killed",
    "two optimizers",
    "one rank stopped for up to 0.4 s",
    "the sidecar is killed",
    "Redis out of one node's reach, 2 s",
    "foreign folders",
)
"""One of each row, and one of what most often goes wrong."""

STEADY: Mapping[str, str] = {"ODD_TIMED": "1", "ODD_STEPS": "300"}
"""Steps as long as in the other rows, which sleep for most of each; 8 s of work and more. Of 200
steps a pair differed by 1.4 to 1.9 % (standard deviation): six could not decide about 3 %."""
SHORT: Mapping[str, str] = {"ODD_TIMED": "1", "ODD_STEPS": "300", "ODD_STEP_SECONDS": "0.01"}
WAITING: Mapping[str, str] = {
    **STEADY,
    "ODD_STEPS": "150",
    "ODD_STEP_SECONDS": "0.05",
    "ODD_DEVICE_SHARE": "0.5",
}
"""Longer steps, for half of which the ranks wait as for a device: their cores are idle then."""

TIMED: Mapping[str, tuple[float, Mapping[str, str]]] = {
    "rollouts on one rank": (3.0, STEADY),
    "steps of seconds": (8.0, STEADY),
    "ever longer steps": (3.0, {**STEADY, "ODD_STEPS": "36"}),
    "no optimizer": (3.0, STEADY),
    "signals of its own": (3.0, STEADY),
    "textbook": (3.0, STEADY),
    "fork workers": (3.0, STEADY),
    "accumulation": (3.0, STEADY),
    "skipped by the scaler": (3.0, STEADY),
    "two optimizers": (3.0, STEADY),
    "compiled": (3.0, STEADY),
    "sharded with evaluation": (3.0, STEADY),
}
"""Jobs whose time is compared with that of the same job without Holdfast: how long their odd part
lasts, and their environment. They use every core."""

TIMED_WAITING = ("textbook", "accumulation", "two optimizers", "signals of its own")
"""These again with steps in which cores are idle."""

TIMED_SAVING, TIMED_SHORT = ("textbook",), ("textbook",)
"""Textbook again with a checkpoint every 100 steps, which is every three seconds; and with steps of
11 ms, three times as short as the shortest of the others. No part of the goal: the first is not
what a job has by default, the second is not how long a step of training takes."""
