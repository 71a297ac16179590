import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from ofa_triton.artefacts import ExportManifest, manifest_from_export
from ofa_triton.checkpoint import Checkpoint, checkpoint_from_directory
from ofa_triton.contract import Contract
from ofa_triton.errors import BuildError, ContractError, ParityError
from ofa_triton.export import export_checkpoint, export_stage
from ofa_triton.onnx_stage import OnnxStage
from ofa_triton.parity import check_stage, example_inputs, largest_difference

STAGES = ("vision_encoder", "text_encoder", "fusion_head")
MEASURED = {"stages": {name: {"resident_bytes"} for name in STAGES}}


@pytest.fixture(scope="module")
def manifest(built: Path) -> ExportManifest:
    return manifest_from_export(built / "onnx")


@pytest.fixture(scope="module")
def checkpoint(checkpoint_path: Path) -> Checkpoint:
    return checkpoint_from_directory(checkpoint_path)


@pytest.mark.parametrize("name", STAGES)
def test_files_bear_the_contract_s_names_types_and_axes(built: Path, manifest: ExportManifest, name: str) -> None:
    graph = onnx.load(built / "onnx" / f"{name}.onnx").graph
    stage = manifest.contract.stage(name)
    for values, specs in ((graph.input, stage.inputs), (graph.output, stage.outputs)):
        assert [value.name for value in values] == [spec.name for spec in specs]
        for value, spec in zip(values, specs, strict=True):
            dims = value.type.tensor_type.shape.dim
            assert dims[0].dim_param == "batch"
            assert [dim.dim_value if dim.dim_value else -1 for dim in dims[1:]] == spec.triton_dims


@pytest.mark.parametrize("name", STAGES)
def test_file_is_at_most_a_third_larger_than_its_weights(manifest: ExportManifest, name: str) -> None:
    stage = manifest.stages[name]
    assert stage.bytes <= 1.3 * stage.weight_bytes


@pytest.mark.parametrize("name", STAGES)
def test_second_run_through_bound_buffers_equals_the_first(built: Path, manifest: ExportManifest, name: str) -> None:
    stage, contract = OnnxStage(built / "onnx" / f"{name}.onnx"), manifest.contract
    for batch, text in ((8, 48), (2, 16), (1, 32)):
        inputs = example_inputs(contract.stage(name), batch, {"text": text}, seed=batch)
        first = {key: value.copy() for key, value in stage.run(inputs).items()}
        for key, value in stage.run(inputs).items():
            assert np.array_equal(value, first[key])


@pytest.mark.parametrize("name", STAGES)
def test_a_row_is_the_same_alone_and_in_a_batch(built: Path, manifest: ExportManifest, name: str) -> None:
    stage, spec = OnnxStage(built / "onnx" / f"{name}.onnx"), manifest.contract.stage(name)
    inputs = example_inputs(spec, 5, {"text": 32}, seed=9)
    (output,) = (value.copy() for value in stage.run(inputs).values())
    for row in range(5):
        (alone,) = stage.run({key: value[row : row + 1] for key, value in inputs.items()}).values()
        ids = inputs["input_ids"][row : row + 1] if "input_ids" in inputs else None
        assert largest_difference(alone, output[row : row + 1], ids) < 1e-5


def test_export_is_reproducible(checkpoint: Checkpoint, manifest: ExportManifest, tmp_path: Path) -> None:
    again = export_checkpoint(checkpoint, tmp_path / "again")
    assert again.model_dump(exclude=MEASURED) == manifest.model_dump(exclude=MEASURED)


def test_a_stage_that_differs_is_not_kept(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_bias(module: torch.nn.Module, stage: object, path: Path) -> None:
        if path.stem == "text_encoder":
            module.load_state_dict(module.state_dict() | {"relative_1": torch.zeros_like(module.relative_1)})
        export_stage(module, stage, path)
        if path.stem == "text_encoder":
            module.load_state_dict(module.state_dict() | {"relative_1": torch.ones_like(module.relative_1)})
            module.relative_1[:, 3:].neg_()

    monkeypatch.setattr("ofa_triton.export.export_stage", without_bias)
    with pytest.raises(ParityError, match="text_encoder: output 'encoder_states' at batch"):
        export_checkpoint(checkpoint, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_nan_never_passes(built: Path, manifest: ExportManifest) -> None:
    class Broken(torch.nn.Module):
        def forward(self, encoder_states: torch.Tensor, input_ids: torch.Tensor) -> torch.Tensor:
            return torch.full((len(encoder_states), 3), float("nan"))

    stage = manifest.contract.fusion_head
    with pytest.raises(ParityError, match="differs from PyTorch by inf"):
        check_stage(Broken(), stage, built / "onnx" / "fusion_head.onnx", manifest.geometry.batch)


class Wrong(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        embeds = pixel_values.flatten(1).float().mean(1)[:, None, None].expand(-1, 16, 32) + torch.zeros(16, 32)
        return {"type": embeds.double(), "shape": embeds[:, :9], "rank": embeds[:, :, 0]}[self.kind]


@pytest.mark.parametrize(
    ("kind", "found"), [("type", "float64|FP64"), ("shape", r"\[0, 9, 32\]"), ("rank", r"\[0, 16\]")]
)
def test_a_stage_off_the_contract_is_refused(checkpoint: Checkpoint, tmp_path: Path, kind: str, found: str) -> None:
    with pytest.raises(ContractError, match=f"'image_embeds' is .*({found}).*the contract says FP32"):
        export_stage(Wrong(kind), checkpoint.contract.vision_encoder, tmp_path / "vision_encoder.onnx")


def test_export_without_a_manifest_is_described(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="Run 'ofa-triton export CHECKPOINT' first"):
        manifest_from_export(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"version": "0"}))
    with pytest.raises(BuildError, match="Run 'ofa-triton export' again"):
        manifest_from_export(tmp_path)


def test_axes_name_every_length_worth_checking(manifest: ExportManifest) -> None:
    geometry = manifest.geometry
    assert geometry.text.sizes() == [16, 32, 48]
    assert geometry.batch.sizes() == [1, 3, 4, 8]
    assert Contract(geometry).text_encoder.axes().keys() == {"text"}


def test_a_changed_file_is_not_built_from(built: Path, tmp_path: Path) -> None:
    from ofa_triton.engines import engines_from_export

    export = Path(shutil.copytree(built / "onnx", tmp_path / "onnx"))
    with (export / "text_encoder.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(BuildError, match="is not the file that was exported"):
        engines_from_export(export, tmp_path / "engines")
    assert not (tmp_path / "engines" / "cpu").exists()
