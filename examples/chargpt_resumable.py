"""A character-level GPT that resumes: holdfast run --nproc-per-node 2 examples/chargpt_resumable.py

The same script without Holdfast's three lines is chargpt.py; compare them with diff.
"""

from __future__ import annotations

import argparse

import torch
from chargpt_model import CharacterGPT, Shape, Windows, parse_options, read_text, weights_hash
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import holdfast


def train(options: argparse.Namespace, rank: int) -> None:
    torch.manual_seed(options.seed)
    shape = Shape(layers=options.layers)
    data = Windows(read_text(), shape.context)
    sampler = DistributedSampler(data, seed=options.seed, drop_last=True)
    loader = DataLoader(data, options.batch, sampler=sampler, drop_last=True)
    # Small buckets: gradients travel while the rest is still computed, even in a model this small.
    # Without find_unused_parameters DDP regroups its buckets after the first step of a process,
    # so a restarted job would sum that step in another order: as good, but not bit for bit.
    model = DistributedDataParallel(
        CharacterGPT(shape), bucket_cap_mb=0.25, find_unused_parameters=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)

    job = holdfast.attach(model=model, optimizer=optimizer, loader=loader)
    start = job.resume()
    batches = job.steps(loader, until=options.steps)
    for step, (window, target) in enumerate(batches, start + 1):
        loss = model(window, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        job.report(loss=loss)
        if rank == 0 and step % options.report_every == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)

    if rank == 0:
        digest = weights_hash(model.module)
        print(f"weights {digest}", flush=True)
        if options.out:
            options.out.write_text(digest)


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    distributed.init_process_group("gloo")
    train(parse_options(), distributed.get_rank())
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
