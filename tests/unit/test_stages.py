"""The stages cut for export against the plain model they come from."""

import pytest
import torch
from torch import Tensor

from ofa_triton.ofa.model import OFAModel, encoder_mask
from ofa_triton.ofa.positions import image_buckets, token_buckets
from ofa_triton.ofa.stages import FusionHeadStage, TextEncoderStage, VisionEncoderStage
from tests.checkpoints import random_model

GRID = (3, 4)
PATCHES = GRID[0] * GRID[1]
LONGEST = 48
ANSWERS = [4420, 117, 2085]


VARIANTS = {
    "plain": {},
    "scaled branches": {"use_gamma_feature": True},
    "one table": {"share_attn_bias": True},
    "entangled": {"entangle_position_embedding": True},
    "resized positions": {"interpolate_position": True, "orig_patch_image_size": 32},
    "ofasys": {"use_ofasys": True},
    "ofasys, entangled, scaled": {
        "use_ofasys": True,
        "entangle_position_embedding": True,
        "use_gamma_feature": True,
    },
}


@pytest.fixture(scope="module", params=VARIANTS.values(), ids=list(VARIANTS))
def model(request: pytest.FixtureRequest) -> OFAModel:
    return random_model(seed=3, **request.param)


def texts(*lengths: int, padded: int) -> Tensor:
    torch.manual_seed(sum(lengths))
    ids = torch.ones(len(lengths), padded, dtype=torch.int32)
    for row, length in zip(ids, lengths, strict=True):
        row[:length] = torch.randint(4, 5000, (length,))
        row[0], row[length - 1] = 0, 2
    return ids


@torch.no_grad()
def test_vision_encoder_normalises_like_the_reference(model: OFAModel) -> None:
    pixels = torch.randint(0, 256, (2, 48, 64, 3), dtype=torch.uint8)
    mean, std = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    expected, grid = model.encoder.embed_pixels(((pixels / 255 - mean) / std).permute(0, 3, 1, 2))
    assert grid == (3, 4)
    torch.testing.assert_close(VisionEncoderStage(model, mean.tolist(), std.tolist())(pixels), expected)


@torch.no_grad()
@pytest.mark.parametrize("padded", [16, 32, 48, 37])
def test_text_encoder_equals_the_model(model: OFAModel, padded: int) -> None:
    ids, image = texts(padded, 7, 13, padded=padded), torch.randn(3, PATCHES, 32)
    found = TextEncoderStage(model, GRID, LONGEST)(image, ids)
    seen = torch.cat([torch.ones(3, PATCHES, dtype=torch.bool), ids != 1], 1)
    torch.testing.assert_close(found[seen], model.encoder.encode(image, ids, GRID)[seen])


@torch.no_grad()
@pytest.mark.parametrize("repeats_source", [True, False])
def test_fusion_head_equals_the_model(model: OFAModel, repeats_source: bool) -> None:
    lengths = (16, 7, 13)
    ids, image = texts(*lengths, padded=16), torch.randn(3, PATCHES, 32)
    prompt = ids if repeats_source else torch.zeros(3, 1, dtype=torch.int32)
    rows = [length - 2 for length in lengths] if repeats_source else [0, 0, 0]
    logits = model.logits(image, GRID, ids, prompt)[range(3), rows][:, ANSWERS]
    head = FusionHeadStage(model, GRID, LONGEST, ANSWERS, repeats_source=repeats_source)
    found = head(model.encoder.encode(image, ids, GRID), ids)
    torch.testing.assert_close(found, logits.softmax(-1))


@torch.no_grad()
def test_padding_and_batch_mates_change_nothing(model: OFAModel) -> None:
    encoder = TextEncoderStage(model, GRID, LONGEST)
    head = FusionHeadStage(model, GRID, LONGEST, ANSWERS, repeats_source=True)
    image = torch.randn(3, PATCHES, 32)
    lengths = (9, 16, 30)
    together = texts(*lengths, padded=48)
    scores = head(encoder(image, together), together)
    for row, length in enumerate(lengths):
        alone = together[row : row + 1, :length]
        torch.testing.assert_close(head(encoder(image[row : row + 1], alone), alone)[0], scores[row])


@torch.no_grad()
def test_pad_tokens_inside_a_text_do_not_end_it(model: OFAModel) -> None:
    ids, image = texts(12, padded=16), torch.randn(1, PATCHES, 32)
    ids[0, 5] = 1
    logits = model.logits(image, GRID, ids, ids)[0, 10, ANSWERS]
    head = FusionHeadStage(model, GRID, LONGEST, ANSWERS, repeats_source=True)
    torch.testing.assert_close(head(model.encoder.encode(image, ids, GRID), ids)[0], logits.softmax(-1))


def test_masks_hide_padding_and_nothing_else() -> None:
    mask = encoder_mask(torch.tensor([[0, 5, 2, 1]]), 2, 1)
    assert mask.flatten().tolist() == [0, 0, 0, 0, 0, -1e4]


def test_token_buckets_are_exact_near_and_logarithmic_far() -> None:
    buckets = token_buckets(1024, 256)
    assert buckets.min() == 0
    assert buckets.max() == 510
    assert buckets[5, 2] == 255 + 3
    assert buckets[2, 5] == 255 - 3
    assert buckets[128, 0] == 255 + 128
    assert (buckets + buckets.T == 510).all()


def test_image_buckets_depend_on_steps_alone() -> None:
    buckets = image_buckets(3, 4, 42)
    assert buckets[0, 0] == buckets[7, 7] == 41 * 83 + 41
    assert buckets[5, 0] == 42 * 83 + 42
    assert buckets[0, 5] == 40 * 83 + 40
