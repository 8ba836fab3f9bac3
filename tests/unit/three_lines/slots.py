"""Slot files as the sidecar makes them, and a rank that takes snapshots into them."""

from __future__ import annotations

import os
import struct
import threading
from pathlib import Path

import torch

from holdfast.contract import page, snapshot_file
from holdfast.contract.page import Order, OrderKind
from holdfast.contract.snapshot_file import HEADER_SIZE, MAGIC, HeaderWord, slot_name
from holdfast.recording.placement import Placement
from holdfast.recording.recorder import Recorder
from holdfast.snapshots.schedule import Rounds
from holdfast.snapshots.slot import Author
from holdfast.snapshots.slot_pool import SlotPool
from holdfast.snapshots.snapshotter import Taking
from holdfast.state.data_position import Position
from holdfast.state.registered import register
from holdfast.state.saving import Savable

JOB = "tested"
SIZE = 1 << 19


def make_slot(folder: Path, rank: int, number: int, size: int = SIZE) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / slot_name(rank, number)
    draft = path.with_name(f".{path.name}")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.posix_fallocate(descriptor, 0, size)
    words = {HeaderWord.MAGIC: MAGIC, HeaderWord.RANK: rank, HeaderWord.FILE_SIZE: size}
    for word, value in words.items():
        os.pwrite(descriptor, struct.pack("<Q", value), int(word) * 8)
    os.close(descriptor)
    draft.rename(path)
    return path


def headers(folder, rank=0):
    paths = sorted(folder.glob(f"rank-{rank}-slot-*"))
    return [snapshot_file.parse_header(path.read_bytes()[:HEADER_SIZE]) for path in paths]


def sealed_steps(folder, rank=0):
    return [header.sealed_step for header in headers(folder, rank)]


def build(width=4):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.BatchNorm1d(width))
    return model, torch.optim.AdamW(model.parameters())


def train_one(model, optimizer, width=4):
    optimizer.zero_grad()
    model(torch.randn(4, width)).square().mean().backward()
    optimizer.step()


class Rank:
    """A rank whose page is memory of this process; ranks of one job share a store."""

    def __init__(self, folder, rank=0, store=None, world_size=1, attempt=0, slots=2, state=None):
        self.memory = bytearray(page.PAGE_SIZE)
        self.recorder = Recorder(self.memory, attempt)
        self.model, self.optimizer = build()
        self.folder = folder
        named = {"model": self.model, "optimizer": self.optimizer} if state is None else state
        self.savable = Savable(register(named))
        self.place = Placement(rank=rank, world_size=world_size, store=store)
        self.now_ns = 0
        self.taking = Taking(
            self.recorder,
            self.place,
            self.savable,
            Author(JOB, attempt, 1, rank, world_size),
            SlotPool(folder, rank, attempt),
            clock_ns=lambda: self.now_ns,
        )
        self.rounds = Rounds(self.recorder, self.taking)
        self.sequence = 0
        self.attempt = attempt
        for number in range(slots):
            make_slot(folder, rank, number)

    def order(self, kind, step=0, identifier="aa", deadline_ns=1 << 60, every=0, slots=2, keeps=0):
        self.sequence += 1
        order = Order(kind, self.attempt, 1, step, deadline_ns, identifier, every, slots, keeps)
        body, head = page.pack_order(order, self.sequence)
        start = page.order_offset(kind)
        self.memory[start + 8 : start + 8 + len(body)] = body
        self.memory[start : start + 8] = head

    def cadence(self, every=1, slots=2):
        self.order(OrderKind.SNAPSHOT, identifier="cadence", every=every, slots=slots)

    def cross(self, step):
        order = self.recorder.order(OrderKind.CHECKPOINT)
        self.rounds.cross(step, lambda: Position(0, 0), order)
        self.settle()

    def settle(self):
        """Slots are made ready in threads; here every step waits for them."""
        for thread in threading.enumerate():
            if thread.name == "holdfast-prepare":
                thread.join()

    def run(self, *steps):
        for step in steps:
            train_one(self.model, self.optimizer)
            self.cross(step)

    def start(self, every=1, slots=2):
        """The first boundaries: plan, get slots, have them made ready."""
        self.cross(0)
        self.run(1)
        self.get_ready(slots)
        self.cadence(every, slots)

    def get_ready(self, slots=2):
        for _ in range(2):
            self.taking.prepare(slots)
            self.settle()

    def word(self, word):
        return self.recorder.word(word)

    def reply(self, kind=OrderKind.CHECKPOINT):
        reply = page.parse_reply(bytes(self.memory), kind)
        return None if reply is None else (reply.state, reply.identifier)

    @property
    def steps(self):
        return sealed_steps(self.folder, self.place.rank)
