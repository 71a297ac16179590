"""Writing the trained model as a directory in the layout of ModelScope's hub."""

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ofa_triton.ofa.config import OFAConfig
from ofa_triton.ofa.model import OFAModel
from ofa_triton.preprocessing.tokenizer import TOKENIZER_FILES

IMAGE_SIZE = 128
VOCABULARY_LICENSE = "LICENSE.vocabulary"

CONFIG = OFAConfig(
    vocab_size=59457,
    d_model=96,
    encoder_layers=3,
    decoder_layers=2,
    encoder_attention_heads=6,
    decoder_attention_heads=6,
    encoder_ffn_dim=256,
    decoder_ffn_dim=256,
    resnet_type="resnet18",
)
"""The demo's network: 64 image patches of 16 x 16 pixels, and 10 million parameters, half of them token embeddings."""

_SWITCHES = {
    "activation_function": "gelu",
    "encoder_normalize_before": True,
    "decoder_normalize_before": True,
    "normformer": True,
    "layernorm_embedding": True,
    "patch_layernorm_embedding": True,
    "code_layernorm_embedding": True,
    "add_type_embedding": True,
    "share_decoder_input_output_embed": True,
    "use_image_feature": True,
    "scale_embedding": False,
    "entangle_position_embedding": False,
    "disable_entangle": False,
    "interpolate_position": False,
    "share_attn_bias": False,
    "use_ofasys": False,
    "use_gamma_feature": False,
    "exclude_mlp": True,
    "is_encoder_decoder": True,
    "use_cache": True,
}
_TRAINING_ONLY = {
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "encoder_drop_path_rate": 0.0,
    "decoder_drop_path_rate": 0.0,
    "resnet_drop_path_rate": 0.0,
    "classifier_dropout": 0.0,
    "init_std": 0.02,
}
_OTHERS = {
    "architectures": ["OFAModel"],
    "model_type": "ofa",
    "torch_dtype": "float16",
    "code_image_size": 128,
    "orig_patch_image_size": IMAGE_SIZE,
    "num_hidden_layers": CONFIG.encoder_layers,
    "decoder_start_token_id": 0,
    "forced_eos_token_id": 2,
}
_CONFIGURATION: dict[str, Any] = {
    "framework": "pytorch",
    "task": "visual-entailment",
    "model": {
        "type": "ofa",
        "beam_search": {"beam_size": 5, "max_len_b": 20, "min_len": 1, "no_repeat_ngram_size": 0},
        "seed": 7,
        "max_src_length": 80,
        "language": "en",
        "gen_type": "traverse",
        "prompt_type": "prev_output",
        "answer2label": "ans2label.json",
        "patch_image_size": IMAGE_SIZE,
        "max_image_size": IMAGE_SIZE,
        "imagenet_default_mean_and_std": False,
    },
    "pipeline": {"type": "visual-entailment"},
    "dataset": {"column_map": {}},
}
_LABELS = {"yes": 0, "no": 1, "maybe": 2}


def save_checkpoint(model: OFAModel, vocabulary: Path, out: Path) -> None:
    """Write `out`, complete or not at all; `vocabulary` is a directory with the tokenizer's files and their licence."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as temporary:
        directory = Path(temporary) / out.name
        directory.mkdir()
        for name in (*TOKENIZER_FILES, VOCABULARY_LICENSE):
            shutil.copyfile(vocabulary / name, directory / name)
        _write_json(directory / "config.json", {**_OTHERS, **CONFIG.model_dump(), **_SWITCHES, **_TRAINING_ONLY})
        _write_json(directory / "configuration.json", _CONFIGURATION)
        _write_json(directory / "ans2label.json", _LABELS)
        torch.save(checkpoint_tensors(model), directory / "pytorch_model.bin")
        if out.exists():
            out.rename(Path(temporary) / "replaced")
        directory.rename(out)


def checkpoint_tensors(model: OFAModel) -> dict[str, Tensor]:
    """The state dict of ModelScope's own model in fp16, the tied embedding once under three names.

    The picture-drawing parts of the decoder, which no task here uses, hold their initial values. The position buckets,
    66 MB of integers that the code computes again, are left out.
    """
    config = model.config
    width, heads, bucket = config.d_model, config.decoder_attention_heads, config.image_bucket_size
    tensors = {
        name: tensor.half() if tensor.is_floating_point() else tensor
        for name, tensor in model.state_dict().items()
        if name not in ("decoder.embed_tokens.weight", "decoder.output_projection.weight")
    }
    embedding = tensors["encoder.embed_tokens.weight"]
    tensors["decoder.embed_tokens.weight"] = tensors["decoder.output_projection.weight"] = embedding
    tensors["decoder.embed_image_positions.weight"] = torch.zeros(bucket**2 + 1, width, dtype=torch.float16)
    for norm in ("image_pos_ln", "code_layernorm_embedding"):
        tensors[f"decoder.{norm}.weight"] = torch.ones(width, dtype=torch.float16)
        tensors[f"decoder.{norm}.bias"] = torch.zeros(width, dtype=torch.float16)
    for layer in range(config.decoder_layers):
        rows = (2 * bucket - 1) ** 2 + 3
        tensors[f"decoder.image_rel_pos_table_list.{layer}.weight"] = torch.zeros(rows, heads, dtype=torch.float16)
    return tensors


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
