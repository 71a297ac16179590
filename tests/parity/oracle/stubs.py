"""Stand-ins for the packages that ModelScope's OFA code imports and inference does not need.

Call ``install`` before anything of ModelScope is imported. A name is stood in for only where the package is missing:

* any attribute of such a module is an empty class, which can be a base class or a decorator and raises when called;
* ``fairseq.modules.LayerNorm`` is torch's;
* ``torchvision.transforms`` is real for Compose, Resize, ToTensor and Normalize, with torchvision's own arithmetic on
  Pillow images (Pillow's resize, uint8 / 255, minus mean, by standard deviation).
"""

import enum
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

PACKAGES = (
    "clip",
    "cv2",
    "datasets",
    "decord",
    "diffusers",
    "dill",
    "einops",
    "fairseq",
    "ftfy",
    "jieba",
    "librosa",
    "matplotlib",
    "mmcv",
    "multiprocess",
    "open_clip",
    "oss2",
    "pandas",
    "pyarrow",
    "pycocotools",
    "rapidfuzz",
    "sacrebleu",
    "sklearn",
    "soundfile",
    "taming",
    "timm",
    "torchaudio",
    "torchvision",
    "unicodedata2",
    "zhconv",
)


class _StubType(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _stub(name)


def _stub(name: str) -> type:
    def call(self: object, *args: object, **kwargs: object) -> None:
        raise RuntimeError(f"{name}: a stand-in was called. Install its package in the oracle's environment.")

    return _StubType(name, (), {"__init__": lambda self, *args, **kwargs: None, "__call__": call})


class _StubModule(types.ModuleType):
    def __getattr__(self, name: str) -> type:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        stub = _stub(name)
        setattr(self, name, stub)
        return stub


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Comes after Python's own finders, so it sees only what they did not find."""

    def __init__(self, packages: Iterable[str]) -> None:
        self.packages = frozenset(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.split(".")[0] not in self.packages:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _StubModule(spec.name)
        module.__path__ = []
        module.__dict__["__version__"] = "0.0.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def install() -> list[str]:
    """Stand in for the packages that are missing, and return their names."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    sys.meta_path.append(_Finder(missing))
    if "fairseq" in missing:
        import fairseq.modules
        import torch

        fairseq.modules.LayerNorm = torch.nn.LayerNorm
    if "torchvision" in missing:
        import torchvision.transforms

        for part in _transforms():
            setattr(torchvision.transforms, part.__name__, part)
    return missing


def _transforms() -> list[type]:
    import numpy as np
    import torch
    from PIL import Image

    class InterpolationMode(enum.Enum):
        NEAREST = Image.Resampling.NEAREST
        BILINEAR = Image.Resampling.BILINEAR
        BICUBIC = Image.Resampling.BICUBIC

    class Compose:
        def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
            self.transforms = transforms

        def __call__(self, value: Any) -> Any:
            for transform in self.transforms:
                value = transform(value)
            return value

    class Resize:
        def __init__(self, size: tuple[int, int], interpolation: InterpolationMode) -> None:
            self.size, self.interpolation = size, interpolation

        def __call__(self, image: Image.Image) -> Image.Image:
            height, width = self.size
            return image.resize((width, height), self.interpolation.value)

    class ToTensor:
        def __call__(self, image: Image.Image) -> torch.Tensor:
            pixels = torch.from_numpy(np.array(image, np.uint8, copy=True))
            return pixels.permute(2, 0, 1).contiguous().to(torch.float32).div(255)

    class Normalize:
        def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
            self.mean, self.std = mean, std

        def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
            mean = torch.as_tensor(self.mean, dtype=pixels.dtype).view(-1, 1, 1)
            std = torch.as_tensor(self.std, dtype=pixels.dtype).view(-1, 1, 1)
            return pixels.clone().sub_(mean).div_(std)

    return [InterpolationMode, Compose, Resize, ToTensor, Normalize]
