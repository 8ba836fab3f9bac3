"""One run: is my job OK, and if not, since when and what for?"""

from __future__ import annotations

from builders import run_lights, run_loop, run_time
from builders.dashboard import Title, dashboard
from builders.grid import Row
from builders.names import RUN, Json
from builders.variables import CLUSTER, JOB, RUNS


def run() -> Json:
    """Lights first, then time, then the loop itself."""
    title = Title(
        RUN, "Holdfast / Run", "Is my job OK? If not: since when, and what takes its time?"
    )
    rows = [
        Row("Is my job OK?", run_lights.panels()),
        Row("Where does the time go?", run_time.panels()),
        Row("The training loop", run_loop.loop()),
        Row("Who slows it", run_loop.slowness()),
    ]
    return dashboard(title, [JOB, CLUSTER, RUNS], rows)
