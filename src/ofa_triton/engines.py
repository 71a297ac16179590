"""From exported stages to engines: what runs on one kind of device, by the recipe of a target."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ofa_triton.artefacts import ExportManifest, manifest_from_export
from ofa_triton.errors import BuildError
from ofa_triton.files import MANIFEST, link_or_copy, replaced_directory, sha256
from ofa_triton.resources import resource

ENGINE_FILES = {"onnxruntime": "model.onnx"}
"""What Triton's backend of each engine calls its file."""


class StageRecipe(BaseModel):
    """Engine and precision of one stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["onnxruntime"]
    precision: Literal["fp32"]


class Target(BaseModel):
    """One recipe of ``build/targets``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str
    device: Literal["cpu", "gpu"]
    stages: dict[str, StageRecipe]


class EnginesManifest(BaseModel):
    """What was built for one target, from which export."""

    model_config = ConfigDict(frozen=True)

    target: str
    recipe: Target
    export: ExportManifest


def target_names() -> list[str]:
    """Names of all recipes."""
    return sorted(path.stem for path in resource("targets").glob("*.toml"))


def target_from_name(name: str) -> Target:
    """Read a recipe.

    Raises:
        BuildError: there is none of that name, or it cannot be read.
    """
    path = resource("targets") / f"{name}.toml"
    if name not in target_names():
        raise BuildError(f"there is no target {name!r}; there are {', '.join(target_names())}.")
    try:
        return Target.model_validate(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, ValidationError) as error:
        raise BuildError(f"{path}: {error}") from error


def engines_from_export(
    export: Path, out: Path, name: str = "cpu", progress: Callable[[str], None] = lambda _: None
) -> EnginesManifest:
    """Build the engines of one target into ``out/name``.

    Raises:
        BuildError: nothing was exported, an exported file was changed since, or the recipe does not fit.
    """
    target = target_from_name(name)
    manifest = manifest_from_export(export)
    missing = [stage for stage in manifest.stages if stage not in target.stages]
    if missing:
        raise BuildError(
            f"target {name!r} says nothing of {', '.join(missing)}. Add [stages.{missing[0]}] to its recipe."
        )
    with replaced_directory(out / name) as directory:
        for stage, file in manifest.stages.items():
            progress(f"{stage}: {target.stages[stage].engine}, {target.stages[stage].precision}")
            source = export / file.file
            if not source.is_file() or sha256(source) != file.sha256:
                raise BuildError(f"{source}: is not the file that was exported. Run 'ofa-triton export' again.")
            for part in sorted(export.glob(f"{file.file}*")):
                kept = "model.onnx" if part == source else part.name
                link_or_copy(part, directory / stage / kept)
        for part in sorted((export / "preprocess").iterdir()):
            link_or_copy(part, directory / "preprocess" / part.name)
        built = EnginesManifest(target=name, recipe=target, export=manifest)
        (directory / MANIFEST).write_text(built.model_dump_json(indent=1) + "\n")
    return built


def manifest_from_engines(directory: Path) -> EnginesManifest:
    """Read the manifest of one target's engines.

    Raises:
        BuildError: nothing was built there.
    """
    file = directory / MANIFEST
    if not file.is_file():
        raise BuildError(f"{directory}: no engines. Run 'ofa-triton engines' first.")
    try:
        return EnginesManifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise BuildError(
            f"{file}: cannot be read ({error.error_count()} errors). Run 'ofa-triton engines' again."
        ) from error
