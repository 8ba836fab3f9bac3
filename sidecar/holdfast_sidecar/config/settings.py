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
    node_timeout_s: float = 1.1
    """A node that no witness has spoken for this long is lost: no heartbeat of its launcher or
    sidecar reached the leader, no step that needs it was completed elsewhere, and no round trip of
    other sidecars was answered. A beat, a pause of half a second, and as much again as a busy
    machine may add; with the beats that were just over on either side, 99 of 100 losses are
    declared within 1.5 s."""
    unwitnessed_timeout_s: float = 30.0
    """The same where only heartbeats could have spoken, or where several nodes fall silent at once:
    longer than a switch takes to start, or Redis to fail over."""
    lease_s: float = 2.0
    grace_s: float = 10.0
    """How long the sidecar outlives its launcher."""
    listen: str = "127.0.0.1:0"
    """Of /metrics and all else that is served. Beyond loopback it wants a token and TLS."""
    listen_insecure: bool = False
    """Said aloud: it may do without, because the network itself is guarded."""
    advertise: str = ""
    """HOST or HOST:PORT by which Prometheus reaches it; empty: where it listens, or, on a wildcard,
    this node's address on the way to Redis."""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    token_file: str = ""
    """Callers show what it holds: `Authorization: Bearer ...`."""
    mode: str = "act"
    """What may be done about faults, where `[modes]` says nothing else: act; suggest (say what
    would be done, and how a person does it); observe (only record it)."""
    machine: str = ""
    """By which a bad machine is known again under another name; empty: /etc/machine-id. Containers
    don't see that of their host."""


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
    """The same failure at the same step this often is the user's own bug: stop. What storage, the
    network or a busy device did is not one."""
    surroundings_backoff_s: float = 10.0
    """Pause before the first restart after a failure of storage, network or a busy device; then 3,
    12 and 30 times as long."""
    stepless_limit: int = 10
    """So many failures in a row without a step that had not been made before stop the job, however
    seldom they come: with 65, or with 75 where nodes or surroundings are to blame."""
    requeue_limit: int = 5
    """So often the job may end with 75 without a step that had not been made before, counted over
    requeues of the same scheduler job; then it ends with 65."""
    preemption_grace_s: float = 25.0
    """From a scheduler's SIGTERM until a node that is being saved is given up. Slurm (KillWait) and
    Kubernetes kill what is left after 30 s; ending ranks takes the rest."""
    time_limit_s: float = 0.0
    """How long this launch may run; 0: what Slurm says, if it runs under it. Before the end the job
    is saved and stopped, to be started again."""
    time_limit_margin_s: float = 30.0
    """So long before the limit, and twice what a checkpoint took, and what ranks take to a boundary
    at which no gradient waits, the job is saved and stopped."""
    blames_limit: int = 3
    """So many failures blamed on one node put it outside: one is chance, two may be, and the job
    has been down three times for it."""
    blames_half_life_s: float = 259200.0
    """After three days a failure counts half. A node of eight GPUs fails once in 48 days (Meta's
    research clusters, arXiv 2410.21680) to 260 (Llama 3: 419 interruptions in 54 days on 2048
    nodes), so that three failures within a week are chance on one of 2000 nodes at most; one that
    fails every other day reaches the limit."""
    quarantine_s: float = 86400.0
    """How long it stays outside: until somebody has had a day to look at it. A GPU that needs a
    reset and a node that needs a reboot come back as soon as they had it."""
    quarantine_share: float = 0.1
    """Of all nodes, two at least, that may be outside at a time without a person's word: more than
    a tenth hardly fail each by themselves, but for what they share (a driver, a switch, an image),
    which is no better on the nodes that are left."""
    replace_slow_after_s: float = 600.0
    """A node that has been slow for so long, for a reason that stays with it, gives its place to a
    spare at a checkpoint, once the job has lost as much by it as a restart costs; 0: never. What
    slows computing passes within some ten minutes, if it does (Greyhound, ATC '25)."""
    stuck_limit: int = 3
    """After so many failures in a row without a step that had not been made before, the job goes
    back behind the state that it resumed from, if there is a good checkpoint before."""
    join_timeout_s: float = 600.0
    """How long a job waits for the nodes that it can't go on without, before it ends with 75."""
    lost_act_after_s: float = 5.0
    """A lost node is given up at once where a spare is ready, else after so long a silence: what
    comes back within seconds costs less than a restart."""
    evidence_timeout_s: float = 10.0


@dataclass(frozen=True)
class ModeSettings:
    """What may be done about one fault: act, suggest, observe; empty: as `sidecar.mode` says."""

    hang: str = ""
    """A rank that stands still, by positive evidence: its attempt is ended and it with it."""
    stall: str = ""
    """A rank that is silent for very long."""
    numbers: str = ""
    """NaN, Inf, spikes: the job goes back to a good checkpoint."""
    gpu: str = ""
    """A GPU that has to be reset or replaced: the attempt that uses it is ended."""
    link: str = ""
    """A link that a node lost for good: the attempt that needs it is ended."""
    host: str = ""
    """A machine whose own memory fails: the attempt that runs on it is ended."""
    straggler: str = ""
    """A node that is slow for long: a spare takes its place at a checkpoint."""
    quarantine: str = ""
    """A node that is blamed again and again, or whose hardware is ill: it is kept outside."""


@dataclass(frozen=True)
class GateSettings:
    """Whether a node is fit for an attempt: looked at before it is taken in, and after a blame."""

    mode: str = ""
    """act: an unfit node waits outside; suggest, observe: it is told of, and taken in; empty: as
    `sidecar.mode` says."""
    wait_s: float = 5.0
    """For the verdict of a node with GPUs, then it is let in unchecked. The driver answers within a
    second, and needs some three to wake eight GPUs that nobody kept awake; a rank that imports
    torch and opens its GPU takes longer than this to its first step."""
    expected_gpus: int = 0
    """How many a node must have; 0: as many as were ever seen there."""
    least_room_bytes: int = 2**30
    """In a checkpoint directory on this node's own disk: below a GiB not even the optimizer state
    of a small model is written to its end."""
    clock_off_s: float = 60.0
    """A clock so far off is a fault of the node: stores sign for five to fifteen minutes, and what
    happened when on which node can't be told any more."""
    test_after_blame: bool = False
    """Whether a node that was blamed is put to the test (`holdfast nodes test`) before it may come
    back: every restart for it then takes those seconds longer."""
    test_timeout_s: float = 60.0
    """A test that is not over then has failed: it takes some ten seconds, half of them torch's."""


@dataclass(frozen=True)
class NodesSettings:
    """Commands that the leader's sidecar runs for a node that is kept outside, and let in again."""

    on_quarantine: str = ""
    """`{node}`, `{reason}`, `{gpu}` and `{remedy}` in it stand for what it is about. It is split
    into words as a shell would, before they are put in, and no shell reads it."""
    on_return: str = ""
    hook_timeout_s: float = 30.0
    """Then it is ended and counts as failed: `scontrol` gives up on its controller after 10 s by
    default (MessageTimeout), `kubectl` waits for no pod where it only cordons."""


LONGEST_PAUSE_S = 86_400.0
"""A day. Programs pause for seconds or minutes, seldom for hours (a quota, a market that opens);
what is asked to sleep for longer is not meant to go on."""


@dataclass(frozen=True)
class StallSettings:
    """How long silence may last before it is called a stall, and before it is acted on."""

    limit_s: float = 0.0
    """When given, this long in every phase, whatever was learnt."""
    factor: float = 3.0
    """Times what 99 % of this attempt's steps took in the phase at most."""
    floor_s: float = 0.9
    """However short its steps, a job may hiccup. What is left of a second is for looking and
    telling: a hang is then told within a second and three steps, on a busy machine too."""
    first_step_s: float = 600.0
    """Allowance before the first step, for evaluating and restoring."""
    save_s: float = 2100.0
    """Allowance for saving: more than a coordinated checkpoint may take."""
    act_after_s: float = 0.0
    """When given, silence without positive evidence is acted on after this long; 0: never, however
    long it lasts. A rollout, an index build or an upload is as silent as what hangs. It applies
    from the attempt's first step on: before it only proof acts."""
    nccl_act_after_s: float = 0.0
    """When given, a hang that is known from NCCL's numbers alone is acted on after this long; 0:
    never, the process group's own watchdog is waited for (10 minutes as torch has it)."""
    flight_recorder: bool = True
    """Whether ranks open a Unix socket on which they can be asked where they stand in their
    collectives; without it a culprit is told by phases, stacks and calls from Python alone."""
    data_stall_timeout_s: float = 0.0
    """When given, a rank whose loader is at work is waited for no longer than this, from the
    attempt's first step on; 0: for as long as it takes, since the data won't come sooner after a
    restart."""

    @property
    def pause_s(self) -> float:
        """A wait that ends by itself within so many seconds is a pause, and proves nothing."""
        return self.act_after_s or LONGEST_PAUSE_S


@dataclass(frozen=True)
class StragglerSettings:
    """Who is slow against its peers, and from when on it is told."""

    enabled: bool = True
    """Whether the steps of all ranks are compared at all."""
    least_slowdown: float = 0.05
    """Of its peers' time, by which a rank has to be slower before it is a finding: half of what the
    what-if study of production jobs (OSDI '25) begins to call slow."""


@dataclass(frozen=True)
class NumbersSettings:
    """When losses and gradients are called wrong, and what is done then."""

    nonfinite_steps: int = 5
    """NaN or infinity so often in a row, on every rank that tells a loss or a gradient norm, and
    the job goes back to a good checkpoint; 0: it is only told. What is once in the weights stays,
    and scripts that pass over a bad batch meet one or two."""
    spike_z: float = 10.0
    """A spike lies so many deviations above the median of the latest values: in a normal
    distribution never, in what losses really do hardly ever several times in a row."""
    spike_steps: int = 5
    """So often in a row, before it is told."""
    spikes_roll_back: bool = False
    """Whether the job goes back then too: a loss may come down again by itself."""
    skip_batches: int = 0
    """So many batches around the first bad step are passed over after going back; 0: none."""


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
    """How long writing and hashing may go on without progress; for ranks that write by themselves,
    whose progress nobody sees, how long it may take."""
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
    most_share: float = 0.005
    """Of the step time that snapshots may take. By Young's rule that is best for one that blocks
    for half a second in a job that fails every three hours."""
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
    """Cap on what this node fetches while training goes on; 0: none. A tenth of 100 Gbit/s."""
    peer_timeout_s: float = 60.0
    """With `sync`, how long a rank waits for its copy at most."""
    failure_domain: str = ""
    """What fails together with this node (a rack, a switch): copies go to another one if any."""


@dataclass(frozen=True)
class EvidenceSettings:
    """What is kept of incidents on each node."""

    keep: int = 20
    """Incidents: a job that fails for weeks leaves the story of its newest days."""
    keep_days: float = 0.0
    """Besides, remove what is older than this; 0: no limit."""
    keep_bytes: int = 2 * 2**30
    """And the oldest while all of them take more than this."""
    most_bytes: int = 64 * 2**20
    """Of one incident: pages, stacks and collectives of an eight-GPU node are some 12 MB."""
    log_tail_bytes: int = 256 * 2**10
    """Of each log; what matters is said in the last few hundred lines."""
    spies: bool = True
    """Whether py-spy, where it is installed, may look at ranks that can't answer."""
    native_s: float = 0.0
    """And for so long at a culprit, for its native frames: it reads torch's symbols first, half a
    second or several, and the restart waits for it. 0: not at all."""


@dataclass(frozen=True)
class GpuSettings:
    """NVIDIA's GPUs, asked through NVML in child processes."""

    enabled: bool = True
    """Whether they are asked at all; where there is no driver nothing is, either way."""
    every_s: float = 1.0
    """Time between two readings of all of them."""
    deadline_s: float = 2.0
    """A driver that has not answered for this long is stuck: that is told, the child that asked is
    killed, and what was read last counts as stale. A healthy one needs 10 ms per GPU; one that sets
    up a GPU may take a second. At least twice `every_s` and a second."""


@dataclass(frozen=True)
class FabricSettings:
    """RDMA ports and network interfaces: which are read, and when one of them is at fault."""

    include: str = "*"
    """RDMA devices that are read: shell patterns, separated by commas."""
    exclude: str = ""
    """Those that are not, and none of whose files is ever opened: on a physical function that the
    fabric manager owns each reading of a counter makes the firmware complain in the kernel log."""
    drop_s: float = 30.0
    """A link that is gone for so long is lost, one that came back before has flapped. NCCL's queue
    pairs give up after seven retries of 4.3 s each (NCCL_IB_TIMEOUT=20), so by then the collective
    failed anyhow; to wait longer (gpud: 4 minutes) is to start again over the same dead link."""
    flaps: int = 3
    """So many within 12 hours make a link that wants looking at (gpud's number)."""
    ports: int = 0
    """Active RDMA ports that this node should have; 0: whichever were active at some time."""
    rate_bytes_per_s: float = 0.0
    """What each of them should do (400 Gb/s: 50e9); 0: what it once did, and its siblings do."""


@dataclass(frozen=True)
class HostSettings:
    """How often the host is looked at."""

    every_s: float = 5.0
    """Load, memory, pressure, throttling, stuck ranks: often enough for a scrape every 15 s."""
    storage_every_s: float = 10.0
    """Room and network file systems: a server that is asked by a thousand nodes has other work."""
    hardware_every_s: float = 30.0
    """Clock, heat, energy, memory errors: sensors behind slow buses take milliseconds each."""


@dataclass(frozen=True)
class CostSettings:
    """What lost time costs, so that it can be told in money too."""

    per_gpu_hour: float = 0.0
    """Of one rank's device for an hour, everything included; 0: it isn't told in money."""
    currency: str = "USD"


@dataclass(frozen=True)
class PathSettings:
    """Where files go."""

    shm_dir: str = "/dev/shm"  # noqa: S108 - made 0700 and opened without following links
    shm_reserve_bytes: int = 64 * 2**20
    """Room that must be left beside the pages: DataLoader workers and gloo need some."""
    state_dir: str = ""
    """Default: $XDG_STATE_HOME/holdfast or ~/.local/state/holdfast; where that can't be written,
    holdfast-UID in the temporary directory."""
    machine_root: str = "/"
    """Under which the /proc, /sys and /dev lie that tell of the machine. A container that watches
    its host has them mounted elsewhere; processes of the job are looked up in our own /proc."""


@dataclass(frozen=True)
class Settings:
    """All of them; the sections of holdfast.toml."""

    redis: RedisSettings = field(default_factory=RedisSettings)
    sidecar: SidecarSettings = field(default_factory=SidecarSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    modes: ModeSettings = field(default_factory=ModeSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    nodes: NodesSettings = field(default_factory=NodesSettings)
    stall: StallSettings = field(default_factory=StallSettings)
    straggler: StragglerSettings = field(default_factory=StragglerSettings)
    numbers: NumbersSettings = field(default_factory=NumbersSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    snapshot: SnapshotSettings = field(default_factory=SnapshotSettings)
    evidence: EvidenceSettings = field(default_factory=EvidenceSettings)
    gpu: GpuSettings = field(default_factory=GpuSettings)
    fabric: FabricSettings = field(default_factory=FabricSettings)
    host: HostSettings = field(default_factory=HostSettings)
    cost: CostSettings = field(default_factory=CostSettings)
    paths: PathSettings = field(default_factory=PathSettings)


# What the person who started Holdfast can mend: one clear line, exit code 2.

EXIT_CODE = 2


class BadInput(Exception):
    """Wrong input; the message is one line that says what is wrong and how to mend it."""
