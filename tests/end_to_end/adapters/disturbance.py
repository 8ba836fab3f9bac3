"""What every training here has in common: rank 1 is killed once, and in the end weights are told.

The kill waits for a sealed checkpoint, so little depends on how fast the machine is.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

OUT = Path(os.environ["OUT"])
CHECKPOINTS = Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
RANK = int(os.environ["RANK"])
ATTEMPT = int(os.environ["HOLDFAST_ATTEMPT"])
PAUSE_S = 0.15 if ATTEMPT == 0 else 0.04
"""A step has to take as long as one that trains, or the job is over before a checkpoint is due; and
before the kill so long that many are sealed, not two or three that may all be at the end of a pass.
"""


def disturb(step: int, steps_per_pass: int) -> None:
    """Called before every step: rank 1 of the first attempt dies a while after a checkpoint."""
    time.sleep(PAUSE_S)
    if ATTEMPT == 0 and RANK == 1 and is_struck(step, steps_per_pass):
        os.kill(os.getpid(), signal.SIGKILL)


def is_struck(step: int, steps_per_pass: int) -> bool:
    """Whether the newest checkpoint is a hard one, in the middle of a later pass, and left behind.

    The first pass, and the beginning of any, can be repeated without knowing much.
    """
    saved = [json.loads(path.read_text())["step"] for path in CHECKPOINTS.glob("*/manifest.json")]
    newest = max(saved, default=0)
    return newest > steps_per_pass and newest % steps_per_pass > 0 and step > newest + 1


def digest(model: Any) -> str:
    """One name for all weights, to the last bit."""
    total = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        total.update(name.encode())
        total.update(value.detach().cpu().numpy().tobytes())
    return total.hexdigest()


def tell(**facts: Any) -> None:
    """What this rank of this attempt has to say, for the test."""
    path = OUT / f"{ATTEMPT}-{RANK}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**before, **facts}))
