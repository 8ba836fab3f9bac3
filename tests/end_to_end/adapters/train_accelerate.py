"""A loop of one's own with Accelerate: shuffled data, dropout, a schedule."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from accelerate import Accelerator
from disturbance import RANK, digest, disturb, tell

from holdfast.adapters import accelerate as adapter

SAMPLES = 28
PASSES = 9
STEPS_PER_PASS = 7


def train(is_disturbed):
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(SAMPLES, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    data = torch.utils.data.DataLoader(torch.eye(SAMPLES), 2, shuffle=True)
    model, optimizer, schedule, data = accelerator.prepare(model, optimizer, schedule, data)
    torch.manual_seed(RANK)
    job = adapter.attach(accelerator)
    if is_disturbed:
        tell(resumed=job.resume())
    batches = []
    for batch in job.steps(data, epochs=PASSES) if is_disturbed else passes(data):
        if is_disturbed:
            disturb(job.step, STEPS_PER_PASS)
        batches.append(batch.argmax(1).tolist())
        loss = model(batch).square().mean()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return job, digest(model), batches


def passes(data):
    for epoch in range(PASSES):
        data.set_epoch(epoch)
        yield from data


if __name__ == "__main__":
    job, weights, batches = train(True)
    tell(weights=weights, batches=batches, steps=job.step)
    job, weights, batches = train(False)
    tell(undisturbed=weights, all_batches=batches)
