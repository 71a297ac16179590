"""Small random checkpoints in the hub's layout, made with our own model, for tests that need no trained one."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from ofa_triton.ofa.config import OFAConfig
from ofa_triton.ofa.model import OFAModel

VOCABULARY = Path(__file__).parents[1] / "demo" / "checkpoint"

SMALL: dict[str, Any] = {
    "model_type": "ofa",
    "vocab_size": 59457,
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "resnet_type": "resnet18",
}

MODEL_SECTION: dict[str, Any] = {
    "type": "ofa",
    "language": "en",
    "gen_type": "traverse",
    "prompt_type": "prev_output",
    "answer2label": "ans2label.json",
    "patch_image_size": 64,
    "max_src_length": 40,
}


def random_model(seed: int = 0, **config: Any) -> OFAModel:
    """A model in which every bias and table differs from its initial value, so that a dropped term shows."""
    torch.manual_seed(seed)
    model = OFAModel(OFAConfig.model_validate(SMALL | config)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "rel_pos_table" in name:
                parameter.normal_(std=0.5)
            elif parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape) * 0.1)
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(std=0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)
    return model


def write_checkpoint(path: Path, seed: int = 0, config: dict[str, Any] | None = None, **model_section: Any) -> Path:
    """Write a random checkpoint into the new directory `path`."""
    path.mkdir()
    model = random_model(seed, **(config or {}))
    embedding = model.encoder.embed_tokens.weight
    torch.save(model.state_dict() | {"decoder.output_projection.weight": embedding}, path / "pytorch_model.bin")
    write_json(path / "config.json", SMALL | (config or {}))
    write_json(path / "ans2label.json", {"yes": 0, "no": 1, "maybe": 2})
    write_json(
        path / "configuration.json",
        {"framework": "pytorch", "task": "visual-entailment", "model": MODEL_SECTION | model_section},
    )
    for name in ("vocab.json", "merges.txt"):
        shutil.copy2(VOCABULARY / name, path / name)
    return path


def write_json(path: Path, data: Any) -> None:
    """Write one JSON file."""
    path.write_text(json.dumps(data))
