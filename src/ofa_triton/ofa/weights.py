"""Fill an ``OFAModel`` from a checkpoint's tensors, naming everything that does not fit."""

import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from ofa_triton.errors import CheckpointError
from ofa_triton.ofa.config import OFAConfig
from ofa_triton.ofa.model import OFAModel

_UNREAD = re.compile(
    r"""(encoder|decoder)\.(image_rp_bucket|token_rp_bucket)
      | decoder\.(image_position_idx|embed_image_positions|image_pos_ln|image_rel_pos_table_list)
      | decoder\.code_layernorm_embedding
      | mlp_head | temp$ | .*\.num_batches_tracked$""",
    re.VERBOSE,
)
"""Tensors of a checkpoint that can be computed again, or that only drawing pictures and training need."""

_UNREAD_OFASYS = re.compile(
    r"encoder\.image_pos_ln\. | decoder\.type_embedding\. | decoder\.cross_pos_[qk]_linear\.", re.VERBOSE
)
"""Tensors that OFA-Sys checkpoints hold besides, and their model never reads (the last with entangled positions)."""

_EMBEDDING = "encoder.embed_tokens.weight"
_TIED = ("decoder.embed_tokens.weight", "decoder.output_projection.weight")
_NAMED = 8
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def tensors_from_file(path: Path) -> dict[str, Tensor]:
    """Read ``pytorch_model.bin`` (with ``weights_only=True``: no pickle of the file is executed) or safetensors.

    Raises:
        CheckpointError: the file is cut short, damaged, or holds something other than tensors.
    """
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{path}: cannot be read as weights ({type(error).__name__}; {_beginning(path)}). It may be cut short, or "
            f"be a pickle of something other than tensors, which is never executed. Download it again."
        ) from error
    if not isinstance(loaded, Mapping) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in loaded.items()
    ):
        raise CheckpointError(
            f"{path}: holds a {type(loaded).__name__}, not a table of tensors. A fairseq .pt file must first be "
            f"converted to the hub's layout."
        )
    odd = [f"{name} is {_kind(tensor)}" for name, tensor in loaded.items() if not _is_plain(name, tensor)]
    if odd:
        raise CheckpointError(
            f"{path}: {' '.join(_listed('not plain fp16, bf16, fp32 or fp64', odd))} "
            f"A quantised checkpoint cannot be read."
        )
    return dict(loaded)


def _is_plain(name: str, tensor: Tensor) -> bool:
    return bool(_UNREAD.match(name)) or (tensor.dtype in _FLOATS and _kind(tensor) == str(tensor.dtype))


def _kind(tensor: Tensor) -> str:
    if tensor.layout != torch.strided:
        return str(tensor.layout)
    return f"on {tensor.device}" if tensor.device.type != "cpu" else str(tensor.dtype)


def _beginning(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return f"{path.stat().st_size} bytes, beginning {file.read(24)!r}"
    except OSError as error:
        return str(error.strerror)


def model_from_tensors(config: OFAConfig, tensors: Mapping[str, Tensor], source: Path) -> OFAModel:
    """Build the model in fp32 and evaluation mode.

    Raises:
        CheckpointError: names every tensor that is missing, unexpected or of another shape.
    """
    with torch.device("meta"):
        model = OFAModel(config)
    wanted = {
        name: tensor for name, tensor in model.state_dict().items() if name not in _TIED and not _UNREAD.match(name)
    }
    problems = _tied_problems(tensors)
    given = {
        name: tensor
        for name, tensor in tensors.items()
        if name in wanted
        or not (name in _TIED or _UNREAD.match(name) or (config.use_ofasys and _UNREAD_OFASYS.match(name)))
    }
    problems += _listed("missing", [name for name in wanted if name not in given])
    problems += _listed("unexpected", [name for name in given if name not in wanted])
    misshapen = [
        f"{name} is {list(given[name].shape)}, config.json makes it {list(wanted[name].shape)}"
        for name in wanted
        if name in given and given[name].shape != wanted[name].shape
    ]
    problems += _listed("misshapen", misshapen)
    problems += _listed(
        "not finite", [name for name in wanted if name in given and not bool(given[name].isfinite().all())]
    )
    if problems:
        raise CheckpointError(f"{source}: the weights do not fit config.json. {' '.join(problems)}")
    model.to_empty(device="cpu")
    model.load_state_dict({name: given[name].float() for name in wanted}, strict=False)
    return model.eval()


def _tied_problems(tensors: Mapping[str, Tensor]) -> list[str]:
    embedding = tensors.get(_EMBEDDING)
    if embedding is None:
        return []
    untied = [
        name
        for name in _TIED
        if name in tensors and not (tensors[name].shape == embedding.shape and torch.equal(tensors[name], embedding))
    ]
    return _listed(f"differ from {_EMBEDDING}, to which OFA ties them", untied)


def _listed(kind: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return [f"{len(names)} {kind}: {', '.join(names[:_NAMED])}{more}."]
