"""All settings with their defaults and meaning. Loading and precedence: `configuration`."""

from __future__ import annotations

from dataclasses import dataclass, field

OVERSLEPT_S = 2.0
"""A gap between two ticks that nobody planned (the longest planned one is `tick_s`): the sidecar
was stopped, starved or swapped out, and may judge nobody by the time it slept."""


@dataclass(frozen=True)
class RedisSettings:
    """How to reach the coordination server."""

    url: str = ""
    """redis://, rediss://, unix:// or redis+sentinel://; empty: an embedded server (one node)."""
    user: str = ""
    password_file: str = ""
    timeout_s: float = 1.0
    """A call that takes longer counts as 'Redis is away'."""


@dataclass(frozen=True)
class SidecarSettings:
    """The node's watcher."""

    tick_s: float = 0.5
    heartbeat_s: float = 0.3
    node_timeout_s: float = 1.5
    """A node whose heartbeat stood still this long on the leader's clock is lost: five beats."""
    lease_s: float = 2.0
    grace_s: float = 10.0
    """How long the sidecar outlives its launcher."""
    listen: str = "127.0.0.1:0"
    mode: str = "act"
    """act, suggest or observe."""


@dataclass(frozen=True)
class PolicySettings:
    """When to restart, and when to stop."""

    max_restarts: int = -1
    """Restarts of the job in all; -1: no cap beside the budget."""
    budget: int = 10
    """Restarts per cause within `budget_window_s`."""
    budget_window_s: float = 3600.0
    backoff_s: float = 1.0
    """Pause before the third restart of a cause within the window; doubles from there."""
    backoff_limit_s: float = 60.0
    same_signature_limit: int = 2
    """The same exception at the same step this often is the user's own bug: stop."""
    preemption_grace_s: float = 25.0
    """From a scheduler's SIGTERM until a node that is being saved is given up. Slurm (KillWait) and
    Kubernetes kill what is left after 30 s; ending ranks takes the rest."""
    time_limit_s: float = 0.0
    """How long this launch may run; 0: what Slurm says, if it runs under it. Before the end the job
    is saved and stopped, to be started again."""
    time_limit_margin_s: float = 30.0
    """So long before the limit, and twice what a checkpoint took, the job is saved and stopped."""
    join_timeout_s: float = 600.0
    evidence_timeout_s: float = 10.0


@dataclass(frozen=True)
class StallSettings:
    """How long silence may last before it is called a stall, and before it is acted on."""

    factor: float = 3.0
    """Times the largest recent duration of the phase."""
    floor_s: float = 1.0
    first_step_s: float = 600.0
    """Allowance before the first step, for evaluating and restoring."""
    save_s: float = 2100.0
    """Allowance for saving: more than a coordinated checkpoint may take."""
    act_after_s: float = 120.0
    """Silence without positive evidence is acted on only after this long."""


@dataclass(frozen=True)
class StragglerSettings:
    """When a rank is called slow against its peers."""

    ratio: float = 1.25
    steps: int = 8


@dataclass(frozen=True)
class CheckpointSettings:
    """Coordinated checkpoints (they need the three lines in the script)."""

    dir: str = ""
    every_s: float = 0.0
    """0: by Young and Daly from what a checkpoint costs and how often the job fails."""
    every_steps: int = 0
    """When given, every so many steps instead of by time."""
    least_every_s: float = 60.0
    most_every_s: float = 3600.0
    """Bounds of the interval that is worked out: writing more often than each minute loads storage
    that others share, and nobody should lose more than an hour when the estimate is wrong."""
    keep: int = 3
    keep_days: float = 0.0
    """Besides, remove what is older than this; 0: no limit. Never the newest good one."""
    deadline_s: float = 120.0
    """For every rank to reach the step: whoever waits for a late one does not train."""
    write_timeout_s: float = 1800.0
    """For all to write and hash their parts, from there on."""
    load_failures: int = 2
    """A checkpoint that failed to load in this many attempts is poisoned."""
    good_after_s: float = 120.0
    """A complete checkpoint is good once the job ran on from it this long, for at least
    `good_after_steps`, without a numeric finding or an open hardware fault on a node that wrote it:
    a divergence shows within minutes, and a rollback of ten is cheaper than one to bad weights."""
    good_after_steps: int = 10
    key_file: str = ""
    """File with a secret to authenticate manifests with; empty: a plain digest only."""


@dataclass(frozen=True)
class SnapshotSettings:
    """Copies of all ranks' state in host memory, which outlive the ranks (three lines needed)."""

    every_steps: int = 0
    """0: as often as `most_share` allows; -1: never."""
    most_share: float = 0.02
    """Of the step time that snapshots may take: less than what anyone notices in a training."""
    slots: int = 3
    """Per rank: two in turn, one that a write holds meanwhile. Asynchronous peer copies take one
    more (the step that is through stays until the next one is)."""
    memory_share: float = 0.5
    """Of the memory and shared memory that are free when the job starts."""
    peer: str = "async"
    """Copies on another node: off, async (the newest that is through), or sync (ranks wait)."""
    peer_listen: str = "127.0.0.1:0"
    """Where other nodes fetch copies; loopback serves only nodes of this machine."""
    peer_bytes_per_s: float = 1e9
    """Cap on what this node fetches; 0: none. A tenth of a 100 Gbit/s link."""
    peer_timeout_s: float = 60.0
    """A copy that takes longer is given up; with `sync`, how long a rank waits at most."""
    failure_domain: str = ""
    """What fails together with this node (a rack, a switch): copies go to another one if any."""


@dataclass(frozen=True)
class PathSettings:
    """Where files go."""

    shm_dir: str = "/dev/shm"  # noqa: S108 - made 0700 and opened without following links
    shm_reserve_bytes: int = 64 * 2**20
    """Room that must be left beside the pages: DataLoader workers and gloo need some."""
    state_dir: str = ""
    """Default: $XDG_STATE_HOME/holdfast or ~/.local/state/holdfast."""


@dataclass(frozen=True)
class Settings:
    """All of them; the sections of holdfast.toml."""

    redis: RedisSettings = field(default_factory=RedisSettings)
    sidecar: SidecarSettings = field(default_factory=SidecarSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    stall: StallSettings = field(default_factory=StallSettings)
    straggler: StragglerSettings = field(default_factory=StragglerSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    paths: PathSettings = field(default_factory=PathSettings)
