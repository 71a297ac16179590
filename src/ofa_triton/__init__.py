"""OFA checkpoints behind NVIDIA Triton as a pipeline of separate stages."""

__version__ = "0.1.0"
