"""The model cut into stages and rewritten for export: the same numbers with less work.

Each module takes what it needs from an ``OFAModel`` when it is built, folds what can be folded, and is traced to ONNX
by ``export.py``. What depends only on the grid and on the text length becomes a constant of the longest text, sliced
to the length at hand.

Legend: B batch, S image side, P image patches, T padded text tokens, L = P + T, D width, H heads, K head width,
A answers.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from ofa_triton.ofa.layers import Attention, DecoderLayer, EncoderLayer, merge_heads, query_scale, split_heads
from ofa_triton.ofa.model import Encoder, Grid, OFAModel, encoder_mask
from ofa_triton.ofa.positions import image_buckets, token_buckets


class VisionEncoderStage(nn.Module):
    """Pixels UINT8 [B, S, S, 3] to image embeddings FP32 [B, P, D], normalisation and layout change included."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: OFAModel, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.encoder = model.encoder
        self.register_buffer("mean", torch.tensor(mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(1, 3, 1, 1))

    def forward(self, pixel_values: Tensor) -> Tensor:
        pixels = pixel_values.permute(0, 3, 1, 2).float() / 255
        return self.encoder.embed_pixels((pixels - self.mean) / self.std)[0]


class FoldedAttention(nn.Module):
    """Self-attention with one product for Q, K and V, the query scale and ``c_attn`` folded into the weights."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.heads = attention.heads
        q, k, v, out = attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj
        self.qkv = _linear(
            torch.cat([q.weight * attention.scale, k.weight, v.weight]),
            torch.cat([q.bias * attention.scale, k.bias, v.bias]),
        )
        self.out = _linear(out.weight * _per_column(attention), out.bias)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        q, k, v = (split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) + bias).softmax(-1)
        return self.out(merge_heads(weights @ v))


class TextEncoderStage(nn.Module):
    """Image embeddings FP32 [B, P, D] and token ids INT32 [B, T] to encoder states FP32 [B, L, D].

    Position biases are kept small: per layer one row of the relative tables for each bucket in use, gathered by one
    index [L, L] that all layers share, and the position projections from which the absolute bias is multiplied out.
    Baked into the file they would be one [H, L, L] table a layer.
    """

    pos_q: Tensor
    pos_k: Tensor
    index: Tensor

    def __init__(self, model: OFAModel, grid: Grid, max_text: int) -> None:
        super().__init__()
        encoder, config = model.encoder, model.config
        self.encoder = encoder
        self.pad_token_id = config.pad_token_id
        self.patches = grid[0] * grid[1]
        self.has_absolute_bias = config.has_absolute_bias
        if config.has_absolute_bias:
            heads = config.encoder_attention_heads
            scale = query_scale(config.d_model, heads, config.attn_scale_factor)
            positions = encoder.positions(grid, max_text)
            self.register_buffer("pos_q", split_heads(encoder.pos_q_linear(positions) * scale, heads))
            self.register_buffer("pos_k", split_heads(encoder.pos_k_linear(positions), heads).transpose(-1, -2))
        index, image_rows, token_rows = _relative_index(encoder, grid, max_text)
        self.register_buffer("index", index)
        for number in range(config.encoder_layers):
            table = _relative_table(encoder, number, image_rows, token_rows)
            self.register_buffer(f"relative_{number}", table)
        self.attentions = nn.ModuleList(FoldedAttention(_encoder_layer(layer).self_attn) for layer in encoder.layers)

    def forward(self, image_embeds: Tensor, input_ids: Tensor) -> Tensor:
        x = torch.cat([image_embeds, self.encoder.embed_text(input_ids)], 1)
        length = x.shape[1]
        index = self.index[:length, :length].flatten()
        bias = encoder_mask(input_ids, self.patches, self.pad_token_id)
        if self.has_absolute_bias:
            bias = self.pos_q[:, :length] @ self.pos_k[:, :, :length] + bias
        for number, module in enumerate(self.encoder.layers):
            layer = _encoder_layer(module)
            table = cast(Tensor, getattr(self, f"relative_{number}"))
            relative = table.index_select(1, index).unflatten(1, (length, length))
            z = self.attentions[number](layer.self_attn_layer_norm(x), relative + bias)
            x = layer.feed_forward(layer.add_self(x, z))
        return self.encoder.layer_norm(x)


class AbsorbedCrossAttention(nn.Module):
    """Cross-attention of few queries over many keys, with the key and value projections moved to the query side.

    With q = W_q x + b_q, a score q . (W_k y + b_k) is (W_k' q) . y plus a term that is the same for every key and
    so is lost in the softmax. Weights sum to one, so the values' sum is W_v (weights . y) + b_v. The states y of all
    L positions are then never projected.
    """

    key: Tensor
    value: Tensor

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.heads = attention.heads
        q, k, v, out = attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj
        self.q = _linear(q.weight * attention.scale, q.bias * attention.scale)
        self.register_buffer("key", k.weight.unflatten(0, (self.heads, -1)).contiguous())  # [H, K, D]
        self.register_buffer("value", v.weight.unflatten(0, (self.heads, -1)).transpose(1, 2).contiguous())  # [H, D, K]
        scaled = out.weight * _per_column(attention)
        self.out = _linear(scaled, out.bias + scaled @ v.bias)

    def forward(self, x: Tensor, states: Tensor, bias: Tensor) -> Tensor:
        """[B, N, D] reads states [B, L, D] under `bias` [B, H, N, L]."""
        queries = split_heads(self.q(x), self.heads) @ self.key  # [B, H, N, D]
        rows = queries.flatten(1, 2) @ states.transpose(-1, -2)
        weights = (rows.unflatten(1, (self.heads, -1)) + bias).softmax(-1)
        context = (weights.flatten(1, 2) @ states).unflatten(1, (self.heads, -1))
        return self.out(merge_heads(context @ self.value))


class FusionHeadStage(nn.Module):
    """Encoder states FP32 [B, L, D] and token ids INT32 [B, T] to the answers' probabilities FP32 [B, A].

    The decoder runs once over the prompt. Only its last token is scored, and only over the answers; in the last layer
    only that token is computed.

    Args:
        answer_ids: the one token of each answer.
        repeats_source: the decoder's prompt is the encoder's text without its end (``prompt_type`` prev_output);
            otherwise the beginning of sentence alone.
    """

    cross_bias: Tensor
    answers: Tensor

    def __init__(self, model: OFAModel, grid: Grid, max_text: int, answer_ids: list[int], *, repeats_source: bool):
        super().__init__()
        decoder, config = model.decoder, model.config
        self.decoder = decoder
        self.bos, self.pad_token_id = config.bos_token_id, config.pad_token_id
        self.patches = grid[0] * grid[1]
        self.repeats_source = repeats_source
        length = max_text if repeats_source else 1
        self.register_buffer("cross_bias", decoder.cross_bias(length, model.encoder.positions(grid, max_text)))
        for number in range(config.decoder_layers):
            self.register_buffer(
                f"self_bias_{number}", decoder.self_bias(length) + decoder.relative_bias(number, length)
            )
        self.register_buffer("answers", decoder.embed_tokens.weight[answer_ids].T.contiguous())
        layers = [_decoder_layer(layer) for layer in decoder.layers]
        self.self_attentions = nn.ModuleList(FoldedAttention(layer.self_attn) for layer in layers[:-1])
        self.last_self_attention = LastRowAttention(layers[-1].self_attn)
        self.cross_attentions = nn.ModuleList(AbsorbedCrossAttention(layer.cross_attn) for layer in layers)

    def forward(self, encoder_states: Tensor, input_ids: Tensor) -> Tensor:
        ids, last = self._prompt(input_ids)
        length, keys = ids.shape[1], encoder_states.shape[1]
        x = self.decoder.embed(ids)
        cross = self.cross_bias[:, :length, :keys] + encoder_mask(input_ids, self.patches, self.pad_token_id)
        row = (torch.arange(length, dtype=last.dtype) == last[:, None]).to(x.dtype)[:, None, :]  # [B, 1, N], one-hot
        for number, module in enumerate(self.decoder.layers):
            layer = _decoder_layer(module)
            bias = cast(Tensor, getattr(self, f"self_bias_{number}"))[:, :length, :length]
            z = layer.self_attn_layer_norm(x)
            if number < len(self.self_attentions):
                z = self.self_attentions[number](z, bias)
            else:
                z = self.last_self_attention(z, row, bias)
                x, cross = row @ x, row[:, None] @ cross
            x = layer.add_self(x, z)
            z = self.cross_attentions[number](layer.cross_attn_layer_norm(x), encoder_states, cross)
            x = layer.feed_forward(layer.add_cross(x, z))
        logits = self.decoder.layer_norm(x)[:, 0] @ self.answers
        return logits.softmax(-1)

    def _prompt(self, input_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Decoder tokens [B, N] and the index of the last one that counts, [B]; later ones are never looked at."""
        if not self.repeats_source:
            return input_ids[:, :1] * 0 + self.bos, input_ids[:, 0] * 0
        position = torch.arange(input_ids.shape[1], dtype=input_ids.dtype)
        end = ((input_ids != self.pad_token_id) * position).amax(1)
        return input_ids, end - 1


class LastRowAttention(nn.Module):
    """Self-attention of one chosen row over all: `row` one-hot [B, 1, N], x [B, N, D] to [B, 1, D]."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.heads = attention.heads
        folded = FoldedAttention(attention)
        width = attention.q_proj.in_features
        weight, bias = folded.qkv.weight, folded.qkv.bias
        self.q = _linear(weight[:width], bias[:width])
        self.kv = _linear(weight[width:], bias[width:])
        self.out = folded.out

    def forward(self, x: Tensor, row: Tensor, bias: Tensor) -> Tensor:
        q = split_heads(self.q(row @ x), self.heads)
        k, v = (split_heads(part, self.heads) for part in self.kv(x).chunk(2, -1))
        weights = (q @ k.transpose(-1, -2) + row[:, None] @ bias).softmax(-1)
        return self.out(merge_heads(weights @ v))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    linear.weight, linear.bias = nn.Parameter(weight.detach()), nn.Parameter(bias.detach())
    return linear


def _per_column(attention: Attention) -> Tensor:
    """``c_attn`` repeated over the columns of the output projection that a head feeds: [D]."""
    return attention.c_attn.repeat_interleave(attention.out_proj.in_features // attention.heads)


def _relative_index(encoder: Encoder, grid: Grid, max_text: int) -> tuple[Tensor, Tensor, Tensor]:
    """Index INT64 [L, L] into a table that holds only the rows in use: none (0), then image rows, then token rows."""
    config = encoder.config
    patches = grid[0] * grid[1]
    image_rows, image = image_buckets(*grid, config.image_bucket_size).unique(return_inverse=True)
    token_rows, text = token_buckets(max_text, config.token_bucket_size).unique(return_inverse=True)
    index = torch.zeros(patches + max_text, patches + max_text, dtype=torch.int64)
    index[:patches, :patches] = image + 1
    index[patches:, patches:] = text + 1 + len(image_rows)
    return index, image_rows, token_rows


def _relative_table(encoder: Encoder, layer: int, image_rows: Tensor, token_rows: Tensor) -> Tensor:
    """Relative biases of one layer, FP32 [H, 1 + image rows + token rows]."""
    image_table, token_table = encoder.relative_tables(layer)
    image, token = image_table(image_rows), token_table(token_rows)
    return torch.cat([image.new_zeros(1, image.shape[1]), image, token]).T.contiguous()


def _encoder_layer(module: nn.Module) -> EncoderLayer:
    return cast(EncoderLayer, module)


def _decoder_layer(module: nn.Module) -> DecoderLayer:
    return cast(DecoderLayer, module)
