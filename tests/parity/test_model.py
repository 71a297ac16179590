"""Encoder states, position embeddings and logits of OFAModel."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ofa_triton.ofa.positions import image_buckets, token_buckets

from . import product
from .checkpoints import Checkpoints
from .client import Oracle
from .conftest import Differences

STATES_LIMIT = 1e-5
LOGITS_LIMIT = 5e-5
VOCABULARY = 59457


@dataclass(frozen=True)
class Case:
    """A checkpoint and a batch: `text` and `decoder` are the lengths of its rows, `pixels` height and width."""

    pixels: tuple[int, int]
    text: Sequence[int]
    decoder: Sequence[int]
    seed: int = 0
    text_padded_to: int = 0
    with_derived: bool = False
    config: dict[str, Any] = field(default_factory=dict)


HUGE_HEADS = {"d_model": 160, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
ENTANGLED = {"entangle_position_embedding": True}
RESIZED = {"interpolate_position": True, "orig_patch_image_size": 64}
OFASYS = {"use_ofasys": True}

CASES = {
    "one row": Case((64, 64), [7], [5]),
    "hub's own file, with derived tensors": Case((64, 64), [9], [4], seed=1, with_derived=True),
    "shortest text": Case((64, 64), [2], [1]),
    "three rows, unequal": Case((96, 96), [9, 6, 13], [4, 7, 5], seed=2, config={"resnet_type": "resnet50"}),
    "padded further than any row": Case((64, 64), [9, 6, 13], [7, 7, 7], text_padded_to=32),
    "wide, resnet101": Case((96, 160), [12], [9], seed=3, config={"resnet_type": "resnet101"}),
    "tall and odd, resnet50": Case((203, 100), [5, 30], [3, 8], seed=4, config={"resnet_type": "resnet50"}),
    "resnet34": Case((64, 64), [8], [4], seed=5, config={"resnet_type": "resnet34"}),
    "resnet152": Case((64, 64), [8], [4], seed=6, config={"resnet_type": "resnet152"}),
    "large grid": Case((336, 384), [8, 3], [4, 4], seed=7),
    "long text beside short": Case((64, 64), [200, 3, 57], [8, 2, 5], seed=8),
    "long prompt": Case((64, 64), [200], [199], seed=9),
    "text beyond every near bucket": Case((32, 32), [900], [4], seed=10),
    "other heads, width and depth": Case(
        (64, 80),
        [11, 4],
        [6, 3],
        seed=11,
        config={
            "d_model": 96,
            "encoder_layers": 3,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 6,
            "encoder_ffn_dim": 160,
            "decoder_ffn_dim": 224,
        },
    ),
    "other tables and scale": Case(
        (64, 64),
        [90],
        [50],
        seed=12,
        config={
            "token_bucket_size": 64,
            "image_bucket_size": 12,
            "max_position_embeddings": 128,
            "attn_scale_factor": 1.0,
        },
    ),
    "head width of huge": Case((64, 64), [9, 5], [4, 6], seed=13, config=HUGE_HEADS),
    "scaled branches": Case((64, 64), [9, 5], [4, 6], seed=14, config={"use_gamma_feature": True}),
    "one table for all layers": Case((64, 64), [9, 5], [4, 6], seed=15, config={"share_attn_bias": True}),
    "entangled positions": Case((64, 96), [9, 5], [4, 6], seed=16, config=ENTANGLED),
    "entangled in the encoder alone": Case(
        (64, 64), [9, 5], [4, 6], seed=17, config=ENTANGLED | {"disable_entangle": True}
    ),
    "positions resized to a larger grid": Case((96, 128), [9], [4], seed=18, config=RESIZED),
    "positions not resized to a smaller grid": Case((48, 64), [9], [4], seed=18, config=RESIZED),
    "vit_base, native": Case((224, 224), [9, 5], [4, 6], seed=19, config=OFASYS),
    "vit_base, larger": Case((256, 256), [9], [4], seed=19, config=OFASYS),
    "vit_base, odd and oblong": Case((100, 230), [9], [4], seed=19, config=OFASYS),
    "vit_base, entangled": Case((224, 224), [9, 5], [4, 6], seed=20, config=OFASYS | ENTANGLED),
    "vit_base, entangled, scaled, one table": Case(
        (192, 192),
        [9, 5],
        [4, 6],
        seed=21,
        config=OFASYS | ENTANGLED | {"use_gamma_feature": True, "share_attn_bias": True},
    ),
    "vit_large": Case((280, 280), [9], [4], seed=22, config=OFASYS | {"vit_type": "vit_large"}),
    "vit_large_336": Case((336, 336), [9], [4], seed=23, config=OFASYS | ENTANGLED | {"vit_type": "vit_large_336"}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_states_and_logits(case: Case, oracle: Oracle, checkpoints: Checkpoints, differences: Differences) -> None:
    path = checkpoints(seed=case.seed, config=case.config, with_derived=case.with_derived)
    rng = np.random.default_rng(case.seed)
    arrays = {
        "pixels": rng.standard_normal((len(case.text), 3, *case.pixels), np.float32),
        "input_ids": rows_of_tokens(rng, case.text, case.text_padded_to),
        "decoder_ids": rows_of_tokens(rng, case.decoder),
    }
    reference = oracle("forward", arrays, path=str(path)).arrays
    ours = product.forward(product.model_from_checkpoint(path), **arrays)
    read = ~reference["padding"]
    written = arrays["decoder_ids"] != 1
    differences.check("model: encoder states", ours.states[read], reference["states"][read], STATES_LIMIT)
    positions = np.broadcast_to(ours.positions, reference["positions"].shape)
    differences.check("model: position embeddings", positions, reference["positions"], STATES_LIMIT)
    differences.check("model: logits", ours.logits[written], reference["logits"][written], LOGITS_LIMIT)


def test_every_bucket_of_the_hubs_own_tables(checkpoints: Checkpoints) -> None:
    tensors = torch.load(checkpoints(seed=1, with_derived=True) / "pytorch_model.bin", weights_only=True)
    for side in ("encoder", "decoder"):
        assert torch.equal(token_buckets(1024, 256), tensors[f"{side}.token_rp_bucket"])
    assert torch.equal(image_buckets(42, 42, 42), tensors["encoder.image_rp_bucket"][1:, 1:])


def rows_of_tokens(rng: np.random.Generator, lengths: Sequence[int], padded_to: int = 0) -> NDArray[np.int32]:
    """Random sentences from beginning to end token, right-padded: INT32 [len(lengths), longest or `padded_to`]."""
    ids = np.ones((len(lengths), max(padded_to, max(lengths))), np.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = rng.integers(4, VOCABULARY, length)
        row[0] = 0
        if length > 1:
            row[length - 1] = 2
    return ids
