"""What contestants, jobs and faults are called in samples and figures."""

from __future__ import annotations

HOLDFAST = "Holdfast"
TORCHRUN = "torchrun"
TORCHRUN_OWN_STORE = "torchrun, own store"
NVRX = "NVRx"
BARE = "no launcher"

CONTESTANTS = (TORCHRUN, TORCHRUN_OWN_STORE, NVRX, HOLDFAST)

HOOKS_PAIRED = "hooks-paired"

ADAMW = "adamw"
SGD = "sgd"

FAULTS = {
    "sigkill": "SIGKILL of a rank",
    "sigstop": "SIGSTOP of a rank",
    "node-replaced": "lost node, replaced",
    "node-shrunk": "lost node, shrinking",
}
