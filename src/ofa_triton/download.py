"""Fetch a checkpoint from ModelScope's hub, by its own client."""

from pathlib import Path

from ofa_triton.errors import CheckpointError, ServerError


def download_checkpoint(model_id: str, out: Path, revision: str | None = None) -> Path:
    """Fetch `model_id` (such as ``iic/ofa_visual-entailment_snli-ve_large_en``) into ``out/NAME``.

    The hub's client resumes what was cut off, checks sums, shows progress, and reads its own environment variables
    for mirrors and tokens.

    Raises:
        CheckpointError: the id is not one.
        ServerError: the client is not installed, or the hub cannot be reached.
    """
    owner, _, name = model_id.partition("/")
    if not owner or not name or "/" in name or name.startswith("."):
        raise CheckpointError(f"{model_id!r}: a model id of the form OWNER/NAME is needed.")
    try:
        from modelscope.hub.snapshot_download import snapshot_download
    except ImportError as error:
        raise ServerError("the hub's client is not installed. Run: pip install 'ofa-triton[hub]'") from error
    target = out / name
    fresh = not target.exists()
    try:
        snapshot_download(model_id, revision=revision, local_dir=str(target))
    except Exception as error:  # the client raises whatever its transports raise
        if fresh and target.is_dir() and not any(target.iterdir()):
            target.rmdir()
        raise ServerError(
            f"{model_id} could not be fetched: {type(error).__name__}: {error}. "
            f"Check the id and the network; running the same command again resumes."
        ) from error
    return target
