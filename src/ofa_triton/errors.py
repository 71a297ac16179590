"""The errors a user meets.

Every message has three parts: where and what; found against expected; what to do.
"""


class OfaTritonError(Exception):
    """Base of every error this package raises on purpose."""


class CheckpointError(OfaTritonError):
    """A checkpoint directory is incomplete, of another model, or for another task."""


class ContractError(OfaTritonError):
    """A tensor, stage or artefact does not agree with ``contract.py``."""


class ParityError(OfaTritonError):
    """An exported stage answers differently from the PyTorch model it came from."""


class BuildError(OfaTritonError):
    """Engines or a model repository cannot be built from what is there."""


class RequestError(OfaTritonError):
    """The caller's request is wrong. It fails alone; its batch mates are answered."""


class ServerError(OfaTritonError):
    """The server cannot be started, reached, or failed to answer."""
