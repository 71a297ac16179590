"""The demo's painter and its language: repeatable, and true of the scenes by a second reading of every sentence."""

import random
import re
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from demo.recipe.nouns import caption
from demo.recipe.questions import ANSWER_LIST, question
from demo.recipe.scenes import (
    COLOURS,
    DEMO_SEEDS,
    HELD_OUT_SEEDS,
    SHAPES,
    SIZES,
    TOWER_SEEDS,
    TRAINING_SEEDS,
    Object,
    Scene,
    paint,
    sample_scene,
)
from demo.recipe.statements import LABELS, Statement, statement, statement_after_premise

SCENES = [sample_scene(seed) for seed in range(9_000_000, 9_000_200)]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six"]


def named(words: str, scene: Scene) -> list[Object]:
    """The shapes that `large red circles` names."""
    size = colour = shape = None
    for word in words.split():
        single = word.removesuffix("s") if word not in COLOURS else word
        if word in SIZES:
            size = word
        elif word in COLOURS:
            colour = word
        elif single in SHAPES:
            shape = single
        else:
            assert single == "shape", words
    return [
        it
        for it in scene.objects
        if size in (None, it.size) and colour in (None, it.colour) and shape in (None, it.shape)
    ]


def middle(thing: Object) -> tuple[float, float]:
    left, top, right, bottom = thing.box
    return (left + right) / 2, (top + bottom) / 2


def stands(first: str, relation: str, second: str, scene: Scene) -> bool:
    [one], [other] = named(first, scene), named(second, scene)
    (x, y), (u, v) = middle(one), middle(other)
    return {"left of": x < u, "right of": x > u, "above": y < v, "below": y > v}[relation]


def group_holds(text: str, scene: Scene) -> bool:
    number, words = text.split(" ", 1)
    found = len(named(words, scene))
    return found >= 1 if number in ("a", "an") else found == NUMBERS.index(number)


def subject_is(subject: str, value: str, scene: Scene) -> bool:
    [thing] = named(subject, scene)
    return value.removeprefix("a ") in (thing.size, thing.colour, thing.shape)


READINGS: list[tuple[str, Callable[..., bool]]] = [
    (r"the (.+) is (?:to the )?(left of|right of|above|below) the (.+)", stands),
    (rf"the (.+) is ((?:a )?(?:{'|'.join((*SIZES, *COLOURS, *SHAPES))}))", subject_is),
    (r"there are more (.+) than (.+)", lambda a, b, scene: len(named(a, scene)) > len(named(b, scene))),
    (r"there are fewer (.+) than (.+)", lambda a, b, scene: len(named(a, scene)) < len(named(b, scene))),
    (r"there is at least one (.+)", lambda a, scene: bool(named(a, scene))),
    (r"there (?:is|are) no (.+)", lambda a, scene: not named(a, scene)),
    (r"no (.+) can be seen", lambda a, scene: not named(a, scene)),
    (
        rf"(?:there (?:is|are) (?:exactly )?|the picture shows )?((?:a|an|{'|'.join(NUMBERS)}) .+?)(?: can be seen)?",
        lambda text, scene: all(group_holds(group, scene) for group in text.split(" and ")),
    ),
]


def read(text: str, scene: Scene) -> bool | None:
    """Whether the sentence is true of the scene, or None where it is not about what can be seen."""
    if re.search(r"painted|anna|bought|child|sold|hangs|made|heavy|light|new|old|hard|soft|warm|cold|wet|dry", text):
        return None
    if re.search(r"expensive|cheap|clean|dirty", text):
        return None
    for pattern, holds in READINGS:
        match = re.fullmatch(pattern, text.removesuffix("."))
        if match:
            return holds(*match.groups(), scene)
    raise AssertionError(f"no reading of {text!r}")


def made_statements(make: Callable[[Scene, random.Random, str], Statement | None]) -> list[tuple[Scene, Statement]]:
    rng = random.Random(5)
    return [(scene, it) for scene in SCENES for label in LABELS for _ in range(4) if (it := make(scene, rng, label))]


def test_same_seed_same_pixels() -> None:
    scene = sample_scene(123)
    assert scene == sample_scene(123)
    assert np.array_equal(np.asarray(paint(scene)), np.asarray(paint(sample_scene(123))))
    assert scene != sample_scene(124)


def test_boxes_hold_the_shapes_pixels() -> None:
    scene = next(it for it in SCENES if it.background == "plain" and len(it.objects) == 4)
    pixels = np.asarray(paint(scene)).astype(int)
    changed = (abs(pixels - pixels[0, 0]).sum(2) > 0).nonzero()
    boxes = [it.box for it in scene.objects]
    for y, x in zip(*changed, strict=True):
        assert any(a - 1 <= x <= c + 1 and b - 1 <= y <= d + 1 for a, b, c, d in boxes)
    for left, top, right, bottom in boxes:
        assert 0 <= left < right <= scene.width
        assert 0 <= top < bottom <= scene.height
        assert tuple(pixels[int((top + bottom) / 2), int((left + right) / 2)]) != tuple(pixels[0, 0])


def test_shapes_do_not_overlap_and_sizes_differ() -> None:
    for scene in SCENES:
        for index, one in enumerate(scene.objects):
            for other in scene.objects[:index]:
                assert np.hypot(*np.subtract(one.centre, other.centre)) > one.radius + other.radius
        assert all((it.radius > 0.1 * scene.side) == (it.size == "large") for it in scene.objects)


def test_seed_ranges_are_disjoint() -> None:
    ranges = sorted((TOWER_SEEDS, TRAINING_SEEDS, HELD_OUT_SEEDS, DEMO_SEEDS), key=lambda it: it.start)
    assert all(a.stop <= b.start for a, b in pairwise(ranges))


def test_labels_agree_with_a_second_reading() -> None:
    for scene, made in made_statements(statement):
        truth = {True: "entailment", False: "contradiction", None: "neutral"}[read(made.hypothesis, scene)]
        assert truth == made.label, (made, caption(scene))


def test_premises_are_true_or_unknown_and_labels_follow() -> None:
    for scene, made in made_statements(statement_after_premise):
        assert made.premise
        if made.premise != "nothing.":
            assert read(made.premise, scene) in (True, None), made
        if made.kind != "fact":
            truth = {True: "entailment", False: "contradiction", None: "neutral"}[read(made.hypothesis, scene)]
            assert truth == made.label, made
        else:
            assert read(made.hypothesis, scene) is None
            assert (made.hypothesis == made.premise) == (made.label == "entailment")


def test_all_labels_and_kinds_are_common() -> None:
    made = [it for _, it in made_statements(statement)]
    labels, kinds = Counter(it.label for it in made), Counter(it.kind for it in made if it.label != "neutral")
    assert min(labels.values()) > 0.95 * max(labels.values())
    assert min(kinds.values()) > 0.02 * sum(kinds.values())
    for kind in kinds:
        share = sum(it.label == "entailment" for it in made if it.kind == kind) / kinds[kind]
        assert share == pytest.approx(0.5, abs=0.15), kind


def test_answers_agree_with_a_second_reading() -> None:
    rng = random.Random(6)
    for scene in SCENES:
        for _ in range(6):
            made = question(scene, rng)
            if made is None:
                continue
            assert made.answer in ANSWER_LIST
            assert made.text.endswith("?")
            text = made.text.removesuffix("?")
            if match := re.fullmatch(r"how many (.+) (?:are there|can be seen)", text):
                assert NUMBERS[len(named(match[1], scene))] == made.answer
            elif match := re.fullmatch(r"is there an? (.+)", text):
                assert ("yes" if named(match[1], scene) else "no") == made.answer
            elif match := re.fullmatch(r"is the (.+) (left of|right of|above|below) the (.+)", text):
                assert ("yes" if stands(*match.groups(), scene) else "no") == made.answer
            elif match := re.fullmatch(r"what shape is (left of|right of|above|below) the (.+)", text):
                [thing] = named(match[2], scene)
                axis, sign = {"left of": (0, -1), "right of": (0, 1), "above": (1, -1), "below": (1, 1)}[match[1]]
                best = max(scene.objects, key=lambda it: sign * (middle(it)[axis] - middle(thing)[axis]))
                assert best.shape == made.answer
            else:
                match = re.fullmatch(r"what (colour|color|shape|size) is the (.+)", text)
                assert match, text
                [thing] = named(match[2], scene)
                assert getattr(thing, {"color": "colour"}.get(match[1], match[1])) == made.answer


def test_captions_count_every_shape() -> None:
    for scene in SCENES:
        if not scene.objects:
            assert caption(scene) == "nothing"
            continue
        parts = caption(scene).split(" and ")
        numbers = [1 if part.split()[0] in ("a", "an") else NUMBERS.index(part.split()[0]) for part in parts]
        assert sum(numbers) == len(scene.objects)
        for number, part in zip(numbers, parts, strict=True):
            assert len(named(part.split(" ", 1)[1], scene)) == number
