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
PAUSE_S = 0.04
"""A step has to take as long as one that trains, or the job is over before a checkpoint is due."""


def disturb(step: int) -> None:
    """Called before every step: rank 1 of the first attempt dies a while after a checkpoint."""
    time.sleep(PAUSE_S)
    if ATTEMPT == 0 and RANK == 1 and is_struck(step):
        os.kill(os.getpid(), signal.SIGKILL)


def is_struck(step: int) -> bool:
    """In the middle of a pass, and not at the step that was saved."""
    saved = [json.loads(path.read_text())["step"] for path in CHECKPOINTS.glob("*/manifest.json")]
    return bool(saved) and step > max(saved) + 1


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
