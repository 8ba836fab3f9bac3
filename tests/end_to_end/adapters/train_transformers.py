"""A small language model of Transformers, trained by its Trainer; dropout and accumulation too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from disturbance import OUT, digest, disturb, tell
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from holdfast.adapters.transformers import TransformersCallback

SAMPLES = 36
STEPS_PER_PASS = 5
STEPS = 60


class Sentences(torch.utils.data.Dataset):
    def __init__(self):
        self.tokens = torch.randint(0, 64, (SAMPLES, 8), generator=torch.Generator().manual_seed(1))
        self.seen = []

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.seen.append(index)
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class Disturbance(TrainerCallback):
    def on_step_begin(self, args, state, control, **kwargs):
        disturb(state.global_step, STEPS_PER_PASS)


def train(output, is_disturbed):
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_positions=8, n_embd=16, n_layer=1, n_head=2)
    arguments = TrainingArguments(
        output_dir=output,
        use_cpu=True,
        ddp_backend="gloo",
        per_device_train_batch_size=2,
        gradient_accumulation_steps=2,
        max_steps=STEPS,
        save_strategy="no",
        logging_steps=5,
        report_to=[],
        disable_tqdm=True,
        seed=7,
    )
    data = Sentences()
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data)
    path = None
    if is_disturbed:
        holdfast = TransformersCallback(trainer)
        trainer.add_callback(holdfast)
        trainer.add_callback(Disturbance())
        path = holdfast.resume_path()
        tell(resumed=path)
    trainer.train(resume_from_checkpoint=path)
    return trainer


if __name__ == "__main__":
    output = str(OUT / "own")
    trainer = train(output, True)
    tell(weights=digest(trainer.model), steps=trainer.state.global_step)
    tell(undisturbed=digest(train(output, False).model))
