"""Every tensor that travels between stages: name, type and axes. The one statement of them.

Export names and shapes its ONNX files by it, parity checks walk its axes, the model repository takes its inputs and
outputs from it, and clients read them from the server, which has them from here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ofa_triton.errors import ContractError
from ofa_triton.preprocessing.request import TEXT_MULTIPLE

DTYPES: dict[str, np.dtype[Any]] = {
    "UINT8": np.dtype(np.uint8),
    "INT32": np.dtype(np.int32),
    "FP32": np.dtype(np.float32),
    "BYTES": np.dtype(object),
}
"""Triton's type names and what numpy calls them."""

BYTES_PER_REQUEST = 1


@dataclass(frozen=True)
class Axis:
    """A length that differs between requests: smallest, usual, largest, in steps of `step`, plus a fixed `offset`."""

    name: str
    min: int
    opt: int
    max: int
    step: int = 1
    offset: int = 0

    def plus(self, offset: int) -> "Axis":
        """The axis of a tensor that is longer than this one by `offset`."""
        return Axis(self.name, self.min, self.opt, self.max, self.step, offset)

    def sizes(self) -> list[int]:
        """Lengths worth checking: min, opt, max and one odd one between, without the offset."""
        odd = min(self.max, self.min + self.step * (1 + (self.opt - self.min) // (2 * self.step)))
        return sorted({self.min, odd, self.opt, self.max})


Dim = int | Axis


@dataclass(frozen=True)
class TensorSpec:
    """One tensor: Triton type name and axes, the batch axis left out.

    An `optional` input may be left out of a request; a `labelled` output can be asked for as named classes.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    optional: bool = False
    labelled: bool = False

    @property
    def triton_dims(self) -> list[int]:
        """Axes as ``config.pbtxt`` writes them: -1 where the length differs between requests."""
        return [-1 if isinstance(dim, Axis) else dim for dim in self.dims]

    def shape(self, batch: int, lengths: dict[str, int]) -> tuple[int, ...]:
        """The whole shape at a batch size and the lengths of the named axes."""
        return (
            batch,
            *(lengths[dim.name] + dim.offset if isinstance(dim, Axis) else dim for dim in self.dims),
        )

    def require(self, where: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Check a tensor that was found.

        Raises:
            ContractError: its type, rank or a fixed length is another.
        """
        fixed = all(isinstance(dim, Axis) or dim == size for dim, size in zip(self.dims, shape[1:], strict=False))
        if dtype != self.dtype or len(shape) != len(self.dims) + 1 or not fixed:
            raise ContractError(
                f"{where}: tensor {self.name!r} is {dtype} {list(shape)}; the contract says {self.dtype} "
                f"{['batch', *(d.name if isinstance(d, Axis) else d for d in self.dims)]}. "
                f"Run 'ofa-triton export' again, or change contract.py."
            )


@dataclass(frozen=True)
class Stage:
    """One model of the pipeline."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def axes(self) -> dict[str, Axis]:
        """The axes that differ between requests, by name, without offsets."""
        dims = (dim for spec in (*self.inputs, *self.outputs) for dim in spec.dims)
        return {dim.name: dim.plus(0) for dim in dims if isinstance(dim, Axis)}

    def tensor(self, name: str) -> TensorSpec:
        """The input or output of that name.

        Raises:
            ContractError: there is none.
        """
        for spec in (*self.inputs, *self.outputs):
            if spec.name == name:
                return spec
        known = ", ".join(spec.name for spec in (*self.inputs, *self.outputs))
        raise ContractError(f"{self.name}: there is no tensor {name!r}. The contract has {known}.")


@dataclass(frozen=True)
class Geometry:
    """The lengths that a checkpoint fixes, and the limits of those it does not.

    Attributes:
        image_size: side of the resized picture, in pixels.
        patches: image patches.
        width: the model's width.
        answers: answers that are scored.
        max_tokens: longest text in tokens, beginning and end of sentence included.
        max_batch: most requests in one batch.
    """

    image_size: int
    patches: int
    width: int
    answers: int
    max_tokens: int
    max_batch: int = 8

    @property
    def text(self) -> Axis:
        """Padded text length."""
        longest = -(-self.max_tokens // TEXT_MULTIPLE) * TEXT_MULTIPLE
        return Axis("text", TEXT_MULTIPLE, min(2 * TEXT_MULTIPLE, longest), longest, TEXT_MULTIPLE)

    @property
    def batch(self) -> Axis:
        """Requests in one run of a stage."""
        return Axis("batch", 1, min(4, self.max_batch), self.max_batch)


class Contract:
    """The stages of one checkpoint."""

    def __init__(self, geometry: Geometry) -> None:
        size, patches, width = geometry.image_size, geometry.patches, geometry.width
        image = TensorSpec("IMAGE", "BYTES", (BYTES_PER_REQUEST,))
        hypothesis = TensorSpec("HYPOTHESIS", "BYTES", (BYTES_PER_REQUEST,))
        premise = TensorSpec("PREMISE", "BYTES", (BYTES_PER_REQUEST,), optional=True)
        pixel_values = TensorSpec("pixel_values", "UINT8", (size, size, 3))
        input_ids = TensorSpec("input_ids", "INT32", (geometry.text,))
        image_embeds = TensorSpec("image_embeds", "FP32", (patches, width))
        encoder_states = TensorSpec("encoder_states", "FP32", (geometry.text.plus(patches), width))
        scores = TensorSpec("SCORES", "FP32", (geometry.answers,), labelled=True)
        self.geometry = geometry
        self.preprocess = Stage("preprocess", (image, hypothesis, premise), (pixel_values, input_ids))
        self.vision_encoder = Stage("vision_encoder", (pixel_values,), (image_embeds,))
        self.text_encoder = Stage("text_encoder", (image_embeds, input_ids), (encoder_states,))
        self.fusion_head = Stage("fusion_head", (encoder_states, input_ids), (scores,))
        self.visual_entailment = Stage("visual_entailment", (image, hypothesis, premise), (scores,))

    @property
    def exported(self) -> tuple[Stage, ...]:
        """The stages that become ONNX files, in the order a request meets them."""
        return (self.vision_encoder, self.text_encoder, self.fusion_head)

    def stages(self) -> Iterator[Stage]:
        """All stages, ensembles included."""
        return (value for value in vars(self).values() if isinstance(value, Stage))

    def stage(self, name: str) -> Stage:
        """The stage of that name.

        Raises:
            ContractError: there is none.
        """
        for stage in self.stages():
            if stage.name == name:
                return stage
        raise ContractError(f"there is no stage {name!r}. The contract has {', '.join(s.name for s in self.stages())}.")
