"""What a checkpoint directory is, in one table; and everything that is wrong with it."""

from pathlib import Path
from typing import Any

from ofa_triton.checkpoint import checkpoint_from_directory

_SIZES = {256: "tiny", 512: "medium", 768: "base", 1024: "large", 1280: "huge"}


def describe_checkpoint(path: Path) -> dict[str, Any]:
    """Read a checkpoint and its weights.

    Raises:
        CheckpointError: says what is missing or wrong.
    """
    checkpoint = checkpoint_from_directory(path)
    config, settings, geometry = checkpoint.config, checkpoint.preprocess_settings, checkpoint.geometry
    return {
        "checkpoint": str(path),
        "size": _SIZES.get(config.d_model, f"custom, width {config.d_model}"),
        "parameters": _parameters(path),
        "layers": [config.encoder_layers, config.decoder_layers],
        "tower": config.tower,
        "task": checkpoint.task,
        "answers": dict(zip(checkpoint.answers, checkpoint.labels, strict=True)),
        "picture": f"{geometry.image_size} x {geometry.image_size} pixels, {geometry.patches} patches",
        "text": f"at most {geometry.max_tokens} tokens",
        "prompts": [settings.entailment_prompt, settings.entailment_premise_prompt],
        "prompt_type": checkpoint.model.prompt_type,
        "weights": f"{checkpoint.weights.name}, {checkpoint.weights.stat().st_size / 1e6:.1f} MB",
    }


def _parameters(path: Path) -> int | str:
    """Parameters, tied ones counted once; the weights are read and checked on the way."""
    try:
        from ofa_triton.ofa.weights import model_from_tensors, tensors_from_file
    except ImportError:
        return "not read: pip install 'ofa-triton[export]'"
    checkpoint = checkpoint_from_directory(path)
    model = model_from_tensors(checkpoint.config, tensors_from_file(checkpoint.weights), checkpoint.weights)
    return sum(parameter.numel() for parameter in model.parameters())
