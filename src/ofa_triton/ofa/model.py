"""OFA: image tower, joint encoder and decoder, with the parameter names of ModelScope's checkpoints.

This is the plain statement of the model, used for training and as the reference of the exported stages
(``stages.py``), which compute the same with less work.

Legend: B batch, G (rows, columns) of the image grid, P = rows * columns image patches, T text tokens,
L = P + T encoder positions, N decoder tokens, D width, H heads, V vocabulary.
"""

import torch
from torch import Tensor, nn

from ofa_triton.ofa.config import RESNET_BLOCKS, RESNET_STRIDE, VIT_SHAPES, OFAConfig
from ofa_triton.ofa.layers import DecoderLayer, EncoderLayer, query_scale, split_heads
from ofa_triton.ofa.positions import image_buckets, image_position_ids, token_buckets
from ofa_triton.ofa.resnet import ResNet
from ofa_triton.ofa.vit import VisionTransformer

MASKED = -1e4
"""Added to the score of a key that must not be seen: exp of it is 0 in fp32, and it is finite in fp16."""

Grid = tuple[int, int]


class Encoder(nn.Module):
    """Reads image patches and text as one sequence, patches first."""

    def __init__(self, config: OFAConfig) -> None:
        super().__init__()
        width, heads = config.d_model, config.encoder_attention_heads
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, width)
        self.type_embedding = nn.Embedding(2, width)
        self.layernorm_embedding = nn.LayerNorm(width)
        self.embed_images = image_tower(config)
        self.image_proj = nn.Linear(config.tower_width, width)
        self.patch_layernorm_embedding = nn.LayerNorm(width)
        self.embed_positions = nn.Embedding(config.max_position_embeddings + 2, width)
        self.embed_image_positions = nn.Embedding(config.image_bucket_size**2 + 1, width)
        if not config.use_ofasys:
            self.pos_ln = nn.LayerNorm(width)
            self.image_pos_ln = nn.LayerNorm(width)
        if config.has_absolute_bias:
            self.pos_q_linear = nn.Linear(width, width)
            self.pos_k_linear = nn.Linear(width, width)
        tables = 1 if config.share_attn_bias else config.encoder_layers
        self.token_rel_pos_table_list = _bias_tables(tables, 2 * config.token_bucket_size - 1, heads)
        self.image_rel_pos_table_list = _bias_tables(tables, (2 * config.image_bucket_size - 1) ** 2 + 3, heads)
        self.layers = nn.ModuleList(
            EncoderLayer(width, heads, config.encoder_ffn_dim, config.attn_scale_factor, gamma=config.use_gamma_feature)
            for _ in range(config.encoder_layers)
        )
        self.layer_norm = nn.LayerNorm(width)

    def embed_pixels(self, pixels: Tensor) -> tuple[Tensor, Grid]:
        """Normalised pixels FP32 [B, 3, height, width] to image embeddings [B, P, D] and their grid."""
        features = self.embed_images(pixels)
        grid = (features.shape[-2], features.shape[-1])
        x = self.image_proj(features.flatten(2).transpose(1, 2)) + self.type_embedding.weight[1]
        if self.config.entangle_position_embedding:
            x = x + self.image_positions(grid)
        return self.patch_layernorm_embedding(x), grid

    def embed_text(self, input_ids: Tensor) -> Tensor:
        """Token ids [B, T] to [B, T, D]."""
        x = self.embed_tokens(input_ids) + self.type_embedding.weight[0]
        if self.config.entangle_position_embedding:
            x = x + self.embed_positions.weight[: input_ids.shape[1]]
        return self.layernorm_embedding(x)

    def image_positions(self, grid: Grid) -> Tensor:
        """Position embeddings of the patches, [P, D].

        With ``interpolate_position`` a grid larger than the one of training takes that one's, resized bilinearly.
        """
        bucket = self.config.image_bucket_size
        side = self.config.orig_patch_image_size // RESNET_STRIDE
        if not self.config.interpolate_position or grid[0] * grid[1] <= side**2:
            return self.embed_image_positions(image_position_ids(*grid, bucket))
        trained = self.embed_image_positions(image_position_ids(side, side, bucket)).T.unflatten(-1, (side, side))
        return nn.functional.interpolate(trained[None], size=grid, mode="bilinear")[0].flatten(1).T

    def positions(self, grid: Grid, text_length: int) -> Tensor:
        """Position embeddings of the whole sequence, [L, D], as attention and the decoder read them."""
        image, text = self.image_positions(grid), self.embed_positions.weight[:text_length]
        if not self.config.use_ofasys:
            image, text = self.image_pos_ln(image), self.pos_ln(text)
        return torch.cat([image, text])

    def absolute_bias(self, grid: Grid, text_length: int) -> Tensor:
        """Bias from absolute positions, the same for all layers: [H, L, L]; a single 0 where the model has none."""
        if not self.config.has_absolute_bias:
            return torch.zeros(1, 1, 1)
        positions, heads = self.positions(grid, text_length), self.config.encoder_attention_heads
        return absolute_bias(positions, positions, self.pos_q_linear, self.pos_k_linear, heads, self.config)

    def relative_bias(self, layer: int, grid: Grid, text_length: int) -> Tensor:
        """Relative bias [H, L, L] of one layer: image-image and text-text blocks, zero between the two."""
        image_table, token_table = self.relative_tables(layer)
        image = image_table(image_buckets(*grid, self.config.image_bucket_size))
        text = token_table(token_buckets(text_length, self.config.token_bucket_size))
        patches = grid[0] * grid[1]
        image = nn.functional.pad(image.permute(2, 0, 1), (0, text_length, 0, text_length))
        return image + nn.functional.pad(text.permute(2, 0, 1), (patches, 0, patches, 0))

    def relative_tables(self, layer: int) -> tuple[nn.Module, nn.Module]:
        """Tables of the image-image and the text-text block of one layer; all layers may share one."""
        number = 0 if self.config.share_attn_bias else layer
        return self.image_rel_pos_table_list[number], self.token_rel_pos_table_list[number]

    def encode(self, image_embeds: Tensor, input_ids: Tensor, grid: Grid) -> Tensor:
        """Image embeddings [B, P, D] and token ids [B, T], right-padded, to states [B, L, D].

        States at padded positions are arbitrary: whoever reads them masks them again.
        """
        length = input_ids.shape[1]
        x = torch.cat([image_embeds, self.embed_text(input_ids)], 1)
        mask = encoder_mask(input_ids, image_embeds.shape[1], self.config.pad_token_id)
        bias = self.absolute_bias(grid, length) + mask
        for index, layer in enumerate(self.layers):
            x = layer(x, bias + self.relative_bias(index, grid, length))
        return self.layer_norm(x)


class Decoder(nn.Module):
    """Reads encoder states and the tokens written so far. The parts for drawing pictures are left out."""

    def __init__(self, config: OFAConfig, embed_tokens: nn.Embedding) -> None:
        super().__init__()
        width, heads = config.d_model, config.decoder_attention_heads
        self.config = config
        self.embed_tokens = embed_tokens
        self.layernorm_embedding = nn.LayerNorm(width)
        self.embed_positions = nn.Embedding(config.max_position_embeddings + 2, width)
        if not config.use_ofasys:
            self.pos_ln = nn.LayerNorm(width)
        if config.has_absolute_bias:
            self.self_pos_q_linear = nn.Linear(width, width)
            self.self_pos_k_linear = nn.Linear(width, width)
            self.cross_pos_q_linear = nn.Linear(width, width)
            self.cross_pos_k_linear = nn.Linear(width, width)
        tables = 1 if config.share_attn_bias else config.decoder_layers
        self.token_rel_pos_table_list = _bias_tables(tables, 2 * config.token_bucket_size - 1, heads)
        self.layers = nn.ModuleList(
            DecoderLayer(width, heads, config.decoder_ffn_dim, config.attn_scale_factor, gamma=config.use_gamma_feature)
            for _ in range(config.decoder_layers)
        )
        self.layer_norm = nn.LayerNorm(width)

    def embed(self, decoder_ids: Tensor) -> Tensor:
        """Token ids [B, N] to [B, N, D]."""
        x = self.embed_tokens(decoder_ids)
        if self.config.entangle_position_embedding and not self.config.disable_entangle:
            x = x + self.embed_positions.weight[: decoder_ids.shape[1]]
        return self.layernorm_embedding(x)

    def positions(self, length: int) -> Tensor:
        """Position embeddings [N, D], as attention reads them."""
        positions = self.embed_positions.weight[:length]
        return positions if self.config.use_ofasys else self.pos_ln(positions)

    def self_bias(self, length: int) -> Tensor:
        """Absolute bias and causal mask of self-attention, the same for all layers: [H, N, N]."""
        mask = torch.full((length, length), MASKED).triu(1)
        if not self.config.has_absolute_bias:
            return mask.expand(self.config.decoder_attention_heads, -1, -1)
        positions = self.positions(length)
        return mask + self._absolute_bias(positions, positions, self.self_pos_q_linear, self.self_pos_k_linear)

    def relative_bias(self, layer: int, length: int) -> Tensor:
        """Relative bias of one layer: [H, N, N]."""
        table = self.token_rel_pos_table_list[0 if self.config.share_attn_bias else layer]
        return table(token_buckets(length, self.config.token_bucket_size)).permute(2, 0, 1)

    def cross_bias(self, length: int, encoder_positions: Tensor) -> Tensor:
        """Absolute bias of cross-attention, the same for all layers: [H, N, L]."""
        if not self.config.has_absolute_bias:
            return torch.zeros(self.config.decoder_attention_heads, length, len(encoder_positions))
        positions = self.positions(length)
        return self._absolute_bias(positions, encoder_positions, self.cross_pos_q_linear, self.cross_pos_k_linear)

    def _absolute_bias(self, queries: Tensor, keys: Tensor, q_linear: nn.Linear, k_linear: nn.Linear) -> Tensor:
        return absolute_bias(queries, keys, q_linear, k_linear, self.config.decoder_attention_heads, self.config)

    def decode(self, decoder_ids: Tensor, states: Tensor, encoder_positions: Tensor, mask: Tensor) -> Tensor:
        """Token ids [B, N] over states [B, L, D] to hidden states [B, N, D].

        Args:
            encoder_positions: ``Encoder.positions`` of the same grid and text length, [L, D].
            mask: ``encoder_mask`` of the encoder's token ids, [B, 1, 1, L].
        """
        length = decoder_ids.shape[1]
        x = self.embed(decoder_ids)
        self_bias = self.self_bias(length)
        cross_bias = self.cross_bias(length, encoder_positions) + mask
        for index, layer in enumerate(self.layers):
            x = layer(x, states, self_bias + self.relative_bias(index, length), cross_bias)
        return self.layer_norm(x)


class OFAModel(nn.Module):
    """The whole model. ``state_dict`` keys are the checkpoint's, the tied embedding under its three names' first."""

    def __init__(self, config: OFAConfig) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(config)
        self.decoder = Decoder(config, self.encoder.embed_tokens)

    def forward(self, pixels: Tensor, input_ids: Tensor, decoder_ids: Tensor) -> Tensor:
        """Normalised pixels [B, 3, height, width], text [B, T] and decoder tokens [B, N] to logits [B, N, V].

        Text is right-padded. Rows of the decoder past a sequence's end are arbitrary.
        """
        image_embeds, grid = self.encoder.embed_pixels(pixels)
        return self.logits(image_embeds, grid, input_ids, decoder_ids)

    def logits(self, image_embeds: Tensor, grid: Grid, input_ids: Tensor, decoder_ids: Tensor) -> Tensor:
        """As ``forward``, from image embeddings [B, P, D]."""
        states = self.encoder.encode(image_embeds, input_ids, grid)
        mask = encoder_mask(input_ids, image_embeds.shape[1], self.config.pad_token_id)
        hidden = self.decoder.decode(decoder_ids, states, self.encoder.positions(grid, input_ids.shape[1]), mask)
        return hidden @ self.encoder.embed_tokens.weight.T


def image_tower(config: OFAConfig) -> nn.Module:
    """The tower that ``config.json`` names, with fresh weights."""
    if config.use_ofasys:
        return VisionTransformer(VIT_SHAPES[config.vit_type])
    return ResNet(RESNET_BLOCKS[config.resnet_type])


def encoder_mask(input_ids: Tensor, patches: int, pad_token_id: int) -> Tensor:
    """Additive mask over encoder positions, [B, 1, 1, L]: padding is not seen, every patch is."""
    text = (input_ids == pad_token_id).to(torch.float32) * MASKED
    return nn.functional.pad(text, (patches, 0))[:, None, None, :]


def absolute_bias(
    queries: Tensor, keys: Tensor, q_linear: nn.Linear, k_linear: nn.Linear, heads: int, config: OFAConfig
) -> Tensor:
    """Bias between positions [Q, D] and [K, D], from their embeddings alone: [H, Q, K]."""
    scale = query_scale(config.d_model, heads, config.attn_scale_factor)
    q, k = split_heads(q_linear(queries) * scale, heads), split_heads(k_linear(keys), heads)
    return q @ k.transpose(-1, -2)


def _bias_tables(layers: int, rows: int, heads: int) -> nn.ModuleList:
    tables = nn.ModuleList(nn.Embedding(rows, heads) for _ in range(layers))
    for table in tables:
        nn.init.zeros_(table.weight)  # type: ignore[arg-type]
    return tables
