"""Is an exported stage still the PyTorch module it came from? Compared at every size the contract names."""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ofa_triton.contract import Axis, Stage
from ofa_triton.errors import ParityError
from ofa_triton.onnx_stage import Arrays, OnnxStage

TOLERANCE = 1e-4
"""Largest absolute difference of an fp32 stage, relative to outputs larger than one."""

_BOS, _PAD, _EOS = 0, 1, 2
_LARGEST_EXAMPLE_ID = 20_000
_SHORTEST_TEXT = 4


def check_stage(module: nn.Module, stage: Stage, path: Path, batch: Axis) -> float:
    """Compare an ONNX file with the module it was traced from, batch mates with texts of unequal length.

    Returns:
        The largest difference seen.

    Raises:
        ParityError: names the output, the sizes and the difference.
    """
    exported = OnnxStage(path)
    largest = 0.0
    for seed, (rows, lengths) in enumerate(_sizes(stage, batch)):
        inputs = example_inputs(stage, rows, lengths, seed)
        with torch.no_grad():
            expected = module(*(torch.from_numpy(inputs[spec.name]) for spec in stage.inputs)).numpy()
        (name,) = (spec.name for spec in stage.outputs)
        found = exported.run(inputs)[name]
        difference = largest_difference(found, expected, inputs.get("input_ids"))
        if not difference <= TOLERANCE:
            raise ParityError(
                f"{stage.name}: output {name!r} at batch {rows}, {lengths} differs from PyTorch by {difference:.2e}; "
                f"at most {TOLERANCE:.0e} is allowed. The export is not kept."
            )
        largest = max(largest, difference)
    return largest


def largest_difference(
    found: NDArray[np.float32], expected: NDArray[np.float32], input_ids: NDArray[np.int32] | None
) -> float:
    """Largest difference where it counts: states at padded positions are arbitrary. NaN counts as infinite."""
    if found.shape != expected.shape:
        return float("inf")
    difference = np.abs(found - expected) / np.maximum(1, np.abs(expected))
    if input_ids is not None and expected.ndim == 3:
        text = np.concatenate(
            [np.ones((len(expected), expected.shape[1] - input_ids.shape[1]), bool), input_ids != _PAD], 1
        )
        difference = difference[text]
    return float(np.nan_to_num(difference, nan=np.inf).max())


def example_inputs(stage: Stage, batch: int, lengths: dict[str, int], seed: int) -> Arrays:
    """Random inputs of a stage; the texts of a batch end at different places."""
    random = np.random.default_rng(seed)
    arrays: Arrays = {}
    for spec in stage.inputs:
        shape = spec.shape(batch, lengths)
        if spec.name == "input_ids":
            arrays[spec.name] = _example_ids(random, *shape)
        elif spec.dtype == "UINT8":
            arrays[spec.name] = random.integers(0, 256, shape, np.uint8)
        else:
            arrays[spec.name] = random.standard_normal(shape, np.float32)
    return arrays


def _example_ids(random: np.random.Generator, batch: int, length: int) -> NDArray[np.int32]:
    ids = np.full((batch, length), _PAD, np.int32)
    for number, row in enumerate(ids):
        end = length if number == 0 else int(random.integers(_SHORTEST_TEXT, length + 1))
        row[:end] = random.integers(_SHORTEST_TEXT, _LARGEST_EXAMPLE_ID, end)
        row[0], row[end - 1] = _BOS, _EOS
    return ids


def _sizes(stage: Stage, batch: Axis) -> list[tuple[int, dict[str, int]]]:
    """Every batch size at the usual length, every length at the usual batch size, and all smallest and all largest."""
    axes = list(stage.axes().values())
    usual = {axis.name: axis.opt for axis in axes}
    sizes = [(rows, usual) for rows in batch.sizes()]
    sizes += [(batch.opt, usual | {axis.name: size}) for axis in axes for size in axis.sizes() if size != axis.opt]
    corners = [(batch.min, {axis.name: axis.min for axis in axes}), (batch.max, {axis.name: axis.max for axis in axes})]
    return sizes + [corner for corner in corners if corner not in sizes]
