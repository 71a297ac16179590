"""``config.json`` of an OFA checkpoint: the numbers that shape the network."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from ofa_triton.errors import CheckpointError

RESNET_BLOCKS = {
    "resnet18": (2, 2, 2),
    "resnet34": (3, 4, 6),
    "resnet50": (3, 4, 6),
    "resnet101": (3, 4, 23),
    "resnet152": (3, 8, 36),
}
"""Bottleneck blocks in the three stages OFA keeps. The 18 and 34 names build bottlenecks too."""

RESNET_STRIDE = 16
"""Pixels of the picture per patch of a ResNet tower, each way."""

RESNET_WIDTH = 1024


class VitShape(NamedTuple):
    """Lengths of a ViT tower: the picture side it was trained at and its patch in pixels, width, layers and heads."""

    native: int
    patch: int
    width: int
    layers: int
    heads: int


VIT_SHAPES = {
    "vit_base": VitShape(224, 16, 768, 9, 12),
    "vit_large": VitShape(224, 14, 1024, 18, 16),
    "vit_large_336": VitShape(336, 14, 1024, 18, 16),
    "vit_huge": VitShape(224, 14, 1280, 24, 16),
}
"""Towers of the checkpoints that come from OFA-Sys (``use_ofasys``)."""

_ONLY_SUPPORTED: dict[str, object] = {
    "activation_function": "gelu",
    "encoder_normalize_before": True,
    "decoder_normalize_before": True,
    "normformer": True,
    "layernorm_embedding": True,
    "patch_layernorm_embedding": True,
    "add_type_embedding": True,
    "share_decoder_input_output_embed": True,
    "use_image_feature": True,
    "scale_embedding": False,
}


Count = Annotated[int, Field(gt=0, le=10_000_000)]
"""A length or number of things; far beyond any model, so that a damaged file cannot ask for all memory."""


class OFAConfig(BaseModel):
    """The part of ``config.json`` that changes what the network computes.

    Defaults are those of ModelScope's ``OFAConfig``. Keys that matter only to training are ignored;
    a variant this package cannot run is refused, never run approximately.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    vocab_size: Count = 59457
    d_model: Count = 512
    encoder_layers: Count = 4
    decoder_layers: Count = 4
    encoder_attention_heads: Count = 8
    decoder_attention_heads: Count = 8
    encoder_ffn_dim: Count = 2048
    decoder_ffn_dim: Count = 2048
    max_position_embeddings: Count = 1024
    resnet_type: str = "resnet101"
    token_bucket_size: Count = 256
    image_bucket_size: Count = 42
    attn_scale_factor: float = Field(2.0, gt=0, allow_inf_nan=False)
    use_ofasys: bool = False
    vit_type: str = "vit_base"
    entangle_position_embedding: bool = False
    disable_entangle: bool = False
    use_gamma_feature: bool = False
    share_attn_bias: bool = False
    interpolate_position: bool = False
    orig_patch_image_size: Count = 224
    bos_token_id: Literal[0] = 0
    pad_token_id: Literal[1] = 1
    eos_token_id: Literal[2] = 2

    @field_validator("resnet_type")
    @classmethod
    def _known_resnet(cls, value: str) -> str:
        return _one_of(value, RESNET_BLOCKS)

    @field_validator("vit_type")
    @classmethod
    def _known_vit(cls, value: str) -> str:
        return _one_of(value, VIT_SHAPES)

    @model_validator(mode="after")
    def _heads_divide_width(self) -> Self:
        for heads in (self.encoder_attention_heads, self.decoder_attention_heads):
            if heads < 1 or self.d_model % heads:
                raise ValueError(f"d_model {self.d_model} is not a multiple of {heads} attention heads")
        return self

    @property
    def tower(self) -> str:
        """Name of the image tower."""
        return self.vit_type if self.use_ofasys else self.resnet_type

    @property
    def tower_width(self) -> int:
        """Channels that the image tower gives."""
        return VIT_SHAPES[self.vit_type].width if self.use_ofasys else RESNET_WIDTH

    @property
    def has_absolute_bias(self) -> bool:
        """Whether attention is biased by absolute positions; OFA-Sys models may have them in the embeddings alone."""
        return not (self.use_ofasys and self.entangle_position_embedding)

    def grid_side(self, image_size: int) -> int:
        """Image patches along one side of a square picture of `image_size` pixels.

        Raises:
            CheckpointError: there are none, or more than the image position table holds.
        """
        stride = VIT_SHAPES[self.vit_type].patch if self.use_ofasys else RESNET_STRIDE
        side = image_size // stride if self.use_ofasys else -(-image_size // stride)
        if not 1 <= side <= self.image_bucket_size:
            raise CheckpointError(
                f"patch_image_size {image_size} makes a {side} x {side} grid; the image position table holds 1 x 1 to "
                f"{self.image_bucket_size} x {self.image_bucket_size}. "
                f"From {stride} to {self.image_bucket_size * stride} pixels fit this checkpoint."
            )
        return side


def _one_of(value: str, known: Collection[str]) -> str:
    if value not in known:
        raise ValueError(f"unknown tower {value!r}; one of {', '.join(known)} is needed")
    return value


def config_from_json(data: dict[str, Any], source: Path) -> OFAConfig:
    """Check the parsed ``config.json`` of `source` and return the configuration.

    Raises:
        CheckpointError: not an OFA configuration, or a variant that cannot be run exactly.
    """
    model_type = data.get("model_type", "ofa")
    if model_type != "ofa":
        raise CheckpointError(
            f"{source}: model_type is {model_type!r}; an OFA checkpoint says 'ofa'. Give the directory of an OFA model."
        )
    odd = [
        f"{key}={data[key]!r} (only {only!r})"
        for key, only in _ONLY_SUPPORTED.items()
        if key in data and data[key] != only
    ]
    if odd:
        raise CheckpointError(f"{source}: this OFA variant is not supported yet: {', '.join(odd)}.")
    try:
        return OFAConfig.model_validate(data)
    except ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'values'}: {e['msg']}" for e in error.errors())
        raise CheckpointError(f"{source}: {details}") from error
