"""Vision transformers for small images (Dosovitskiy et al. 2021; sizes of Touvron et al. 2021)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

HEAD = 64  # channels of a head of attention
_DEPTH = 12
_HIDDEN = 4  # times as wide are the hidden layers
_DEVIATION = 0.02  # of the initial embeddings
_SMALL = 1e-6  # what layer normalisation adds to the variance


class VisionTransformer(nn.Module):
    """Twelve pre-norm encoder blocks over the patches of an image and a class token, which is classified."""

    def __init__(
        self, image_shape: tuple[int, int, int], num_classes: int, *, heads: int, patch: int
    ) -> None:
        """`image_shape`: height and width, both multiples of `patch`, and channels."""
        super().__init__()
        height, width, channels = image_shape
        dim = heads * HEAD
        self.patch = patch
        self.project = nn.Linear(channels * patch**2, dim)
        self.embed = Embedding(height // patch * (width // patch), dim)
        self.blocks = nn.Sequential(*(_Block(dim, heads) for _ in range(_DEPTH)))
        self.norm = nn.LayerNorm(dim, _SMALL)
        self.classifier = nn.Linear(dim, num_classes)

    def forward(self, pixels: Tensor) -> Tensor:
        patches = functional.pixel_unshuffle(pixels, self.patch).flatten(2).mT  # [B, T, C P P]
        tokens = self.blocks(self.embed(self.project(patches)))
        logits: Tensor = self.classifier(self.norm(tokens[:, 0]))
        return logits


class Embedding(nn.Module):
    """Puts a learned class token before the tokens, and adds a learned position to each."""

    def __init__(self, tokens: int, dim: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, 1 + tokens, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        return torch.cat([self.token.expand(len(tokens), -1, -1), tokens], 1) + self.positions

    def draw(self, generator: torch.Generator) -> None:
        """Draw both afresh, in place: a normal distribution, cut off at two deviations."""
        for weight in (self.token, self.positions):
            bound = 2 * _DEVIATION
            nn.init.trunc_normal_(weight, std=_DEVIATION, a=-bound, b=bound, generator=generator)


class _Block(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim, _SMALL)
        self.attention = _Attention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim, _SMALL)
        self.mlp = nn.Sequential(nn.Linear(dim, _HIDDEN * dim), nn.GELU(), nn.Linear(_HIDDEN * dim, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.attention_norm(tokens))
        mixed: Tensor = tokens + self.mlp(self.mlp_norm(tokens))
        return mixed


class _Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T, D] of [B, T, D]: each token takes from all tokens."""
        split = self.query_key_value(tokens).unflatten(-1, (3, self.heads, HEAD))  # [B, T, 3, heads, 64]
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each [B, heads, T, 64]
        found = functional.scaled_dot_product_attention(query, key, value)
        mixed: Tensor = self.project(found.transpose(1, 2).flatten(2))
        return mixed
