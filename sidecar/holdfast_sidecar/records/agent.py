"""What a launcher says of its node, and how its ranks ended."""

from __future__ import annotations

from dataclasses import dataclass, field

OF_USER = "user "
"""Begins the word for a launch that nothing names but whose it is: all of a user's are alike."""

OUTPUT_UNREAD = "nobody reads what this launch prints any more"
"""The message of a rank that wrote into a pipe whose reader has gone, as in `... | head`."""


@dataclass(frozen=True)
class Exit:
    """How one rank's process ended, as its parent saw it. `at_unix_s` is the node's wall clock."""

    rank: int
    local_rank: int
    pid: int
    exit_code: int
    """Negative: ended by that signal."""
    at_unix_s: float
    order: int
    """0 for the first rank of this node and attempt that ended."""
    message: str = ""
    """Type and text of the exception, when it left one."""
    step: int = 0
    """Steps it had completed, from its page."""
    forced: bool = False
    """The launcher itself ended it while tearing down."""
    onset_step: int = -1
    """Since which step its losses had not been finite; -1: the newest one was."""
    is_gloo_alone: bool = False
    """Its process groups used no other backend: nothing that watches a device aborted it."""
    stepped_unix_s: float = 0.0
    """When its last step ended, or it began, from its page; 0: it left none."""


@dataclass(frozen=True)
class AgentReport:
    """A launcher (or torchrun's agent through our rendezvous handler) about its node.

    state: `joining` (wants into an attempt; a spare stays so), `running` (its ranks run attempt
    `attempt`), `failed` (a rank of `attempt` ended badly; the others are being ended), `succeeded`
    (all ranks of `attempt` ended well), `left` (it is going away).

    While joining, `attempt` is the newest attempt whose end this agent knows of: the one it last
    ran, or, at its start, the one a plan already `done` or `stopped` speaks of; else -1. A plan
    that ends a later attempt than that is meant for this agent too (a waiting spare leaves then).
    """

    node: str
    incarnation: str
    state: str
    attempt: int
    beat: int
    slots: int
    address: str
    min_nodes: int
    max_nodes: int
    spares: int = 0
    max_restarts: int | None = None
    last_call_s: float = 30.0
    version: str = ""
    torch_version: str = ""
    machine: str = ""
    role: str = "default"
    """torchrun's --role: torch numbers ranks inside their role too."""
    pid: int = 0
    exits: list[Exit] = field(default_factory=list)
    steps: dict[str, int] = field(default_factory=dict)
    """While joining: rank -> steps it had completed when `attempt` ended here, from its page."""
    plan: str = ""
    """The plan it obeys, verbatim: an emptied server gets it back from here."""
    preempted_by: str = ""
    """Signal that asked for this node; empty: none did. The launcher leaves `grace_s` after it."""
    grace_s: float = 0.0
    left_s: float = 0.0
    """Until a time limit ends this node, as of this beat; 0: none is known."""
    ended_sidecar: int = 0
    """Pid of the newest sidecar that this launcher, its parent, saw end; 0: none did."""
    warm_modules: list[str] = field(default_factory=list)
    """What its ranks had imported at their first step, for a spare to import ahead; empty: not
    known yet, or to be started cold."""
    leaves: bool = False
    """It was told to end, and ends its ranks: how they end now says nothing of the job."""
    left_for: str = ""
    """Signal for which it leaves at once; empty: none came."""
    launch: str = ""
    """Which launch it belongs to: its scheduler's word for it, else whose it is. Launchers of two
    never share an attempt."""
    launch_number: int = 0
    """How often its scheduler had started that launch again: what it started before is dead."""
    launch_command: str = ""
    """A digest of script and arguments, but for what is a node's own in them."""
    has_launch_id: bool = False
    """A scheduler, or whoever started the nodes, gave them an id in common: their commands may
    differ. Without one launchers that differ in their command are of two launches."""
    command: dict[str, str] = field(default_factory=dict)
    """What was to be run, in parts: what it is -> a digest of it, or the thing itself."""
    unreachable: str = ""
    """Where the store of attempt `unreachable_in` is published and cannot be reached from here."""
    unreachable_in: int = -1
    awaits_gate: bool = False
    """There is something here that only its sidecar can judge, and one is there or being started:
    before it is taken in, its verdict is waited for a little."""

    @property
    def launch_key(self) -> tuple[str, str]:
        """By which launches are told apart."""
        return self.launch, "" if self.has_launch_id else self.launch_command
