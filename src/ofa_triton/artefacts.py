"""What ``export`` leaves behind, described by one manifest: the input of every later step."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ofa_triton.contract import Contract, Geometry
from ofa_triton.errors import BuildError
from ofa_triton.files import MANIFEST

PREPROCESS_DIRECTORY = "preprocess"
"""Folder of the tokenizer's files and the preprocess settings."""


class StageFile(BaseModel):
    """One exported stage.

    Attributes:
        file: name of the ONNX file.
        sha256: of the file.
        bytes: its size, external data included.
        weight_bytes: of the checkpoint's parameters that the stage reads, in fp32.
        resident_bytes: memory that loading it takes.
        largest_difference: from PyTorch, over all sizes that were checked.
    """

    model_config = ConfigDict(frozen=True)

    file: str
    sha256: str
    bytes: int
    weight_bytes: int
    resident_bytes: int
    largest_difference: float


class ExportManifest(BaseModel):
    """The export of one checkpoint."""

    model_config = ConfigDict(frozen=True)

    version: str
    checkpoint: str
    fingerprint: str
    task: str
    answers: tuple[str, ...]
    labels: tuple[str, ...]
    pad_token_id: int
    geometry: Geometry
    stages: dict[str, StageFile]

    @property
    def contract(self) -> Contract:
        """Every tensor of the stages."""
        return Contract(self.geometry)


def manifest_from_export(directory: Path) -> ExportManifest:
    """Read the manifest of an export directory.

    Raises:
        BuildError: nothing was exported there, or by another version of this package.
    """
    file = directory / MANIFEST
    if not file.is_file():
        raise BuildError(f"{directory}: no exported stages. Run 'ofa-triton export CHECKPOINT' first.")
    try:
        return ExportManifest.model_validate_json(file.read_bytes())
    except ValidationError as error:
        raise BuildError(
            f"{file}: cannot be read ({error.error_count()} errors). Run 'ofa-triton export' again."
        ) from error
