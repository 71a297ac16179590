import re
import shutil
from pathlib import Path

import pytest

import ofa_triton.repository as repository_module
from ofa_triton.engines import engines_from_export, target_from_name, target_names
from ofa_triton.errors import BuildError
from ofa_triton.repository import config_from_file, repository_from_engines
from ofa_triton.resources import resource

MODELS = ["preprocess", "vision_encoder", "text_encoder", "fusion_head", "visual_entailment"]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Copies of the policies and the wiring, to be broken."""
    for name in ("models", "ensemble"):
        shutil.copytree(resource(name), tmp_path / name)
    monkeypatch.setattr(repository_module, "resource", lambda name: tmp_path / name)
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert re.search(old, text)
    path.write_text(re.sub(old, new, text, count=1))


def test_every_model_has_policy_tensors_and_files(built: Path) -> None:
    root = built / "repository"
    assert sorted(path.name for path in root.iterdir() if path.is_dir()) == sorted(MODELS)
    for name in MODELS:
        config = config_from_file(root / name / "config.pbtxt")
        assert config.max_batch_size == 8
        assert config.input
        assert config.output
    assert (root / "fusion_head" / "labels.txt").read_text().split() == ["entailment", "contradiction", "neutral"]
    assert {path.name for path in (root / "preprocess" / "1").iterdir()} == {
        "model.py",
        "preprocess.json",
        "vocab.json",
        "merges.txt",
    }
    assert [path.name for path in (root / "text_encoder" / "1").iterdir()] == ["model.onnx"]


def test_policies_are_kept(built: Path) -> None:
    config = config_from_file(built / "repository" / "text_encoder" / "config.pbtxt")
    assert config.backend == "onnxruntime"
    assert config.HasField("dynamic_batching")
    assert [(group.count, group.kind) for group in config.instance_group] == [(1, config.instance_group[0].KIND_CPU)]


def test_no_stage_that_can_fail_is_cached() -> None:
    for path in resource("models").glob("*/config.pbtxt"):
        assert not config_from_file(path).response_cache.enable


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("ensemble", 'model_name: "text_encoder"', 'model_name: "text"', "step 'text': there is no such model"),
        ("ensemble", 'value: "image_embeds" }\n  }\n  step', 'value: "x" }\n  }\n  step', "nothing before it gives"),
        ("ensemble", 'input_map { key: "HYPOTHESIS" .*}', "", "step 'preprocess': nothing feeds HYPOTHESIS"),
        ("ensemble", 'key: "PREMISE"', 'key: "PREMISES"', "the model takes no input 'PREMISES'"),
        ("ensemble", 'output_map { key: "SCORES"', 'output_map { key: "S"', "gives no 'S', but SCORES"),
        ("ensemble", r'value: "pixel_values" }(?=\n    output_map { key: "image)', 'value: "input_ids" }', "differ"),
        ("ensemble", "max_batch_size: 8", "max_batch_sise: 8", r"config.pbtxt: 4:1 : .*max_batch_sise"),
        ("text_encoder", "max_batch_size: 8", "max_batch_size: 4", "takes batches of 4, the ensemble of 8"),
        ("text_encoder", "max_batch_size: 8", "max_batch_size: 16", "max_batch_size 16 is more than the 8"),
        ("text_encoder", 'name: "text_encoder"', 'name: "text"', "must be named 'text_encoder'"),
    ],
)  # fmt: skip
def test_disagreement_is_refused(built: Path, sources: Path, file: str, old: str, new: str, message: str) -> None:
    folder = sources / ("ensemble/visual_entailment" if file == "ensemble" else f"models/{file}")
    replace(folder / "config.pbtxt", old, new)
    with pytest.raises(BuildError, match=message):
        repository_from_engines(built / "engines" / "cpu", sources / "out")
    assert not (sources / "out").exists()


def test_unknown_target_names_the_known_ones(built: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"there is no target 'sm99'; there are .*cpu"):
        engines_from_export(built / "onnx", tmp_path, "sm99")


def test_missing_engines_are_described(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="Run 'ofa-triton engines' first"):
        repository_from_engines(tmp_path, tmp_path / "repository")


def test_every_recipe_is_valid() -> None:
    for name in target_names():
        assert target_from_name(name).stages.keys() == {"vision_encoder", "text_encoder", "fusion_head"}
