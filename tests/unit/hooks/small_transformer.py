"""A transformer small enough to count by hand, and its operations by the usual formula."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, HEADS, LAYERS, WORDS, BATCH, LENGTH = 64, 4, 2, 96, 4, 32

MODEL_FLOPS = (
    3  # backward takes twice as much as forward
    * BATCH
    * (
        LAYERS * (2 * LENGTH * 12 * WIDTH**2 + 2 * 2 * LENGTH**2 * WIDTH)
        + 2 * LENGTH * WIDTH * WORDS
    )
)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        split = self.projections(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        seen = functional.scaled_dot_product_attention(
            *split.permute(2, 0, 3, 1, 4), is_causal=True
        )
        x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Transformer(nn.Module):
    """`reentrant` None: its blocks are not computed again."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, WORDS)
        self.reentrant = reentrant

    def forward(self, words: Tensor) -> Tensor:
        x = self.words(words)
        for block in self.blocks:
            if self.reentrant is None:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


def batch() -> Tensor:
    return torch.randint(0, WORDS, (BATCH, LENGTH))


def loss_of(model: nn.Module, words: Tensor) -> Tensor:
    return functional.cross_entropy(model(words).flatten(0, 1), words.flatten())
