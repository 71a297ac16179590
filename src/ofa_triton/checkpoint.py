"""A checkpoint directory in the hub's layout: what it is, what it can do, and what is wrong with it. Needs no torch."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ofa_triton.contract import Contract, Geometry
from ofa_triton.errors import CheckpointError
from ofa_triton.ofa.config import OFAConfig, config_from_json
from ofa_triton.preprocessing.prompts import ENTAILMENT, ENTAILMENT_WITH_PREMISE, Prompt
from ofa_triton.preprocessing.request import PreprocessSettings
from ofa_triton.preprocessing.tokenizer import OFATokenizer, tokenizer_from_directory

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
TASKS = ("visual-entailment",)
"""Tasks that can be served, by ModelScope's names."""

ENTAILMENT_LABELS = {"yes": "entailment", "no": "contradiction", "maybe": "neutral"}
"""What SNLI-VE's answers mean. ModelScope gives the answers untranslated."""

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


class ModelSection(BaseModel):
    """The ``model`` section of ``configuration.json``, with ModelScope's defaults."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    type: Literal["ofa"]
    multimodal_type: Literal["default"] = "default"
    language: Literal["en"] = "en"
    gen_type: Literal["generation", "traverse"] = "generation"
    patch_image_size: int = Field(480, gt=0)
    max_src_length: int = Field(256, gt=0)
    imagenet_default_mean_and_std: bool = False
    prompt: str | None = None
    prompt_type: Literal["none", "src", "prev_output"] = "none"
    answer2label: str | None = None


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint directory, its configuration read and checked.

    Attributes:
        path: the directory.
        config: ``config.json``.
        task: ModelScope's task name.
        model: the model section of ``configuration.json``.
        answers: the keys of the answer file, in file order.
        weights: the file that holds the tensors.
    """

    path: Path
    config: OFAConfig
    task: str
    model: ModelSection
    answers: tuple[str, ...]
    weights: Path

    @property
    def labels(self) -> tuple[str, ...]:
        """What each answer means, in order: SNLI-VE's three in the field's words, any other as it is."""
        return _labels(self.answers)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of image patches."""
        side = self.config.grid_side(self.model.patch_image_size)
        return side, side

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation per channel of pixels in 0..1."""
        return IMAGENET if self.model.imagenet_default_mean_and_std else HALF

    @cached_property
    def tokenizer(self) -> OFATokenizer:
        """The tokenizer of the directory's vocabulary."""
        return tokenizer_from_directory(self.path)

    @property
    def preprocess_settings(self) -> PreprocessSettings:
        """What the preprocess stage needs. A checkpoint's own prompt serves the form it has gaps for."""
        prompts = {1: ENTAILMENT, 2: ENTAILMENT_WITH_PREMISE}
        if self.model.prompt is not None:
            gaps = Prompt(self.model.prompt).gaps
            if gaps not in prompts:
                raise CheckpointError(
                    f"{self.path / 'configuration.json'}: model.prompt {self.model.prompt!r} has {gaps} gaps; visual "
                    f"entailment needs one {{}} for the statement, or two for premise and statement."
                )
            prompts[gaps] = self.model.prompt
        return PreprocessSettings(
            image_size=self.model.patch_image_size,
            max_words=self.model.max_src_length,
            max_tokens=self.model.max_src_length,
            max_positions=self.config.max_position_embeddings,
            entailment_prompt=prompts[1],
            entailment_premise_prompt=prompts[2],
        )

    @property
    def geometry(self) -> Geometry:
        """The lengths the contract needs."""
        rows, columns = self.grid
        longest = min(self.model.max_src_length + 2, self.config.max_position_embeddings)
        return Geometry(self.model.patch_image_size, rows * columns, self.config.d_model, len(self.answers), longest)

    @property
    def contract(self) -> Contract:
        """Every tensor of the stages made from this checkpoint."""
        return Contract(self.geometry)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over all files that change an answer."""
        digest = hashlib.sha256()
        names = ["config.json", "configuration.json", "vocab.json", "merges.txt", self.weights.name]
        for name in [*names, *([self.model.answer2label] if self.model.answer2label else [])]:
            digest.update(name.encode() + b"\0")
            with (self.path / name).open("rb") as file:
                while block := file.read(1 << 22):
                    digest.update(block)
        return digest.hexdigest()

    def answer_ids(self) -> list[int]:
        """The single token of each answer.

        Raises:
            CheckpointError: an answer takes several tokens, or two answers the same.
        """
        tokens = {answer: self.tokenizer.encode(f" {answer}").ids for answer in self.answers}
        longer = [answer for answer, ids in tokens.items() if len(ids) != 1]
        if longer:
            raise CheckpointError(
                f"{self.path}: the answers {longer[:5]} take more than one token each; answers of one token are "
                f"supported so far."
            )
        ids = [token for (token,) in tokens.values()]
        if len(set(ids)) != len(ids):
            raise CheckpointError(f"{self.path}: two answers of {list(self.answers)} have the same token.")
        return ids


def checkpoint_from_directory(path: Path) -> Checkpoint:
    """Read and check everything but the weights.

    Raises:
        CheckpointError: says what is missing or wrong and what would be right.
    """
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise CheckpointError(
            f"{path}: {what}; the directory of an OFA checkpoint is needed. See 'ofa-triton download'."
        )
    config = config_from_json(_json(path, "config.json"), path / "config.json")
    configuration = _json(path, "configuration.json")
    source = path / "configuration.json"
    model = _model_section(configuration, source)
    task = configuration.get("task")
    if task not in TASKS:
        raise CheckpointError(f"{source}: the task is {task!r}; {', '.join(TASKS)} can be served so far.")
    if model.gen_type != "traverse" or model.prompt_type == "src":
        raise CheckpointError(
            f"{source}: gen_type {model.gen_type!r} with prompt_type {model.prompt_type!r} is not how visual "
            f"entailment is scored; gen_type 'traverse' with prompt_type 'prev_output' or 'none' is supported."
        )
    weights = next((path / name for name in WEIGHT_FILES if (path / name).is_file()), None)
    if weights is None:
        raise CheckpointError(f"{path}: no weights; {' or '.join(WEIGHT_FILES)} is needed. Download it again.")
    checkpoint = Checkpoint(path, config, task, model, _answers(path, model), weights)
    _check_sizes(checkpoint)
    return checkpoint


def _check_sizes(checkpoint: Checkpoint) -> None:
    checkpoint.config.grid_side(checkpoint.model.patch_image_size)
    if checkpoint.tokenizer.size != checkpoint.config.vocab_size:
        raise CheckpointError(
            f"{checkpoint.path}: vocab.json makes {checkpoint.tokenizer.size} tokens with the image and coordinate "
            f"tokens, config.json says vocab_size {checkpoint.config.vocab_size}. They are of different checkpoints."
        )
    _ = checkpoint.preprocess_settings, checkpoint.answer_ids()


def _json(path: Path, name: str) -> dict[str, Any]:
    file = path / name
    if not file.is_file():
        hints = {
            "config.json": "A fairseq .pt file must first be converted to the hub's layout.",
            "configuration.json": "A Hugging Face OFA directory has none: copy that of the same model from ModelScope.",
        }
        raise CheckpointError(f"{file}: missing. {hints.get(name, 'Download the checkpoint again.')}")
    try:
        data = json.loads(file.read_bytes(), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not JSON ({error}). Download the checkpoint again.") from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{file}: holds a {type(data).__name__}; a JSON object is needed.")
    return data


def _labels(answers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(ENTAILMENT_LABELS.get(answer, answer) for answer in answers)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError(f"a key stands twice among {[key for key, _ in pairs][:8]}")
    return dict(pairs)


def _model_section(configuration: dict[str, Any], source: Path) -> ModelSection:
    try:
        return ModelSection.model_validate(configuration.get("model") or {})
    except ValidationError as error:
        details = "; ".join(f"model.{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise CheckpointError(f"{source}: {details}.") from error


def _answers(path: Path, model: ModelSection) -> tuple[str, ...]:
    if not model.answer2label:
        raise CheckpointError(
            f"{path / 'configuration.json'}: model.answer2label is missing; it names the JSON file whose keys are the "
            f'answers, such as {{"yes": 0, "no": 1, "maybe": 2}}.'
        )
    if Path(model.answer2label).name != model.answer2label:
        raise CheckpointError(
            f"{path / 'configuration.json'}: model.answer2label is {model.answer2label!r}; a file beside it is needed."
        )
    answers = tuple(_json(path, model.answer2label))
    if len(answers) < 2 or not all(answer.strip() for answer in answers):
        raise CheckpointError(
            f"{path / model.answer2label}: the answers are {list(answers)}; two or more that are not blank are needed."
        )
    if len(set(_labels(answers))) != len(answers):
        raise CheckpointError(f"{path / model.answer2label}: two of the answers {list(answers)} mean the same.")
    return answers
