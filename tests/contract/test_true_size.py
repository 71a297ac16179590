"""OFA-base at its true shape, with random weights: what a small model cannot show."""

from pathlib import Path

import pytest

from ofa_triton.artefacts import ExportManifest
from ofa_triton.checkpoint import checkpoint_from_directory
from ofa_triton.export import export_checkpoint
from tests.checkpoints import write_checkpoint

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

BASE = {
    "d_model": 768,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_attention_heads": 12,
    "decoder_attention_heads": 12,
    "encoder_ffn_dim": 3072,
    "decoder_ffn_dim": 3072,
    "resnet_type": "resnet101",
}
STAGES = ("vision_encoder", "text_encoder", "fusion_head")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base")
    write_checkpoint(path / "checkpoint", config=BASE, patch_image_size=480, max_src_length=80)
    export_checkpoint(checkpoint_from_directory(path / "checkpoint"), path / "onnx")
    return path / "onnx"


@pytest.mark.parametrize("name", STAGES)
def test_file_and_resident_memory_stay_near_the_weights(export: Path, name: str) -> None:
    stage = ExportManifest.model_validate_json((export / "manifest.json").read_bytes()).stages[name]
    ratios = {
        "file": stage.bytes / stage.weight_bytes,
        "loaded": stage.resident_bytes / stage.weight_bytes,
    }
    assert ratios["file"] <= 1.3
    assert ratios["loaded"] <= 3  # ONNX Runtime keeps convolution weights reordered beside the file's
    assert stage.largest_difference <= 1e-4
