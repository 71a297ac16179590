"""A Triton model repository, rendered from three statements: policy, wiring and contract.

Protobuf's modules carry no types that a strict checker can use, so this is the one file that touches them.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from ofa_triton.contract import Stage, TensorSpec
from ofa_triton.engines import EnginesManifest, manifest_from_engines
from ofa_triton.errors import BuildError
from ofa_triton.files import MANIFEST, link_or_copy, replaced_directory
from ofa_triton.resources import resource

VERSION = "1"
LABELS_FILE = "labels.txt"

ModelConfig: TypeAlias = Any
"""A ``model_config_pb2.ModelConfig``."""


def repository_from_engines(engines: Path, out: Path) -> list[str]:
    """Write the repository of one target into `out`, which is replaced only when it is complete.

    Args:
        engines: the target's folder that ``ofa-triton engines`` made.

    Returns:
        Names of the models, in the order of the files.

    Raises:
        BuildError: policy, wiring and contract do not agree; says where.
    """
    manifest = manifest_from_engines(engines)
    configs = {config.name: config for config in _configs(manifest)}
    for config in configs.values():
        if config.platform == "ensemble":
            check_wiring(config, configs)
    with replaced_directory(out) as directory:
        for name, config in configs.items():
            model = directory / name
            (model / VERSION).mkdir(parents=True)
            (model / "config.pbtxt").write_text(text_format.MessageToString(config))
            for folder in (resource("models") / name / VERSION, engines / name):
                for file in sorted(folder.glob("*.*")):
                    # Sources are copied: a hand that edits the repository shall not reach them.
                    (shutil.copy2 if file.suffix == ".py" else link_or_copy)(file, model / VERSION / file.name)
            if any(output.label_filename for output in config.output):
                (model / LABELS_FILE).write_text("".join(f"{label}\n" for label in manifest.export.labels))
        (directory / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n")
    return list(configs)


def config_from_file(path: Path) -> ModelConfig:
    """Read a ``config.pbtxt``.

    Raises:
        BuildError: names line and column.
    """
    try:
        return text_format.Parse(path.read_text(), model_config_pb2.ModelConfig())
    except text_format.ParseError as error:
        raise BuildError(f"{path}: {error}") from error


def check_wiring(ensemble: ModelConfig, configs: dict[str, ModelConfig]) -> None:
    """Hold the wiring of an ensemble against the models it names.

    Raises:
        BuildError: names step and tensor.
    """
    tensors = {tensor.name: tensor for tensor in ensemble.input}
    for step in ensemble.ensemble_scheduling.step:
        where = f"ensemble {ensemble.name!r}, step {step.model_name!r}"
        model = configs.get(step.model_name)
        if model is None:
            raise BuildError(f"{where}: there is no such model. There are {', '.join(configs)}.")
        if model.max_batch_size < ensemble.max_batch_size:
            raise BuildError(
                f"{where}: takes batches of {model.max_batch_size}, the ensemble of {ensemble.max_batch_size}. "
                f"Raise max_batch_size in models/{model.name}/config.pbtxt."
            )
        inputs = {tensor.name: tensor for tensor in model.input}
        unmapped = [name for name, tensor in inputs.items() if not tensor.optional and name not in step.input_map]
        if unmapped:
            raise BuildError(f"{where}: nothing feeds {', '.join(unmapped)}. Add input_map entries.")
        for name, source in step.input_map.items():
            _check_link(where, name, inputs.get(name), source, tensors.get(source))
        outputs = {tensor.name: tensor for tensor in model.output}
        for name, target in step.output_map.items():
            if name not in outputs:
                raise BuildError(f"{where}: the model gives no {name!r}, but {', '.join(outputs)}.")
            tensors[target] = outputs[name]
    for output in ensemble.output:
        _check_link(f"ensemble {ensemble.name!r}", output.name, output, output.name, tensors.get(output.name))


def _check_link(where: str, name: str, wanted: Any, source: str, given: Any) -> None:
    if wanted is None:
        raise BuildError(f"{where}: the model takes no input {name!r}.")
    if given is None:
        raise BuildError(f"{where}: {name!r} is fed from {source!r}, which nothing before it gives.")
    if (wanted.data_type, list(wanted.dims)) != (given.data_type, list(given.dims)):
        raise BuildError(f"{where}: {name!r} and {source!r} differ in type or shape: {wanted} against {given}")


def _configs(manifest: EnginesManifest) -> Iterator[ModelConfig]:
    contract = manifest.export.contract
    for stage in (contract.preprocess, *contract.exported):
        path = resource("models") / stage.name / "config.pbtxt"
        config = _completed(path, stage)
        recipe = manifest.recipe.stages.get(stage.name)
        if recipe is not None:
            config.backend = recipe.engine
            for group in config.instance_group:
                group.kind = group.KIND_GPU if manifest.recipe.device == "gpu" else group.KIND_CPU
        if config.max_batch_size > contract.geometry.batch.max:
            raise BuildError(
                f"{path}: max_batch_size {config.max_batch_size} is more than the {contract.geometry.batch.max} that "
                f"the stages were exported and checked for. Lower it, or raise max_batch in contract.py."
            )
        yield config
    ensemble = _completed(
        resource("ensemble") / contract.visual_entailment.name / "config.pbtxt", contract.visual_entailment
    )
    for key, value in (("answers", manifest.export.answers), ("labels", manifest.export.labels)):
        ensemble.parameters[key].string_value = json.dumps(value, ensure_ascii=False)
    yield ensemble


def _completed(path: Path, stage: Stage) -> ModelConfig:
    config = config_from_file(path)
    if config.name != stage.name or config.input or config.output:
        raise BuildError(
            f"{path}: must be named {stage.name!r} and leave inputs and outputs to contract.py; it is named "
            f"{config.name!r} with {len(config.input)} inputs and {len(config.output)} outputs."
        )
    for spec in stage.inputs:
        config.input.add(name=spec.name, data_type=_type(spec), dims=spec.triton_dims, optional=spec.optional)
    for spec in stage.outputs:
        output = config.output.add(name=spec.name, data_type=_type(spec), dims=spec.triton_dims)
        if spec.labelled and config.platform != "ensemble":
            output.label_filename = LABELS_FILE
    return config


def _type(spec: TensorSpec) -> Any:
    return model_config_pb2.DataType.Value("TYPE_STRING" if spec.dtype == "BYTES" else f"TYPE_{spec.dtype}")
