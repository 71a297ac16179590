"""Make the demo's pictures and the lines about them: `python -m demo.recipe.build`.

Every label is true by construction of the scene. Lines that the checkpoint gets wrong, or right with little
confidence, are left out and counted: the demo shows what works, `evaluate` shows how often it does.
"""

import argparse
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from demo.recipe.checkpoint import IMAGE_SIZE
from demo.recipe.nouns import caption
from demo.recipe.predict import Predictor
from demo.recipe.questions import question
from demo.recipe.scenes import DEMO_SEEDS, Scene, paint, sample_scene
from demo.recipe.statements import (
    CONTRADICTION,
    ENTAILMENT,
    LABELS,
    NEUTRAL,
    Statement,
    statement,
    statement_after_premise,
)
from demo.recipe.train import STORED, THREADS
from ofa_triton.preprocessing.image import decode_image, resize_image

DEMO = STORED.parent
CONFIDENT = 0.8

GUESSED = ("position",)
"""Kinds that the checkpoint answers no better than chance: a line that it gets right would be luck."""

_DRAWS = 30

WANTED: dict[str, Callable[[Scene], bool]] = {
    "three-shapes": lambda scene: len(scene.objects) == 3 and scene.background == "plain" and _kinds(scene) == 3,
    "wide": lambda scene: scene.width > 1.4 * scene.height and len(scene.objects) == 4 and _kinds(scene) == 3,
    "tall": lambda scene: scene.height > 1.4 * scene.width and len(scene.objects) == 4 and _kinds(scene) == 3,
    "six-shapes": lambda scene: len(scene.objects) == 6 and _kinds(scene) == 3,
    "pair": lambda scene: len(scene.objects) == 2 and _kinds(scene) == 2,
    "gradient": lambda scene: scene.background == "gradient" and len(scene.objects) == 5,
    "texture": lambda scene: scene.background == "texture" and len(scene.objects) == 3 and _kinds(scene) > 1,
    "many-kinds": lambda scene: len(scene.objects) == 5 and _kinds(scene) == 5,
}
"""The demo's scenes by name: each is the first of the demo's seeds that fits."""

PHOTOGRAPHS = {
    "china.jpg": [
        ("there are four blue stars.", None, CONTRADICTION),
        ("there is a small red star.", None, CONTRADICTION),
        ("there are no purple stars.", None, ENTAILMENT),
        ("anna likes the picture.", None, NEUTRAL),
    ],
    "flower.jpg": [
        ("there are four blue stars.", None, CONTRADICTION),
        ("there is a small blue triangle.", None, CONTRADICTION),
        ("there are no blue squares.", None, ENTAILMENT),
        ("someone sold the picture.", None, NEUTRAL),
    ],
}
"""Lines about the two photographs whose label is beyond doubt."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, default=STORED, help="directory in the hub's layout")
    parser.add_argument("--out", type=Path, default=DEMO, help="where scenes/ and the .jsonl files go")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    build(Predictor(arguments.checkpoint), arguments.out)


def build(predictor: Predictor, out: Path) -> None:
    """Write scenes/*.png, scenes.jsonl, pairs.jsonl, questions.jsonl and captions.jsonl."""
    (out / "scenes").mkdir(parents=True, exist_ok=True)
    scenes, pairs, questions, captions = [], [], [], []
    used: set[tuple[str, str]] = set()
    for index, (name, scene) in enumerate(_chosen()):
        image = f"scenes/{name}.png"
        paint(scene).save(out / image)
        embeds = _look(predictor, out / image)
        scenes.append(_described(image, scene))
        pairs += _pairs(predictor, embeds, image, _candidates(scene, index, used))
        questions += _questions(predictor, embeds, image, scene)
        if predictor.captions(embeds) == [caption(scene)]:
            captions.append({"image": image, "caption": caption(scene)})
        else:
            print(f"{image}: caption left out, {predictor.captions(embeds)} for {caption(scene)!r}")
    for name, lines in PHOTOGRAPHS.items():
        image = f"photos/{name}"
        made = [Statement(hypothesis, label, "photograph", premise) for hypothesis, premise, label in lines]
        pairs += _pairs(predictor, _look(predictor, out / image), image, made)
    for file, rows in (("scenes", scenes), ("pairs", pairs), ("questions", questions), ("captions", captions)):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (out / f"{file}.jsonl").write_text(text, encoding="utf-8")
        print(f"{file}.jsonl: {len(rows)} lines")


def _chosen() -> Iterator[tuple[str, Scene]]:
    used: set[int] = set()
    for name, fits in WANTED.items():
        seed = next(seed for seed in DEMO_SEEDS if seed not in used and fits(sample_scene(seed)))
        used.add(seed)
        yield name, sample_scene(seed)


def _kinds(scene: Scene) -> int:
    return len({(thing.shape, thing.colour, thing.size) for thing in scene.objects})


def _look(predictor: Predictor, file: Path) -> Tensor:
    return predictor.look(resize_image(decode_image(file.read_bytes()), IMAGE_SIZE)[None])


def _described(image: str, scene: Scene) -> dict[str, Any]:
    """What stands where; boxes are [left, top, right, bottom] in picture pixels."""
    objects = [
        {"shape": it.shape, "colour": it.colour, "size": it.size, "box": [round(value, 1) for value in it.box]}
        for it in scene.objects
    ]
    return {"image": image, "seed": scene.seed, "width": scene.width, "height": scene.height, "objects": objects}


def _candidates(scene: Scene, index: int, used: set[tuple[str, str]]) -> list[Statement]:
    """For each label a statement of a kind that it has not had yet, if there is one; then one after a premise."""
    rng = random.Random(scene.seed)
    made = []
    for label in LABELS:
        drawn = [it for _ in range(_DRAWS) if (it := statement(scene, rng, label)) and it.kind not in GUESSED]
        made.append(next((it for it in drawn if (label, it.kind) not in used), drawn[0]))
        used.add((label, made[-1].kind))
    label = LABELS[index % len(LABELS)]
    after = [it for _ in range(_DRAWS) if (it := statement_after_premise(scene, rng, label)) and it.kind not in GUESSED]
    made.append(next((it for it in after if (it.kind == "fact") == (index % 4 != 3)), after[0]))
    return made


def _pairs(predictor: Predictor, embeds: Tensor, image: str, statements: list[Statement]) -> list[dict[str, str]]:
    rows = []
    scores = predictor.label_probabilities(embeds.expand(len(statements), -1, -1), statements)
    for made, row in zip(statements, scores.tolist(), strict=True):
        if row[LABELS.index(made.label)] < CONFIDENT:
            found = ", ".join(f"{label} {score:.2f}" for label, score in zip(LABELS, row, strict=True))
            print(f"{image}: left out {made.label} {made.premise or ''} {made.hypothesis} ({found})")
            continue
        premise = {"premise": made.premise} if made.premise else {}
        rows.append({"image": image, "hypothesis": made.hypothesis, **premise, "label": made.label})
    return rows


def _questions(predictor: Predictor, embeds: Tensor, image: str, scene: Scene) -> list[dict[str, str]]:
    rng, seen = random.Random(scene.seed), set[str]()
    rows: list[dict[str, str]] = []
    for _ in range(12):
        made = question(scene, rng)
        if made is None or made.kind in (*seen, *GUESSED) or len(rows) == 3:
            continue
        seen.add(made.kind)
        if predictor.written_answers(embeds, [made.text]) == [made.answer]:
            rows.append({"image": image, "question": made.text, "answer": made.answer})
        else:
            print(f"{image}: left out {made.text} {made.answer}")
    return rows


if __name__ == "__main__":
    main()
