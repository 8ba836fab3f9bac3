"""A small training run for the tests; `nursery` starts it on every rank.

Orders are written into its page as a sidecar would; at the end it prints what happened as JSON.
"""

import contextlib
import hashlib
import json
import logging
import os
import random
import signal
import threading
import time

import numpy
import torch
import torch.distributed as dist
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    get_worker_info,
)

from holdfast.contract import page
from holdfast.contract.storage import LocalFolder
from holdfast.job import attach
from holdfast.rank import process
from holdfast.recording.recorder import Recorder
from holdfast.snapshots import copying
from holdfast.snapshots.slot import Writing
from holdfast.snapshots.verdicts import Verdicts
from holdfast.state.torch_checkpoint import FolderWriter

SAMPLES = 48


class Noisy(Dataset):
    """Samples with randomness from all three generators."""

    def __init__(self, log):
        self.log = log

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        noise = 0.01 * (torch.randn(4) + random.random() + float(numpy.random.rand()))
        return torch.full((4,), index / SAMPLES) + noise, index


class Stream(IterableDataset):
    """The same without an order that could be asked for: no length, no index."""

    def __init__(self, rank, world_size):
        self.rank, self.world_size, self.epoch = rank, world_size, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        samples = Noisy([])
        for index in range(
            self.rank + number * self.world_size, SAMPLES, workers * self.world_size
        ):
            inputs, _ = samples[index]
            yield inputs, (index + self.epoch) % SAMPLES


class Replies(Recorder):
    """A recorder that remembers what it answered."""

    __slots__ = ("said",)

    def __init__(self, memory, attempt):
        super().__init__(memory, attempt)
        self.said = []

    def reply(self, reply, kind=page.OrderKind.CHECKPOINT):
        self.said.append([reply.state.name.lower(), reply.step, time.monotonic()])
        super().reply(reply, kind)


def write_order(memory, kind, step, identifier, deadline_s, sequence, **fields):
    deadline_ns = time.monotonic_ns() + int(deadline_s * 1e9)
    attempt = int(os.environ.get("HOLDFAST_ATTEMPT", "0"))
    order = page.Order(kind, attempt, 1, step, deadline_ns, identifier, **fields)
    body, head = page.pack_order(order, sequence)
    start = page.order_offset(kind)
    memory[start + 8 : start + 8 + len(body)] = body
    memory[start : start + 8] = head


def build(config):
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1)
    )
    kind = config.get("model", "ddp")
    if kind == "experts":  # the last layer is each rank's own
        with torch.no_grad():
            model[-1].weight += float(os.environ["RANK"])
        kind = "ddp"
        torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(
            model, ["3.weight", "3.bias"]
        )
    if kind == "ddp" and dist.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    if kind in ("fsdp", "fsdp blocks", "unsharded"):
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    if kind in ("fsdp", "fsdp blocks"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        if kind == "fsdp blocks":
            fully_shard(model[0], mesh=mesh)
        fully_shard(model, mesh=mesh)
    if config.get("optimizer") == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    return model, optimizer


def build_loader(config, rank, world_size):
    if config.get("source") == "stream":
        return DataLoader(Stream(rank, world_size), 4, num_workers=config["workers"])
    if config.get("source") == "stateful stream":
        from torchdata.stateful_dataloader import StatefulDataLoader

        return StatefulDataLoader(Stream(rank, world_size), 4, num_workers=config["workers"])
    data = Noisy([])
    sampler = DistributedSampler(data, world_size, rank) if world_size > 1 else None
    return DataLoader(
        data,
        batch_size=config.get("batch", 4),
        sampler=sampler,
        shuffle=sampler is None,
        num_workers=config.get("workers", 0),
    )


def functions(model, config):
    rank = int(os.environ["RANK"])

    def save(path, step):
        torch.save(model.state_dict(), f"{path}/mine-{rank}.pt")

    def load(path, step):
        if step in config.get("cannot_load", []):
            raise LookupError("planted")
        model.load_state_dict(torch.load(f"{path}/mine-{rank}.pt"))

    return save, load


def digest(model, optimizer):
    total = hashlib.sha256()
    for part in (model.state_dict(), *optimizer.state_dict()["state"].values()):
        for key, value in sorted(part.items(), key=lambda item: str(item[0])):
            if isinstance(value, torch.Tensor):
                value = value.full_tensor() if hasattr(value, "full_tensor") else value
                name = str(key).removeprefix("module.")
                total.update(name.encode() + value.detach().numpy().tobytes())
    return total.hexdigest()


def plant(config):
    """Die in the middle of saving: after so many of this rank's own files, or in torch's saver."""
    if config.get("dies_on") != int(os.environ["RANK"]):
        return
    if config["dies"] == "in torch":
        FolderWriter.write_data = lambda *_: os.kill(os.getpid(), 9)
        return
    count = [0]
    create = LocalFolder.create

    @contextlib.contextmanager
    def dying(folder, name):
        count[0] += 1
        with create(folder, name) as stream:
            if count[0] == config["dies"]:
                stream.write(b"half")
                stream.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            yield stream

    LocalFolder.create = dying  # type: ignore[method-assign,assignment]


def plant_in_snapshots(moment, dying_step):
    """Die with half of a snapshot copied, or beside the moment at which the others are told."""
    copy_all, say_sealed, describe = copying.copy_all, Verdicts.say_sealed, Writing.describe
    steps = [0]

    def die_at(step):
        if step == dying_step:
            os.kill(os.getpid(), signal.SIGKILL)

    def noting(writing, author, layout, step):
        steps[0] = step
        describe(writing, author, layout, step)

    def dying_copy(targets, tensors, *rest):
        half = len(targets) // 2
        copy_all(targets[:half], tensors[:half], *rest)
        die_at(steps[0])
        copy_all(targets[half:], tensors[half:], *rest)

    def dying_word(verdicts, known, step):
        if moment == "before the others know":
            die_at(step)
        known = say_sealed(verdicts, known, step)
        if moment == "after the others know":
            die_at(step)
        return known

    Writing.describe, Verdicts.say_sealed = noting, dying_word  # type: ignore[method-assign]
    if moment == "in the copy":
        copying.copy_all = dying_copy


def await_slots():
    """Slots are made ready behind the training; these runs are too short for that."""
    for thread in threading.enumerate():
        if thread.name == "holdfast-prepare":
            thread.join()


def evaluate(model, inputs):
    """FSDP2 leaves its root gathered behind a forward pass that no backward pass follows."""
    model.eval()
    with torch.no_grad():
        model(inputs)
    model.train()


def train(config):
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(format="%(message)s")
    torch.set_num_threads(1)
    if world_size > 1:
        dist.init_process_group("gloo")
    memory = bytearray(page.PAGE_SIZE)
    recorder = Replies(memory, int(os.environ.get("HOLDFAST_ATTEMPT", "0")))
    process.hold(recorder)
    random.seed(rank)
    numpy.random.seed(rank)
    if "dies_at" in config:
        plant_in_snapshots(config["moment"], config["dies_at"])
    plant(config)
    if "slots" in config:
        kind = page.OrderKind.SNAPSHOT
        write_order(memory, kind, 0, "often", 600, 1, every=1, slots=config["slots"])

    model, optimizer = build(config)
    torch.manual_seed(100 + rank)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9], gamma=0.5)
    if config.get("functions"):
        save, load = functions(model, config)
        job = attach(save=save, load=load)
    else:
        job = attach(model=model, optimizer=optimizer, scheduler=scheduler)
    source = build_loader(config, rank, world_size)
    if config.get("source") == "range":
        source = range(100)
    start = job.resume()
    seen, steps = [], []
    for batch in job.steps(source, until=config["until"]):
        if config.get("source") == "range":
            inputs, indices = torch.randn(4, 4), [batch]
        else:
            inputs, indices = batch
        await_slots()
        if job.step == config.get("killed_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        for sequence, order in enumerate(config.get("orders", []), 1):
            if order["seen_at"].get(str(rank), order["seen_at"].get("all")) == job.step:
                write_order(
                    memory,
                    page.OrderKind[order.get("kind", "CHECKPOINT")],
                    order["step"],
                    order["identifier"],
                    order.get("deadline_s", 20),
                    sequence,
                )
        seen.append([int(index) for index in indices])
        steps.append(job.step)
        optimizer.zero_grad()
        loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        job.report(loss=loss)
        if config.get("evaluates"):
            evaluate(model, inputs)
    print(
        json.dumps(
            {
                "start": start,
                "steps": steps,
                "seen": seen,
                "replies": recorder.said,
                "weights": digest(model, optimizer),
                "lr": scheduler.get_last_lr(),
                "random": [float(torch.rand(1)), random.random(), float(numpy.random.rand())],
                "word_resumed": recorder.word(page.Word.RESUMED_STEP),
                "word_failures": recorder.word(page.Word.RESUME_FAILURES),
                "word_errors": recorder.word(page.Word.HOOK_ERRORS),
                "taken": recorder.word(page.Word.SNAPSHOTS_TAKEN),
                "skipped": recorder.word(page.Word.SNAPSHOTS_SKIPPED),
                "flags": recorder.word(page.Word.FLAGS),
            }
        )
    )
