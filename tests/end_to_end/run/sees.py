"""A script that tells what it can see of its surroundings, as JSON: names alone, no values that
differ from run to run."""

from __future__ import annotations

import json
import os
import pkgutil
import resource
import signal
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

PATCHABLE = {
    "torch": torch,
    "torch.autograd": torch.autograd,
    "torch.Tensor": torch.Tensor,
    "torch.optim.Optimizer": torch.optim.Optimizer,
    "torch.nn.Module": torch.nn.Module,
    "torch.nn.utils": torch.nn.utils,
    "torch.utils.data.DataLoader": torch.utils.data.DataLoader,
    "torch.utils.data.dataloader._BaseDataLoaderIter": (
        torch.utils.data.dataloader._BaseDataLoaderIter
    ),
    "torch.utils.data.dataloader._MultiProcessingDataLoaderIter": (
        torch.utils.data.dataloader._MultiProcessingDataLoaderIter
    ),
    "torch.amp.GradScaler": torch.amp.GradScaler,
    "torch.distributed": dist,
    "torch.distributed.distributed_c10d": dist.distributed_c10d,
    "torch.distributed.Work": dist.Work,
    "torch.nn.parallel.DistributedDataParallel": DistributedDataParallel,
    "torch.profiler.profile": torch.profiler.profile,
    "sys": sys,
    "os": os,
    "signal": signal,
    "threading": threading,
}


def patched() -> list[str]:
    """What looks as if somebody else had put it there: code of another module than torch's."""
    return sorted(
        f"{where}.{name}"
        for where, holder in PATCHABLE.items()
        for name, found in list(vars(holder).items())
        if name != "classes" and "holdfast" in f"{source(found)}"
    )


def source(found: object) -> str:
    """The file of its code, or its module."""
    code = getattr(found, "__code__", None)
    return str(getattr(code, "co_filename", "")) or str(getattr(found, "__module__", ""))


def handlers() -> dict[str, str]:
    """Signal -> how Python would answer it."""
    found = {}
    for number in signal.valid_signals():
        answer = signal.getsignal(number)
        text = getattr(answer, "__qualname__", None) or str(getattr(answer, "name", answer))
        found[signal.Signals(number).name if number < 32 else str(int(number))] = text
    return found


def caught() -> str:
    """Signals that the process catches in any language, ignores or blocks: the kernel's masks."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return " ".join(line for line in lines if line.startswith(("SigBlk", "SigIgn", "SigCgt")))


def descriptors() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        found.append(target.split(":")[0] if target[0] != "/" else target)
    return sorted(found)


def threads() -> list[str]:
    """Native ones, by name, Python's among them."""
    tasks = Path("/proc/self/task").iterdir()
    return sorted(Path(task, "comm").read_text().strip() for task in tasks)


def limits() -> dict[str, tuple[int, int]]:
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
    seen = {
        "environment": sorted(os.environ),
        "handlers": handlers(),
        "caught by the process": caught(),
        "threads": threads(),
        "threads of Python": sorted(type(thread).__name__ for thread in threading.enumerate()),
        "descriptors": descriptors(),
        "limits": limits(),
        "modules": sorted(sys.modules),
        "path": sys.path,
        "argv": sys.argv,
        "patched": patched(),
        "hooks": sorted(
            name
            for name in ("excepthook", "unraisablehook", "displayhook", "breakpointhook")
            if getattr(sys, name) is not getattr(sys, f"__{name}__")
        ),
        "umask": os.umask(0o22),
        "niceness": os.nice(0),
        "session": os.getsid(0) == os.getpid(),
        "group": os.getpgrp() == os.getpid(),
        "working directory": str(Path.cwd()),
        "standard input": os.readlink("/proc/self/fd/0"),
        "backends": sorted(dist.Backend.backend_list),
        "found modules": sorted(
            module.name for module in pkgutil.iter_modules() if "custom" in module.name
        ),
    }
    out = Path(os.environ["OUT"]) / f"sees-{os.environ['RANK']}.json"
    dist.barrier()
    dist.destroy_process_group()
    out.write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
