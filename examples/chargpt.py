"""A character-level GPT under plain DDP: torchrun --nproc-per-node 2 examples/chargpt.py

The same script with Holdfast's three lines is chargpt_resumable.py; compare them with diff.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
from chargpt_model import CharacterGPT, Shape, Windows, parse_options, read_text, weights_hash
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def over_epochs(loader: DataLoader, until: int) -> Iterator[list[torch.Tensor]]:
    """`until` batches, over as many epochs as that takes."""
    step = epoch = 0
    while step < until:
        loader.sampler.set_epoch(epoch)
        for batch in loader:
            yield batch
            step += 1
            if step == until:
                break
        epoch += 1


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

    batches = over_epochs(loader, until=options.steps)
    for step, (window, target) in enumerate(batches, 1):
        loss = model(window, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
