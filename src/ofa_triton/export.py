"""From a checkpoint to one ONNX file per stage, each compared with PyTorch before it counts as exported."""

import logging
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import torch
from torch import nn

import ofa_triton
from ofa_triton.artefacts import PREPROCESS_DIRECTORY, ExportManifest, StageFile
from ofa_triton.checkpoint import Checkpoint
from ofa_triton.contract import DTYPES, Axis, Stage
from ofa_triton.errors import ContractError
from ofa_triton.files import MANIFEST, replaced_directory, sha256
from ofa_triton.memory import resident_bytes
from ofa_triton.ofa.model import OFAModel
from ofa_triton.ofa.stages import FusionHeadStage, TextEncoderStage, VisionEncoderStage
from ofa_triton.ofa.weights import model_from_tensors, tensors_from_file
from ofa_triton.parity import check_stage, example_inputs
from ofa_triton.preprocessing.request import SETTINGS_FILE
from ofa_triton.preprocessing.tokenizer import TOKENIZER_FILES

OPSET = 18
TRACED_BATCH = 2
"""Batch size of the trace; 1 would be taken for a constant."""

Progress = Callable[[str], None]


def export_checkpoint(checkpoint: Checkpoint, out: Path, progress: Progress = lambda _: None) -> ExportManifest:
    """Export every stage of `checkpoint` into the directory `out`, which is replaced only when all is well.

    Args:
        progress: told what is being done.

    Raises:
        CheckpointError: the weights do not fit.
        ContractError: a stage's tensors are not those of the contract.
        ParityError: a stage answers differently from PyTorch.
    """
    contract = checkpoint.contract
    with replaced_directory(out) as directory:
        progress(f"reading {checkpoint.weights.name}")
        model = model_from_tensors(checkpoint.config, tensors_from_file(checkpoint.weights), checkpoint.weights)
        modules = stage_modules(checkpoint, model)
        stages = {}
        for stage in contract.exported:
            progress(f"exporting {stage.name}")
            path = directory / f"{stage.name}.onnx"
            export_stage(modules[stage.name], stage, path)
            progress(f"comparing {stage.name} with PyTorch")
            difference = check_stage(modules[stage.name], stage, path, contract.geometry.batch)
            stages[stage.name] = StageFile(
                file=path.name,
                sha256=sha256(path),
                bytes=sum(file.stat().st_size for file in directory.glob(f"{path.name}*")),
                weight_bytes=_weight_bytes(model, stage.name),
                resident_bytes=resident_bytes(path),
                largest_difference=difference,
            )
        _write_preprocess(checkpoint, directory / PREPROCESS_DIRECTORY)
        manifest = ExportManifest(
            version=ofa_triton.__version__,
            checkpoint=str(checkpoint.path.resolve()),
            fingerprint=checkpoint.fingerprint,
            task=checkpoint.task,
            answers=checkpoint.answers,
            labels=checkpoint.labels,
            pad_token_id=checkpoint.config.pad_token_id,
            geometry=contract.geometry,
            stages=stages,
        )
        (directory / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    return manifest


def stage_modules(checkpoint: Checkpoint, model: OFAModel) -> dict[str, nn.Module]:
    """The stages of `checkpoint` as PyTorch modules, ready to trace."""
    longest = checkpoint.geometry.text.max
    with torch.no_grad():
        return {
            "vision_encoder": VisionEncoderStage(model, *checkpoint.normalisation).eval(),
            "text_encoder": TextEncoderStage(model, checkpoint.grid, longest).eval(),
            "fusion_head": FusionHeadStage(
                model,
                checkpoint.grid,
                longest,
                checkpoint.answer_ids(),
                repeats_source=checkpoint.model.prompt_type == "prev_output",
            ).eval(),
        }


def export_stage(module: nn.Module, stage: Stage, path: Path) -> None:
    """Trace one stage to ONNX with dynamic batch and text length, and check its tensors against the contract.

    Raises:
        ContractError: names the tensor that differs.
    """
    lengths = {axis.name: axis.opt for axis in stage.axes().values()}
    inputs = example_inputs(stage, TRACED_BATCH, lengths, seed=0)
    with _quiet_exporter():
        program = torch.onnx.export(
            module,
            tuple(torch.from_numpy(inputs[spec.name]) for spec in stage.inputs),
            input_names=[spec.name for spec in stage.inputs],
            output_names=[spec.name for spec in stage.outputs],
            dynamic_shapes=tuple(_dynamic_shapes(stage)),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    program.save(str(path))
    _check_tensors(stage, path)


def _dynamic_shapes(stage: Stage) -> list[dict[int, torch.export.Dim]]:
    batch = torch.export.Dim("batch", min=1)
    named = {axis.name: torch.export.Dim(axis.name, min=axis.min, max=axis.max) for axis in stage.axes().values()}
    return [
        {0: batch}
        | {
            number: named[dim.name] + dim.offset if dim.offset else named[dim.name]
            for number, dim in enumerate(spec.dims, start=1)
            if isinstance(dim, Axis)
        }
        for spec in stage.inputs
    ]


def _check_tensors(stage: Stage, path: Path) -> None:
    graph = onnx.load(str(path), load_external_data=False).graph
    for role, found, specs in (("input", graph.input, stage.inputs), ("output", graph.output, stage.outputs)):
        names = [value.name for value in found]
        if names != [spec.name for spec in specs]:
            raise ContractError(
                f"{path.name}: the {role}s are {names}; the contract says {[spec.name for spec in specs]}. "
                f"An unused input is dropped by the exporter: see ofa/stages.py."
            )
        for value, spec in zip(found, specs, strict=True):
            tensor = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            name = next((name for name, known in DTYPES.items() if known == dtype), str(dtype))
            shape = tuple(0 if dim.dim_param else dim.dim_value for dim in tensor.shape.dim)
            spec.require(path.name, name, shape)
            fixed = [
                size
                for size, dim in zip(shape, ("batch", *spec.dims), strict=True)
                if size and not isinstance(dim, int)
            ]
            if fixed:
                raise ContractError(
                    f"{path.name}: tensor {spec.name!r} has a fixed length {fixed} on an axis that varies."
                )


def _weight_bytes(model: nn.Module, stage: str) -> int:
    """Bytes in fp32 of the checkpoint's parameters that a stage reads."""
    tower = ("encoder.embed_images.", "encoder.image_proj.", "encoder.patch_layernorm_embedding.")
    embedding = "encoder.embed_tokens."
    total = 0
    for name, parameter in model.named_parameters():
        stages = {
            "vision_encoder": name.startswith(tower),
            "text_encoder": name.startswith("encoder.") and not name.startswith(tower),
            "fusion_head": name.startswith(("decoder.", embedding)),
        }
        total += parameter.numel() * 4 if stages[stage] else 0
    return total


def _write_preprocess(checkpoint: Checkpoint, directory: Path) -> None:
    directory.mkdir()
    (directory / SETTINGS_FILE).write_text(checkpoint.preprocess_settings.model_dump_json(indent=1) + "\n")
    for name in TOKENIZER_FILES:
        shutil.copy2(checkpoint.path / name, directory / name)


@contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep the exporter's notes about packages we do not use out of a user's way."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
