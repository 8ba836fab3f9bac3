"""Which pane is drawn by what, and the line that names them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast_sidecar.cli.tui.heading import heading, help_page
from holdfast_sidecar.cli.tui.ranks import passes, ranks
from holdfast_sidecar.cli.tui.state import Latest, Pane, ViewState
from holdfast_sidecar.cli.tui.text import (
    UNKNOWN,
    Body,
    Canvas,
    Line,
    Signs,
    Span,
    TextStyle,
    columns,
    cut,
    fitted,
    joined,
    listed,
    number,
    padded,
    plain,
    read_in_full,
    said,
    share,
    short_span,
)
from holdfast_sidecar.export.live.view import (
    FindingView,
    IncidentView,
    LiveView,
    NodeView,
    SlowView,
)
from holdfast_sidecar.performance.goodput.summary import IN_VIEWS, name_category
from holdfast_sidecar.records.formatting import span

# The pane of the account: where the wall-clock time of the run went, a bar each. Pure.

CATEGORY, TIME, REST = max(map(len, IN_VIEWS.values())), 12, 10
"""Columns: of the longest name, of a time, and of what lies between and behind them."""

BAR_MOST = 60
"""Columns of the longest bar: a longer one is not read any better."""

GOOD_CATEGORY = "productive"


def account(canvas: Canvas) -> Body:
    """The longest first; then what was lost of it."""
    view = canvas.view
    spent = [(name, seconds) for name, seconds in view.account.items() if seconds > 0]
    spent.sort(key=lambda one: (-one[1], one[0]))
    total_s = sum(seconds for _, seconds in spent)
    lines = [_account_row(name, seconds, total_s, canvas) for name, seconds in spent]
    if lines and view.lost_s:
        words = f"{span(view.lost_s)} of training had to be done again, and are not goodput"
        lines += [(), (Span(words),)]
    empty = "the account of this run is not known (yet): its leader keeps it"
    return listed(_title(view, total_s), lines, empty)


def _title(view: LiveView, total_s: float) -> Line:
    parts: list[Line] = [(Span(f"{span(total_s)} in all", TextStyle.STRONG),)] if total_s else []
    if view.goodput is not None:
        parts.append((Span(f"goodput {share(view.goodput, 1)}"),))
    if view.ettr is not None:
        parts.append((Span(f"ETTR {share(view.ettr, 1)}"),))
    return joined(parts) or (Span("account", TextStyle.STRONG),)


def _account_row(name: str, seconds: float, total_s: float, canvas: Canvas) -> Line:
    signs = canvas.signs
    part = seconds / total_s
    wide = min(CATEGORY, canvas.width - TIME - REST)
    room = min(canvas.width - wide - TIME - REST, BAR_MOST)
    label = cut(said(name_category(name), signs).text, wide, signs.more)
    look = TextStyle.GOOD if name == GOOD_CATEGORY else TextStyle.DOUBTFUL
    return (
        Span(f"{padded(label, wide)} {span(seconds):>{TIME}} {share(part, 1):>6}  "),
        Span(signs.bar * round(part * max(room, 0)), look),
    )


# The pane of findings: what was found that has not passed; what is acted on stands first. Pure.

KIND = 18
"""Columns of the longest kind."""

FINDINGS_TITLE = (Span(f"  {'since':>5}  {'what':<{KIND}}  where and why", TextStyle.HEADING),)


def findings(canvas: Canvas) -> Body:
    """The list, or all of one."""
    keyed = keys(canvas.view.findings)
    read = [one for one, key in keyed if key == canvas.choice.read]
    if read:
        return read_in_full(read[0].kind, _told_finding(read[0], canvas), canvas)
    shown = [(one, key) for one, key in keyed if _is_finding_looked_for(one, canvas.choice.filter)]

    def draw(number: int) -> Line:
        return _finding_row(shown[number][0], canvas)

    empty = "no finding has these words" if keyed else "nothing is found to be wrong"
    return Body(FINDINGS_TITLE, [key for _, key in shown], draw, empty)


def keys(found: Sequence[FindingView]) -> list[tuple[FindingView, str]]:
    """Each finding with what it is known again by: one node may have several of a kind."""
    seen: dict[str, int] = {}
    keyed = []
    for one in found:
        name = f"{one.kind} {one.node} {one.rank}"
        seen[name] = seen.get(name, 0) + 1
        keyed.append((one, f"{name} {seen[name]}"))
    return keyed


def words(one: FindingView) -> str:
    """Who it is about, and why."""
    if one.words:
        return one.words
    return one.node if one.rank is None else f"rank {one.rank} on {one.node}"


def _told_finding(one: FindingView, canvas: Canvas) -> Iterator[str]:
    yield words(one)
    yield f"found {span(max(canvas.view.now_unix_s - one.since_unix_s, 0.0))} ago"
    yield "sure enough to act on" if one.acts else "told, and nothing is ended for it"


def _finding_row(one: FindingView, canvas: Canvas) -> Line:
    signs = canvas.signs
    look = TextStyle.BAD if one.acts else TextStyle.DOUBTFUL
    kind = cut(said(one.kind, signs).text, KIND, signs.more)
    since = short_span(canvas.view.now_unix_s - one.since_unix_s)
    return (
        Span("! ", look) if one.acts else Span("  "),
        Span(f"{since:>5}  "),
        Span(f"{padded(kind, KIND)}  ", look),
        said(words(one), signs),
    )


def _is_finding_looked_for(one: FindingView, looked_for: str) -> bool:
    ranks = () if one.rank is None else (one.rank,)
    return passes(looked_for, (one.kind, one.node, one.words), ranks)


# The pane of incidents: one line each, the newest first, and the story of the one that is read.
# Pure.

RANKS_NAMED = 4

DECIDED = 8
"""Columns of what was decided."""

INCIDENTS_TITLE = (
    Span(f"  {'ago':>5} {'lost':>5}  {'decided':<{DECIDED}}  incident", TextStyle.HEADING),
)


def incidents(canvas: Canvas) -> Body:
    """The list, or a story."""
    read = [one for one in canvas.view.incidents if one.identifier == canvas.choice.read]
    if read:
        return read_in_full(incident_heading(read[0]), story(read[0]), canvas)
    shown = [
        one for one in canvas.view.incidents if _is_incident_looked_for(one, canvas.choice.filter)
    ]

    def draw(number: int) -> Line:
        return _incident_row(shown[number], canvas)

    empty = "no incident has these words" if canvas.view.incidents else "no incident so far"
    return Body(INCIDENTS_TITLE, [one.identifier for one in shown], draw, empty)


def incident_heading(one: IncidentView) -> str:
    """`incident 20261123-…: hang, rank 5 on b`."""
    return f"incident {one.identifier}: {_what(one)}"


def story(one: IncidentView) -> Sequence[str]:
    """What is told of it, in lines."""
    lines = [*([one.title] if one.title else []), *one.story]
    return lines or ["nothing more is told of it here; holdfast explain may know more"]


def where(one: IncidentView) -> str:
    """`rank 5 on b`, `node b`, or nothing where nobody is blamed."""
    named = ", ".join(str(rank) for rank in one.ranks[:RANKS_NAMED])
    more = ", ..." * (len(one.ranks) > RANKS_NAMED)
    who = f"rank{'s' * (len(one.ranks) > 1)} {named}{more}" if one.ranks else ""
    if not one.node:
        return who
    return f"{who} on {one.node}" if who else f"node {one.node}"


def _what(one: IncidentView) -> str:
    return ", ".join(filter(None, (one.cause, where(one))))


def _incident_row(one: IncidentView, canvas: Canvas) -> Line:
    signs = canvas.signs
    ago_s = canvas.view.now_unix_s - (one.detected_unix_s or one.since_unix_s)
    is_open = not one.is_over and not canvas.view.is_over
    decided = cut(said(one.decided, signs).text, DECIDED, signs.more)
    words = f"{one.cause}: {one.title}" if one.title else _what(one)
    return (
        Span("! ", TextStyle.BAD) if is_open else Span("  "),
        Span(f"{short_span(ago_s):>5} {short_span(one.lost_s):>5}  {padded(decided, DECIDED)}  "),
        said(words, signs),
    )


def _is_incident_looked_for(one: IncidentView, words: str) -> bool:
    texts = (one.identifier, one.cause, one.node, one.decided, one.title)
    return passes(words, texts, tuple(one.ranks))


# The pane of nodes: who has a place in the job, or would take one, and who leads. Pure.

NAME, STATE = 24, 10

NODES_TITLE = (
    Span(
        f"  {'node':<{NAME}} {'state':<{STATE}} {'heard of':>8} {'findings':>8}  ranks",
        TextStyle.HEADING,
    ),
)

WELL = ("member", "spare", "attached")
"""States that nobody has to look at."""


def nodes(canvas: Canvas) -> Body:
    """The list; who is in trouble stands first."""
    shown = [one for one in canvas.view.nodes if _is_node_looked_for(one, canvas.choice.filter)]
    shown.sort(key=lambda one: (one.state in WELL, one.node))

    def draw(number: int) -> Line:
        return _node_row(shown[number], canvas)

    empty = "no node has these words" if canvas.view.nodes else "no node is known"
    return Body(NODES_TITLE, [one.node for one in shown], draw, empty)


def _node_row(one: NodeView, canvas: Canvas) -> Line:
    signs, now_unix_s = canvas.signs, canvas.view.now_unix_s
    name = cut(said(one.node, signs).text, NAME, signs.more)
    state = cut(said(one.state, signs).text, STATE, signs.more)
    heard = (
        UNKNOWN if one.heartbeat_unix_s is None else short_span(now_unix_s - one.heartbeat_unix_s)
    )
    look = TextStyle.PLAIN if one.state in WELL else TextStyle.BAD
    return (
        Span("  ") if one.state in WELL else Span("! ", look),
        Span(f"{padded(name, NAME)} "),
        Span(f"{padded(state, STATE)} ", look),
        Span(f"{heard:>8} "),
        Span(f"{one.findings or UNKNOWN:>8}  "),
        Span(", ".join(map(str, sorted(one.ranks))) or UNKNOWN),
        Span(_leads(canvas) if one.is_leader else "", TextStyle.STRONG),
    )


def _leads(canvas: Canvas) -> str:
    """While Redis is away nobody leads for long."""
    return "  leads" if canvas.view.store_up else "  led"


def _is_node_looked_for(one: NodeView, words: str) -> bool:
    return passes(words, (one.node, one.state), tuple(one.ranks))


# The pane of slow ranks: who, how much, why, and what would be gained without it. Pure.

WHO, CAUSE = 20, 16

SLOW_TITLE = (
    Span(f"  slower   gain  {'who':<{WHO}}  {'why':<{CAUSE}} sure  what helps", TextStyle.HEADING),
)

MUCH_PERCENT = 50.0
"""As `rank_columns.MUCH`."""


def slow(canvas: Canvas) -> Body:
    """The list, or all of one; whoever costs most stands first."""
    read = [one for one in canvas.view.slow if _key(one) == canvas.choice.read]
    if read:
        return read_in_full(f"{who(read[0])} is slow", _told_slow(read[0]), canvas)
    shown = [one for one in canvas.view.slow if _is_slow_looked_for(one, canvas.choice.filter)]
    shown.sort(key=lambda one: (-one.gain, -one.percent, one.rank))

    def draw(row: int) -> Line:
        return _slow_row(shown[row], canvas)

    empty = "nobody slow has these words" if canvas.view.slow else "nobody is slow"
    return Body(SLOW_TITLE, [_key(one) for one in shown], draw, empty)


def who(one: SlowView) -> str:
    """`rank 5 on b`; without a rank it is a node, or a link of it."""
    if one.rank < 0:
        return f"node {one.node}"
    return f"rank {one.rank} on {one.node}" if one.node else f"rank {one.rank}"


def _key(one: SlowView) -> str:
    return f"{one.rank} {one.node} {one.cause}"


def _told_slow(one: SlowView) -> Iterator[str]:
    yield f"{one.percent:.0f}% slower than its peers since step {number(one.since_step)}"
    yield f"cause: {one.why or one.cause or 'not known'} ({share(one.confidence)} sure)"
    yield f"without it the job would be {share(one.gain)} faster"
    if one.advice:
        yield one.advice


def _slow_row(one: SlowView, canvas: Canvas) -> Line:
    signs = canvas.signs
    look = TextStyle.BAD if one.percent >= MUCH_PERCENT else TextStyle.DOUBTFUL
    name = cut(said(who(one), signs).text, WHO, signs.more)
    cause = cut(said(one.cause, signs).text, CAUSE, signs.more)
    return (
        Span(f"{f'+{one.percent:.0f}%':>8}", look),
        Span(f"  {share(one.gain):>5}  {padded(name, WHO)}  "),
        Span(f"{padded(cause, CAUSE)} {share(one.confidence):>4}  "),
        said(one.advice, signs),
    )


def _is_slow_looked_for(one: SlowView, words: str) -> bool:
    return passes(words, (one.node, one.cause, one.advice), (one.rank,))


DRAWN_BY: Mapping[Pane, Callable[[Canvas], Body]] = {
    Pane.RANKS: ranks,
    Pane.INCIDENTS: incidents,
    Pane.FINDINGS: findings,
    Pane.SLOW: slow,
    Pane.ACCOUNT: account,
    Pane.NODES: nodes,
    Pane.HELP: help_page,
}

KEYS: Mapping[Pane, str] = {pane: pane.value[0] for pane in Pane} | {Pane.HELP: "?"}
"""The key of each pane is the letter that its name begins with."""

OTHERS = ("q quit", "/ filter", "p pause")
"""Keys that are told where there is room; the last goes first. The help has all."""


def body(canvas: Canvas) -> Body:
    """The pane that was chosen."""
    return DRAWN_BY[canvas.choice.pane](canvas)


def keys_line(view: LiveView | None, choice: ViewState, width: int, signs: Signs) -> Line:
    """The panes, their keys as capital letters, and how much is in them; the shown one in brackets,
    so that it is seen without colours."""
    named = [joined([_named(pane, view, choice.pane) for pane in Pane], "")]
    others: list[Line] = [(Span(words, TextStyle.DIM),) for words in OTHERS]
    while others and columns(joined([*named, *others], " ")) > width:
        others.pop()
    return fitted(joined([*named, *others], " "), width, signs)


def _named(pane: Pane, view: LiveView | None, shown: Pane) -> Line:
    count = _count(pane, view)
    name = "? Help" if pane is Pane.HELP else pane.value.capitalize()
    rest = name[1:] + (f" {count}" if count else "")
    before, after = ("[", "]") if pane is shown else (" ", " ")
    look = TextStyle.STRONG if pane is shown else TextStyle.PLAIN
    return Span(before, look), Span(name[0], TextStyle.STRONG), Span(f"{rest}{after}", look)


def _count(pane: Pane, view: LiveView | None) -> int:
    if view is None:
        return 0
    counts = {
        Pane.INCIDENTS: len(view.incidents),
        Pane.FINDINGS: len(view.findings),
        Pane.SLOW: len(view.slow),
    }
    return counts.get(pane, 0)


# A picture without a screen: the heading, every rank or node, and what is wrong, line by line.
# Pure.

RANKS_MOST = 64
"""More than these are told by node."""

BELOW = (Pane.FINDINGS, Pane.SLOW, Pane.INCIDENTS)

SHOWN_BELOW = 5
"""Of each of those; `holdfast status` and `holdfast incidents` have all."""


def frame(view: LiveView, choice: ViewState, width: int, signs: Signs) -> list[str]:
    """Plain lines, none wider than that. Of `choice` the words to look for and the order count."""
    told = heading(Latest(view), choice, 0.0, width, signs)
    lines = [line for line in map(plain, told) if line]
    for pane in (Pane.RANKS, *BELOW):
        lines += _section(Canvas(view, choice.at(pane), width, RANKS_MOST, signs))
    return [line.rstrip() for line in lines]


def _section(canvas: Canvas) -> Iterator[str]:
    pane, drawn = canvas.choice.pane, body(canvas)
    if not drawn.keys:
        return
    count = len(drawn.keys)
    yield ""
    if pane is not Pane.RANKS:
        yield f"{pane.value} ({count})"
    shown = count if pane is Pane.RANKS else min(count, SHOWN_BELOW)
    for line in (drawn.title, *drawn.rows(0, shown)):
        yield plain(fitted(line, canvas.width, canvas.signs))
    if shown < count:
        yield f"  and {count - shown} more"
