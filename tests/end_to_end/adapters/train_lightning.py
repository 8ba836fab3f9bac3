"""A small network of Lightning with dropout, batches gathered in pairs, and validation."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import lightning.pytorch as lightning
import torch
from disturbance import OUT, RANK, digest, disturb, tell

from holdfast.adapters.lightning import LightningCallback

SAMPLES = 48
RANKS = 2
BATCH = 2
PASSES = 10
STEPS_PER_PASS = 6


class Loader:
    """A rank's share of every pass, in an order of that pass; says where it is."""

    def __init__(self):
        self.epoch = self.taken = 0

    def __len__(self):
        return SAMPLES // (RANKS * BATCH)

    def __iter__(self):
        if self.taken == len(self):
            self.epoch, self.taken = self.epoch + 1, 0
        order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(self.epoch))
        rest = order[RANK::RANKS][self.taken * BATCH :].tolist()
        # torch's own, as it takes a seed from the global generator whenever it is started.
        for batch in torch.utils.data.DataLoader(torch.eye(SAMPLES), BATCH, sampler=rest):
            self.taken += 1
            yield batch
        self.epoch, self.taken = self.epoch + 1, 0

    def state_dict(self):
        return {"epoch": self.epoch, "taken": self.taken}

    def load_state_dict(self, state):
        self.epoch, self.taken = state["epoch"], state["taken"]


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(SAMPLES, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 1)
        )
        self.batches = []

    def training_step(self, batch, index):
        self.batches.append(batch.argmax(1).tolist())
        return self.layers(batch).square().mean()

    def validation_step(self, batch, index):
        self.log("loss", self.layers(batch).mean(), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


class Disturbance(lightning.Callback):
    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        disturb(trainer.global_step, STEPS_PER_PASS)


def train(folder, is_disturbed):
    torch.manual_seed(RANK)
    holdfast = LightningCallback() if is_disturbed else None
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=RANKS,
        strategy=lightning.strategies.DDPStrategy(process_group_backend="gloo"),
        max_epochs=PASSES,
        accumulate_grad_batches=2,
        callbacks=[Disturbance(), holdfast] if holdfast else [],
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    model = Network()
    path = holdfast.resume_path(trainer, model) if holdfast else None
    if is_disturbed:
        tell(resumed=path)
    validation = torch.utils.data.DataLoader(torch.ones(4, SAMPLES), 2)
    trainer.fit(model, Loader(), validation, ckpt_path=path)
    return trainer, model


if __name__ == "__main__":
    trainer, model = train(OUT / "own", True)
    tell(weights=digest(model), steps=trainer.global_step, batches=model.batches)
    undisturbed = train(OUT / "own", False)[1]
    tell(undisturbed=digest(undisturbed), all_batches=undisturbed.batches)
