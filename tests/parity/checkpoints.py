"""Random checkpoints for the tests, each written once."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .client import Oracle

ANSWERS = ("yes", "no", "maybe")


class Checkpoints:
    """Makes directories in the hub's layout and remembers them by what was asked for."""

    def __init__(self, oracle: Oracle, directory: Path) -> None:
        self._oracle = oracle
        self._directory = directory
        self._made: dict[str, Path] = {}

    def __call__(
        self,
        *,
        task: str = "visual-entailment",
        seed: int = 0,
        config: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        answers: Sequence[str] = ANSWERS,
        with_derived: bool = False,
    ) -> Path:
        """The directory of a checkpoint with random weights.

        Args:
            config: overrides of ``config.json``.
            settings: overrides of the ``model`` part of ``configuration.json``.
            answers: keys of the answer file, in order.
            with_derived: whether tensors that can be computed again are in the file, as in the hub's.
        """
        weights = {"task": task, "seed": seed, "config": dict(config or {}), "with_derived": with_derived}
        options = {**weights, "settings": {}, "answers": list(ANSWERS)}
        base = self._once(weights, lambda path: self._oracle("write_checkpoint", path=str(path), **options))
        if not settings and tuple(answers) == ANSWERS:
            return base
        variant = {**weights, "settings": dict(settings or {}), "answers": list(answers)}
        return self._once(variant, lambda path: _vary(base, path, variant["settings"], variant["answers"]))

    def _once(self, key: Mapping[str, Any], make: Callable[[Path], object]) -> Path:
        text = json.dumps(key, sort_keys=True)
        if text not in self._made:
            path = self._directory / f"checkpoint-{len(self._made)}"
            make(path)
            self._made[text] = path
        return self._made[text]


def _vary(base: Path, path: Path, settings: Mapping[str, Any], answers: Sequence[str]) -> None:
    """The same weights under other settings or answers."""
    path.mkdir()
    for file in base.iterdir():
        os.link(file, path / file.name)
    configuration = json.loads((base / "configuration.json").read_text("utf-8"))
    configuration["model"].update(settings)
    for name, content in (
        ("configuration.json", configuration),
        ("ans2label.json", {answer: index for index, answer in enumerate(answers)}),
    ):
        (path / name).unlink()
        (path / name).write_text(json.dumps(content), encoding="utf-8")
