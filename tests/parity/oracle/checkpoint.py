"""A directory in the hub's layout that holds a small random checkpoint."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from reference import OFAConfig, OFAModel

BPE = Path(__file__).parent / "data" / "BPE"
ADDED_TOKENS = 8192 + 1000
DERIVED = ("rp_bucket", "image_position_idx", "num_batches_tracked")
"""Ends of the names of tensors that ModelScope computes again where a checkpoint lacks them. They take 66 MB."""

SMALL: dict[str, Any] = {
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "resnet_type": "resnet18",
    "attn_scale_factor": 2.0,
}

SETTINGS: dict[str, Any] = {
    "type": "ofa",
    "beam_search": {"beam_size": 5, "max_len_b": 16, "min_len": 1, "no_repeat_ngram_size": 0},
    "seed": 7,
    "max_src_length": 80,
    "language": "en",
    "gen_type": "generation",
    "patch_image_size": 64,
    "max_image_size": 64,
    "imagenet_default_mean_and_std": False,
}

TASK_SETTINGS: dict[str, dict[str, Any]] = {
    "visual-entailment": {"gen_type": "traverse", "prompt_type": "prev_output", "answer2label": "ans2label.json"},
}


def write_checkpoint(
    path: Path,
    task: str,
    seed: int,
    config: Mapping[str, Any],
    settings: Mapping[str, Any],
    answers: list[str],
    with_derived: bool,
) -> OFAModel:
    """Write the directory and return its model.

    Args:
        config: overrides of ``config.json``.
        settings: overrides of the ``model`` part of ``configuration.json``.
        answers: keys of the answer file, in order.
        with_derived: whether the derived tensors are written, as the hub's files have them.
    """
    path.mkdir(parents=True)
    vocabulary = english_vocabulary()
    (path / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(vocabulary)}), encoding="utf-8")
    (path / "merges.txt").write_bytes((BPE / "vocab.bpe").read_bytes())
    ofa_config = OFAConfig(vocab_size=len(vocabulary) + ADDED_TOKENS, **{**SMALL, **config})
    ofa_config.architectures = ["OFAModel"]
    ofa_config.save_pretrained(path)
    model = randomise(OFAModel(ofa_config), seed).eval()
    tensors = {
        name: tensor for name, tensor in model.state_dict().items() if with_derived or not name.endswith(DERIVED)
    }
    torch.save(tensors, path / "pytorch_model.bin")
    (path / "ans2label.json").write_text(json.dumps({answer: i for i, answer in enumerate(answers)}), encoding="utf-8")
    configuration = {
        "framework": "pytorch",
        "task": task,
        "model": {**SETTINGS, **TASK_SETTINGS.get(task, {}), **settings},
        "pipeline": {"type": task},
        "dataset": {"column_map": {}},
    }
    (path / "configuration.json").write_text(json.dumps(configuration, indent=1), encoding="utf-8")
    return model


def english_vocabulary() -> list[str]:
    """Tokens in the order of BART's ids: four special ones, fairseq's dictionary, and the mask."""
    gpt2 = {number: token for token, number in json.loads((BPE / "encoder.json").read_text("utf-8")).items()}
    words = [line.split()[0] for line in (BPE / "dict.txt").read_text("utf-8").splitlines()]
    return ["<s>", "<pad>", "</s>", "<unk>", *(gpt2[int(w)] if w.isdigit() else w for w in words), "<mask>"]


def randomise(model: OFAModel, seed: int) -> OFAModel:
    """Give every tensor values that the outputs feel.

    OFA starts its bias tables and biases at 0 and its other weights so small that attention is flat and answers are
    even: a dropped term would hide below any tolerance. Here matrices keep the size of what flows through them, tables
    are as large as attention scores, and the last norm of a ResNet branch is small, so that deep towers do not grow.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(shape: torch.Size, scale: float, around: float = 0.0) -> torch.Tensor:
        return torch.randn(shape, generator=generator) * scale + around

    for name, tensor in model.named_parameters():
        if "rel_pos_table" in name:
            value = normal(tensor.shape, 0.5)
        elif "embed_tokens" in name or "output_projection" in name:
            value = normal(tensor.shape, 0.3)
        elif "embed" in name and tensor.dim() == 2:
            value = normal(tensor.shape, 1.0)
        elif tensor.dim() == 4:
            value = normal(tensor.shape, (2 / tensor[0].numel()) ** 0.5)
        elif tensor.dim() == 2:
            value = normal(tensor.shape, tensor.shape[1] ** -0.5)
        elif name.endswith("bias"):
            value = normal(tensor.shape, 0.2)
        else:
            value = normal(tensor.shape, 0.2, 1.0) * (0.3 if name.endswith("bn3.weight") else 1.0)
        tensor.copy_(value)
    for name, tensor in model.named_buffers():
        if name.endswith("running_mean"):
            tensor.copy_(normal(tensor.shape, 0.2))
        elif name.endswith("running_var"):
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return model
