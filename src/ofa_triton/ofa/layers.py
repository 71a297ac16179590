"""Transformer layers of OFA: pre-LayerNorm with NormFormer's extra norms and a learnt scale per head.

Legend: B batch, Q query positions, K key positions, D width, H heads, F feed-forward width.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu
from torch.nn.parameter import Parameter


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, Q, D] to [B, H, Q, D/H]."""
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """[B, H, Q, D/H] to [B, Q, D]."""
    return x.transpose(-3, -2).flatten(-2)


def query_scale(width: int, heads: int, scale_factor: float) -> float:
    """OFA scales queries by (head width * factor) ** -0.5; with factor 2 that is half the usual variance."""
    return float((width / heads * scale_factor) ** -0.5)


class Attention(nn.Module):
    """Multi-head attention whose heads are each multiplied by ``c_attn`` before the output projection."""

    def __init__(self, width: int, heads: int, scale_factor: float) -> None:
        super().__init__()
        self.heads = heads
        self.scale = query_scale(width, heads, scale_factor)
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)
        self.c_attn = Parameter(self.out_proj.weight.new_ones(heads))

    def forward(self, queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        """[B, Q, D] attends to [B, K, D] under `bias`, broadcast to [B, H, Q, K]: position biases plus masks."""
        q = split_heads(self.q_proj(queries) * self.scale, self.heads)
        k = split_heads(self.k_proj(keys), self.heads)
        v = split_heads(self.v_proj(keys), self.heads)
        weights = (q @ k.transpose(-1, -2) + bias).softmax(-1)
        return self.out_proj(merge_heads(weights @ v * self.c_attn[:, None, None]))


def _scaled(branch: Tensor, gamma: Tensor | None) -> Tensor:
    return branch if gamma is None else gamma * branch


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each a residual branch; with `gamma`, scaled per channel where it joins."""

    def __init__(self, width: int, heads: int, ffn: int, scale_factor: float, *, gamma: bool = False) -> None:
        super().__init__()
        self.weight_self_attn = Parameter(torch.ones(width)) if gamma else None
        self.weight_ffn = Parameter(torch.ones(width)) if gamma else None
        self.self_attn = Attention(width, heads, scale_factor)
        self.self_attn_layer_norm = nn.LayerNorm(width)
        self.self_attn_mid_layer_norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, ffn)
        self.fc2 = nn.Linear(ffn, width)
        self.ffn_layer_norm = nn.LayerNorm(ffn)
        self.final_layer_norm = nn.LayerNorm(width)

    def attend_self(self, x: Tensor, bias: Tensor) -> Tensor:
        """The self-attention block with its residual."""
        z = self.self_attn_layer_norm(x)
        return self.add_self(x, self.self_attn(z, z, bias))

    def add_self(self, x: Tensor, z: Tensor) -> Tensor:
        """Add self-attention's output `z`, normed and scaled."""
        return x + _scaled(self.self_attn_mid_layer_norm(z), self.weight_self_attn)

    def feed_forward(self, x: Tensor) -> Tensor:
        """The feed-forward block with its residual; GELU is the exact one."""
        z = self.ffn_layer_norm(gelu(self.fc1(self.final_layer_norm(x))))
        return x + _scaled(self.fc2(z), self.weight_ffn)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        return self.feed_forward(self.attend_self(x, bias))


class DecoderLayer(EncoderLayer):
    """An encoder layer with cross-attention between its two blocks."""

    def __init__(self, width: int, heads: int, ffn: int, scale_factor: float, *, gamma: bool = False) -> None:
        super().__init__(width, heads, ffn, scale_factor, gamma=gamma)
        self.weight_cross_attn = Parameter(torch.ones(width)) if gamma else None
        self.cross_attn = Attention(width, heads, scale_factor)
        self.cross_attn_layer_norm = nn.LayerNorm(width)
        self.cross_attn_mid_layer_norm = nn.LayerNorm(width)

    def attend_cross(self, x: Tensor, states: Tensor, bias: Tensor) -> Tensor:
        """The cross-attention block with its residual."""
        return self.add_cross(x, self.cross_attn(self.cross_attn_layer_norm(x), states, bias))

    def add_cross(self, x: Tensor, z: Tensor) -> Tensor:
        """Add cross-attention's output `z`, normed and scaled."""
        return x + _scaled(self.cross_attn_mid_layer_norm(z), self.weight_cross_attn)

    def forward(  # type: ignore[override]
        self, x: Tensor, states: Tensor, self_bias: Tensor, cross_bias: Tensor
    ) -> Tensor:
        x = self.attend_self(x, self_bias)
        return self.feed_forward(self.attend_cross(x, states, cross_bias))
