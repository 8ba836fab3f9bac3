"""What both character-level GPT scripts train: the text, the model, and a hash of its weights.

The text is the source of Python's own standard library, so there is nothing to download.
"""

from __future__ import annotations

import argparse
import hashlib
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

CHARACTERS = 128  # ASCII


@dataclass(frozen=True)
class Shape:
    """Size of the model."""

    layers: int
    width: int = 64
    heads: int = 4
    context: int = 64


def read_text(limit: int = 4_000_000) -> torch.Tensor:
    """The standard library's top-level modules, one after the other, as character codes."""
    library = Path(sysconfig.get_path("stdlib"))
    text = "".join(path.read_text("utf-8", "replace") for path in sorted(library.glob("*.py")))
    return torch.frombuffer(bytearray(text[:limit].encode("ascii", "replace")), dtype=torch.uint8)


class Windows(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows of the text that don't overlap; the target is the window one character later."""

    def __init__(self, text: torch.Tensor, context: int) -> None:
        self.text = text
        self.context = context

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.context

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * self.context
        window = self.text[start : start + self.context + 1].long()
        return window[:-1], window[1:]


class Block(nn.Module):
    """Attention to what came before, then a small network, each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.before_attention = nn.LayerNorm(shape.width)
        self.to_query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.after_attention = nn.Linear(shape.width, shape.width)
        self.network = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        joined = self.to_query_key_value(self.before_attention(x))
        by_head = joined.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = by_head.unbind()
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.after_attention(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.network(x)


class CharacterGPT(nn.Module):
    """Predicts the next character; `forward` answers the loss."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.last_norm = nn.LayerNorm(shape.width)
        self.to_characters = nn.Linear(shape.width, CHARACTERS)

    def forward(self, window: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        places = torch.arange(window.shape[1], device=window.device)
        x = self.blocks(self.characters(window) + self.positions(places))
        scores = self.to_characters(self.last_norm(x))
        return functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def weights_hash(model: nn.Module) -> str:
    """SHA-256 over every weight, in order: equal only when every bit is."""
    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def parse_options() -> argparse.Namespace:
    """The command line of both scripts."""
    parser = argparse.ArgumentParser(description="A character-level GPT on Python's own library.")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=8, help="windows per rank and step")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report-every", type=int, default=20, help="steps between losses printed")
    parser.add_argument("--out", type=Path, help="file for the SHA-256 of the final weights")
    return parser.parse_args()
