"""No term of the model hides below the tolerance: dropping any one parameter breaks the agreement with ModelScope."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ofa_triton.ofa.config import OFAConfig
from ofa_triton.ofa.model import OFAModel

from . import product
from .checkpoints import Checkpoints
from .client import Oracle
from .conftest import Differences
from .test_model import LOGITS_LIMIT, STATES_LIMIT, rows_of_tokens

VISIBLE = 10
"""A dropped term must move an output by this many times its limit."""

# A key's bias adds the same to a query's score of every key, and softmax takes it out again.
KEY_BIASES = ("k_proj.bias", "pos_k_linear.bias")
# Parts of the decoder that only text-to-image reads.
DRAWING = (
    "decoder.embed_image_positions.",
    "decoder.image_pos_ln.",
    "decoder.image_rel_pos_table_list.",
    "decoder.code_layernorm_embedding.",
)

SHAPE = OFAConfig(
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    resnet_type="resnet18",
)
with torch.device("meta"):
    NAMES = [name for name in OFAModel(SHAPE).state_dict() if not name.endswith("num_batches_tracked")]
NAMES.remove("decoder.embed_tokens.weight")  # tied: the encoder's


class Judged(NamedTuple):
    """One batch, our model, and what the reference makes of the batch."""

    model: OFAModel
    arrays: dict[str, NDArray]
    reference: dict[str, NDArray]


@pytest.fixture(scope="module")
def judged(oracle: Oracle, checkpoints: Checkpoints) -> Judged:
    path = checkpoints(seed=20)
    rng = np.random.default_rng(20)
    arrays = {
        "pixels": rng.standard_normal((2, 3, 48, 64), np.float32),
        "input_ids": rows_of_tokens(rng, [9, 6]),
        "decoder_ids": rows_of_tokens(rng, [5, 5]),
    }
    return Judged(product.model_from_checkpoint(path), arrays, oracle("forward", arrays, path=str(path)).arrays)


def test_whole_model_agrees(judged: Judged) -> None:
    assert _excess(judged) <= 1


@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith(KEY_BIASES)])
def test_dropped_term_is_noticed(name: str, judged: Judged) -> None:
    with _dropped(judged.model, name):
        excess = _excess(judged)
    assert excess > VISIBLE, f"{name}: the outputs do not feel it ({excess:.2g} limits)"


def test_terms_without_effect(judged: Judged) -> None:
    names = [name for name in NAMES if name.endswith(KEY_BIASES)]
    assert len(names) == 2 + 4 + 1 + 2  # encoder and decoder layers, their position keys
    for name in names:
        with _dropped(judged.model, name):
            assert _excess(judged) <= 1, name


def test_reference_feels_exactly_the_terms_we_have(
    judged: Judged, oracle: Oracle, checkpoints: Checkpoints, differences: Differences
) -> None:
    effects = oracle("effects", judged.arrays, path=str(checkpoints(seed=20))).result
    silent = {name for name, effect in effects.items() if effect <= STATES_LIMIT}
    expected = {name for name in effects if name.endswith(KEY_BIASES) or name.startswith(DRAWING)}
    assert silent == expected
    tied = {"decoder.embed_tokens.weight", "decoder.output_projection.weight"}
    assert set(effects) - tied - {name for name in effects if name.startswith(DRAWING)} == set(NAMES)


@contextmanager
def _dropped(model: OFAModel, name: str) -> Iterator[None]:
    """The model as if it had never heard of a tensor: additive ones 0, factors 1, and matrices a tenth off."""
    tensor = model.state_dict()[name]
    kept = tensor.clone()
    is_embedding = "table" in name or ("embed" in name and "embed_images." not in name and tensor.dim() == 2)
    if name.endswith(("bias", "running_mean")) or is_embedding:
        tensor.zero_()
    elif tensor.dim() == 1:
        tensor.fill_(1)
    else:
        tensor.mul_(1 + 0.1 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0)))
    assert not torch.equal(tensor, kept), f"{name}: already neutral in the checkpoint"
    try:
        yield
    finally:
        tensor.copy_(kept)


def _excess(judged: Judged) -> float:
    """The largest difference from the reference, in units of its limit."""
    ours = product.forward(judged.model, **judged.arrays)
    read = ~judged.reference["padding"]
    states = np.abs(ours.states - judged.reference["states"])[read].max() / STATES_LIMIT
    logits = np.abs(ours.logits - judged.reference["logits"]).max() / LOGITS_LIMIT
    return float(max(states, logits))
