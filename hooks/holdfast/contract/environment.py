"""Every environment variable that crosses a process border, by name.

The launcher sets them for its ranks, the hooks read them. Nothing else is passed this way.
"""

from __future__ import annotations

import os

JOB = "HOLDFAST_JOB"
"""Name of the job (metric label `run`)."""

NODE = "HOLDFAST_NODE"
"""Name of this node inside the job; the host name unless several nodes share a host."""

ATTEMPT = "HOLDFAST_ATTEMPT"
"""Number of this attempt, from 0."""

EPOCH = "HOLDFAST_EPOCH"
"""Leader epoch under which this attempt was opened; with ATTEMPT it is the fence."""

PAGE_DIR = "HOLDFAST_PAGE_DIR"
"""Directory (0700, shared memory) in which the ranks of this job and node put their pages."""

EVIDENCE_DIR = "HOLDFAST_EVIDENCE_DIR"
"""Directory in which a rank keeps its stack dumps of this attempt."""

CHECKPOINT_DIR = "HOLDFAST_CHECKPOINT_DIR"
"""Directory under which this job's checkpoints lie; unset when none was configured."""

RESUME = "HOLDFAST_RESUME"
"""What to try, in this order: a JSON list of the sidecar's `Candidate` records ("identifier",
"path", "step", "tier", "fetches", "since", "below"); an empty list: start from nothing."""

SKIPS = "HOLDFAST_SKIP_BATCHES"
"""Batches to pass over: a JSON list of the sidecar's `BatchSkip` records ("step", "count"); unset:
none."""

CHECKPOINT_KEY_FILE = "HOLDFAST_CHECKPOINT_KEY_FILE"
"""File with the key that manifests are sealed with; unset: they carry a plain digest only."""

CHECKPOINT_WRITE_TIMEOUT = "HOLDFAST_CHECKPOINT_WRITE_TIMEOUT_S"
"""How long ranks that began to write a checkpoint wait for the slowest of them, seconds."""

SNAPSHOTS = "HOLDFAST_SNAPSHOTS"
"""`0`: this job takes no snapshots, so no rank need say how much room they would take."""

PEER_COPIES = "HOLDFAST_PEER_COPIES"
"""`sync`: a snapshot exists only once another node has it too, and ranks wait for that."""

PEER_TIMEOUT = "HOLDFAST_PEER_TIMEOUT_S"
"""How long they wait for one copy, seconds."""

HOLDS_TERMINATION = "HOLDFAST_HOLDS_TERMINATION"
"""`1`: whoever started this rank can end it by END_SIGNAL; it may outlive SIGTERM to be saved."""

CLAIMED = "HOLDFAST_CLAIMED"
"""`pid:start_ticks` of the process that claimed the page; children inherit it and stay inert."""

ATTACH = "HOLDFAST_ATTACH"
"""`1`: somebody else's launcher starts the ranks; they find their place by themselves."""

ROLE = "HOLDFAST_ROLE"
"""What kind of work this rank does, in the user's own word ("actor", "critic"): ranks are compared
only with others of the same role. Set by the user where torch's meshes and pipelines don't say: by
the shell, or by the script before `init_process_group`, where it differs from rank to rank."""

HOOKS = "HOLDFAST_HOOKS"
"""`0` switches the hooks off in every rank; `-optimizer,+transfers` leaves one out and adds another
(see `switches`)."""

FLIGHT_RECORDER = "HOLDFAST_FLIGHT_RECORDER"
"""`0`: ranks don't open the socket on which torch's worker server tells of their collectives."""

FLOPS = "HOLDFAST_FLOPS"
"""Floating-point operations of one step of each rank; `count`: torch's counter counts one step;
`0`: none are told. Unset: 6 for each parameter and token."""

PEAK_FLOPS = "HOLDFAST_PEAK_FLOPS"
"""Floating-point operations that each rank's device does in a second at best; unset: by its name,
where that is known."""

LAUNCH_ID = "HOLDFAST_LAUNCH_ID"
"""What whoever starts the launchers calls this launch, the same on all its nodes: Kubernetes' uid
of the Job, say. Set by the user; under Slurm its job is taken unless it is set."""

REDIS_URL = "HOLDFAST_REDIS"
REDIS_USER = "HOLDFAST_REDIS_USER"
REDIS_PASSWORD = "HOLDFAST_REDIS_PASSWORD"  # noqa: S105 - a name, not a secret
REDIS_PASSWORD_FILE = "HOLDFAST_REDIS_PASSWORD_FILE"  # noqa: S105 - a name, not a secret

GRAFANA_TOKEN = "HOLDFAST_GRAFANA_TOKEN"  # noqa: S105 - a name, not a secret
"""Of a service account of Grafana, for `holdfast dashboards`."""

FAKE_NVML = "HOLDFAST_FAKE_NVML"
"""State file of the GPUs that tests and demonstrations pretend to have."""

LOG_LEVEL = "HOLDFAST_LOG_LEVEL"
"""How much the launcher logs: INFO unless set."""

SETTINGS_PREFIX = "HOLDFAST_SET_"
"""`HOLDFAST_SET_<SETTING>` overrides a setting of holdfast.toml."""

NEVER_FOR_RANKS = (REDIS_URL, REDIS_USER, REDIS_PASSWORD, REDIS_PASSWORD_FILE, GRAFANA_TOKEN)
"""The training process never talks to Redis nor to Grafana, so the launcher removes these."""


def python_path() -> str:
    """The directory to put first on a rank's PYTHONPATH, so that its interpreter attaches."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100,PTH120 - pathlib costs milliseconds at every interpreter start
    return os.path.join(package, "bootstrap")  # noqa: PTH118
