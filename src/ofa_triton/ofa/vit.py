"""The ViT image tower of OFA-Sys checkpoints: CLIP's, without class token and without a norm at the end.

Legend: B batch, P image patches, W width.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

from ofa_triton.ofa.config import VitShape
from ofa_triton.ofa.layers import merge_heads, split_heads


class PackedAttention(nn.Module):
    """Multi-head attention with Q, K and V in one matrix, stored as ``nn.MultiheadAttention`` stores it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width).normal_(std=width**-0.5))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        qkv = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias)
        q, k, v = (split_heads(part, self.heads) for part in qkv.chunk(3, -1))
        return self.out_proj(merge_heads(scaled_dot_product_attention(q, k, v)))


class QuickGELU(nn.Module):
    """CLIP's approximation of GELU: x * sigmoid(1.702 x)."""

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(1.702 * x)


class ResidualBlock(nn.Module):
    """Attention and feed-forward, each behind its norm, each a residual branch."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attn = PackedAttention(width, heads)
        self.ln_1 = nn.LayerNorm(width)
        self.mlp = nn.Sequential()
        self.mlp.add_module("c_fc", nn.Linear(width, 4 * width))
        self.mlp.add_module("gelu", QuickGELU())
        self.mlp.add_module("c_proj", nn.Linear(4 * width, width))
        self.ln_2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class VisionTransformer(nn.Module):
    """Pixels FP32 [B, 3, height, width], normalised, to features FP32 [B, W, height // patch, width // patch]."""

    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.shape = shape
        self.conv1 = nn.Conv2d(3, shape.width, shape.patch, shape.patch, bias=False)
        positions = (shape.native // shape.patch) ** 2 + 1  # the first is the class token's, and unused
        self.positional_embedding = nn.Parameter(torch.empty(positions, shape.width).normal_(std=shape.width**-0.5))
        self.ln_pre = nn.LayerNorm(shape.width)
        self.transformer = nn.Module()
        blocks = (ResidualBlock(shape.width, shape.heads) for _ in range(shape.layers))
        self.transformer.resblocks = nn.Sequential(*blocks)

    def forward(self, pixels: Tensor) -> Tensor:
        features = self.conv1(pixels)
        grid = features.shape[-2:]
        positions = self._positions(pixels.shape[-2], (grid[0], grid[1]))
        x = self.ln_pre(features.flatten(2).transpose(1, 2) + positions)
        return self.transformer.resblocks(x).transpose(1, 2).unflatten(-1, grid)  # type: ignore[operator]

    def _positions(self, height: int, grid: tuple[int, int]) -> Tensor:
        """Position embeddings [P, W]; resized bilinearly when the picture's height is not the native one."""
        table = self.positional_embedding[1:]
        if height == self.shape.native:
            return table
        side = self.shape.native // self.shape.patch
        native = table.T.unflatten(-1, (side, side))[None]
        return interpolate(native, size=grid, mode="bilinear")[0].flatten(1).T
