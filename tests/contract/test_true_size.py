"""OFA-base at its true shape, with random weights: what a small model cannot show."""

import json
import subprocess
import sys
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

RESIDENT = """
import json, sys
from pathlib import Path
import psutil
from ofa_triton.artefacts import manifest_from_export
from ofa_triton.onnx_stage import OnnxStage
from ofa_triton.parity import example_inputs

export, name = Path(sys.argv[1]), sys.argv[2]
inputs = example_inputs(manifest_from_export(export).contract.stage(name), 1, {"text": 32}, 0)
before = psutil.Process().memory_info().rss
stage = OnnxStage(export / f"{name}.onnx")
loaded = psutil.Process().memory_info().rss - before
for _ in range(3):
    stage.run(inputs)
print(json.dumps({"loaded": loaded, "running": psutil.Process().memory_info().rss - before}))
"""


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base")
    write_checkpoint(path / "checkpoint", config=BASE, patch_image_size=480, max_src_length=80)
    export_checkpoint(checkpoint_from_directory(path / "checkpoint"), path / "onnx")
    return path / "onnx"


@pytest.mark.parametrize("name", STAGES)
def test_file_and_resident_memory_stay_near_the_weights(
    export: Path, name: str
) -> None:
    stage = ExportManifest.model_validate_json((export / "manifest.json").read_bytes()).stages[name]
    command = [sys.executable, "-c", RESIDENT, str(export), name]
    resident = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    ratios = {key: size / stage.weight_bytes for key, size in (resident | {"file": stage.bytes}).items()}
    print(f"{name}: weights {stage.weight_bytes / 1e6:.0f} MB, " + ", ".join(f"{k} {v:.2f}x" for k, v in ratios.items()))  # noqa: T201
    assert ratios["file"] <= 1.3
    assert ratios["loaded"] <= 3  # ONNX Runtime keeps convolution weights reordered beside the file's
    assert stage.largest_difference <= 1e-4
