"""How the page looks: colours that a colour-blind eye tells apart, by day and by night."""

from __future__ import annotations

COLOURS = {
    "productive": "#009e73",
    "data_wait": "#e69f00",
    "saving": "#56b4e9",
    "evaluating": "#0072b2",
    "compiling": "#cc79a7",
    "straggler": "#d55e00",
    "warmup": "#8da0cb",
    "init": "#a9a9a9",
    "setup": "#8c8c8c",
    "restore": "#5b7f9e",
    "hang_undetected": "#7f0000",
    "draining": "#b2182b",
    "restart": "#ef6548",
    "paused": "#8c6bb1",
    "queued": "#d0d0d0",
    "unobserved": "#f0e442",
    "other": "#404040",
}
"""Category -> colour: Okabe and Ito's for what training itself does, greys for starts, reds for
faults."""

PHASE_COLOURS = {
    "detect": COLOURS["hang_undetected"],
    "drain": COLOURS["draining"],
    "rendezvous": COLOURS["restart"],
    "restore": COLOURS["restore"],
    "first_step": COLOURS["warmup"],
}

AGAIN = "#d55e00"
"""Work that is done again."""

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --ground: #fff;
  --card: #f6f8fa; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d;
  --ground: #0d1117; --card: #161b22; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--ground);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.1rem; margin: 2.75rem 0 .5rem; }
p { margin: .35rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .75rem;
  margin: 1.5rem 0 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem;
  padding: .7rem .9rem; }
.card b { display: block; font-size: 1.55rem; font-weight: 650; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .soft { fill: var(--soft);
  font-size: 12px; }
svg .axis { stroke: var(--line); stroke-width: 1; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; margin-top: .75rem;
  font-variant-numeric: tabular-nums; }
th { text-align: left; color: var(--soft); font-weight: 500; }
th, td { padding: .28rem .6rem .28rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
.n { text-align: right; padding-right: 1rem; } .key { display: inline-block; width: .75rem;
  height: .75rem; border-radius: .15rem; margin-right: .45rem; }
@media print { body { max-width: none; } .card { break-inside: avoid; } }
"""
