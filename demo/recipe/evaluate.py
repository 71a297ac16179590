"""Print how right the stored checkpoint is on scenes it never saw: `python -m demo.recipe.evaluate`."""

import argparse
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from demo.recipe.checkpoint import IMAGE_SIZE
from demo.recipe.nouns import caption
from demo.recipe.pool import paint_pool
from demo.recipe.predict import Predictor
from demo.recipe.questions import ANSWER_LIST, question
from demo.recipe.scenes import HELD_OUT_SEEDS, Scene, sample_scene
from demo.recipe.statements import LABELS, Statement, statement, statement_after_premise
from demo.recipe.train import STORED, THREADS

SCENES = 1000
QUESTIONS_A_SCENE = 2


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=STORED, help="directory in the hub's layout")
    parser.add_argument("--scenes", type=int, default=SCENES, help="number of held-out scenes")
    arguments = parser.parse_args()
    torch.set_num_threads(THREADS)
    evaluate(Predictor(arguments.checkpoint), arguments.scenes)


def evaluate(predictor: Predictor, count: int) -> None:
    """Print accuracies on the first `count` held-out scenes, all tasks."""
    seeds = HELD_OUT_SEEDS[:count]
    scenes = [sample_scene(seed) for seed in seeds]
    embeds = predictor.look(paint_pool(seeds, IMAGE_SIZE))
    print(f"held-out scenes: {count}, seeds {seeds[0]} to {seeds[-1]}")
    rng = random.Random(seeds[0])
    stated = [
        (row, made) for row, scene in enumerate(scenes) for label in LABELS if (made := statement(scene, rng, label))
    ]
    _print_labels("visual entailment, one text", predictor, embeds, _balanced(stated))
    premised = [
        (row, made)
        for row, scene in enumerate(scenes)
        for label in LABELS
        if (made := statement_after_premise(scene, rng, label))
    ]
    _print_labels("visual entailment, premise and hypothesis", predictor, embeds, _balanced(premised))
    _print_questions(predictor, embeds, scenes, rng)
    _print_captions(predictor, embeds, scenes)


def _balanced(pairs: list[tuple[int, Statement]]) -> list[tuple[int, Statement]]:
    """As many of each label as the rarest has."""
    by_label = [[pair for pair in pairs if pair[1].label == label] for label in LABELS]
    least = min(map(len, by_label))
    return [pair for some in by_label for pair in some[:least]]


def _print_labels(title: str, predictor: Predictor, embeds: Tensor, pairs: list[tuple[int, Statement]]) -> None:
    rows, statements = [row for row, _ in pairs], [made for _, made in pairs]
    best = predictor.label_probabilities(embeds[rows], statements).argmax(1).tolist()
    right = [LABELS[index] == made.label for index, made in zip(best, statements, strict=True)]
    _print_shares(title, right)
    _print_shares_by("label", right, (made.label for made in statements))
    _print_shares_by("kind", right, (made.kind for made in statements))


def _print_questions(predictor: Predictor, embeds: Tensor, scenes: Sequence[Scene], rng: random.Random) -> None:
    asked = [
        (row, made)
        for row, scene in enumerate(scenes)
        for _ in range(QUESTIONS_A_SCENE)
        if (made := question(scene, rng))
    ]
    rows, texts = [row for row, _ in asked], [made.text for _, made in asked]
    answers = {
        f"best of {len(ANSWER_LIST)} answers": predictor.closed_answers(embeds[rows], texts, ANSWER_LIST),
        "written from the beginning of sentence": predictor.written_answers(embeds[rows], texts),
    }
    for way, found in answers.items():
        right = [answer == made.answer for answer, (_, made) in zip(found, asked, strict=True)]
        _print_shares(f"visual question answering, {way}", right)
        _print_shares_by("kind", right, (made.kind for _, made in asked))


def _print_captions(predictor: Predictor, embeds: Tensor, scenes: Sequence[Scene]) -> None:
    wanted = [caption(scene) for scene in scenes]
    found = predictor.captions(embeds)
    _print_shares("captions, to the letter", [a == b for a, b in zip(found, wanted, strict=True)])
    same_groups = [sorted(a.split(" and ")) == sorted(b.split(" and ")) for a, b in zip(found, wanted, strict=True)]
    _print_shares("captions, same counts, sizes, colours and shapes", same_groups)
    _print_shares_by("shapes in the scene", same_groups, (str(len(scene.objects)) for scene in scenes))


def _print_shares(title: str, right: Sequence[bool]) -> None:
    print(f"{title}: {sum(right)} of {len(right)} right, {100 * sum(right) / len(right):.1f} %", flush=True)


def _print_shares_by(name: str, right: Sequence[bool], groups: Iterable[str]) -> None:
    by_group: dict[str, list[bool]] = defaultdict(list)
    for group, ok in zip(groups, right, strict=True):
        by_group[group].append(ok)
    for group, some in sorted(by_group.items()):
        print(f"    {name} {group}: {sum(some)} of {len(some)}, {100 * sum(some) / len(some):.1f} %")


if __name__ == "__main__":
    main()
