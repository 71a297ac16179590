"""Questions about a scene and their answers of one word."""

import random
from dataclasses import dataclass

from demo.recipe.nouns import NUMBERS, Phrase, shuffled, some_phrase, swapped, unique_phrase
from demo.recipe.scenes import COLOURS, SHAPES, SIZES, Scene
from demo.recipe.statements import OPPOSITE, relations, unique_pair

ANSWER_LIST = (*NUMBERS, *COLOURS, *SHAPES, *SIZES, "yes", "no")
"""Every answer there is."""

_TRIES = 60
WEIGHTS = {"count": 30, "colour": 18, "shape": 10, "size": 8, "neighbour": 30, "present": 14, "position": 22}


@dataclass(frozen=True)
class Question:
    """A question, its answer, and the kind of fact it asks for."""

    text: str
    answer: str
    kind: str


def question(scene: Scene, rng: random.Random) -> Question | None:
    """A question about the scene, or None where a few tries find none."""
    for _ in range(_TRIES):
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        made = _make(kind, scene, rng)
        if made:
            return Question(*made, kind)
    return None


def _make(kind: str, scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    if kind == "count":
        return _how_many(scene, rng)
    if kind == "present":
        return _is_there(scene, rng)
    if kind == "position":
        return _where(scene, rng)
    if kind == "neighbour":
        return _neighbour(scene, rng)
    for thing in shuffled(scene, rng):
        subject = unique_phrase(thing, scene, rng, without=kind)
        if subject:
            answer = getattr(thing, kind)
            word = rng.choice(("colour", "color")) if kind == "colour" else kind
            return f"what {word} is the {subject.one}?", answer
    return None


def _how_many(scene: Scene, rng: random.Random) -> tuple[str, str]:
    if not scene.objects:
        phrase = Phrase(None, rng.choice(list(COLOURS)), rng.choice(SHAPES)) if rng.random() < 0.5 else Phrase()
    elif rng.random() < 0.2:
        phrase = Phrase()
    else:
        phrase = some_phrase(rng.choice(scene.objects), rng)
        if rng.random() < 0.25:
            phrase = swapped(phrase, scene, rng)
    form = rng.choice(("how many {} are there?", "how many {} can be seen?"))
    return form.format(phrase.many), NUMBERS[phrase.count(scene)]


def _is_there(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    truth = rng.random() < 0.5
    if not scene.objects:
        return f"is there {Phrase(None, None, rng.choice(SHAPES)).with_article}?", "no"
    phrase = some_phrase(rng.choice(scene.objects), rng)
    if not truth:
        phrase = swapped(phrase, scene, rng)
        if phrase.count(scene):
            return None
    return f"is there {phrase.with_article}?", "yes" if truth else "no"


def _where(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    pair = unique_pair(scene, rng)
    if pair is None:
        return None
    first, first_phrase, second, second_phrase = pair
    truth = rng.random() < 0.5
    relation = rng.choice(relations(first, second, scene))
    relation = relation if truth else OPPOSITE[relation]
    return f"is the {first_phrase.one} {relation} the {second_phrase.one}?", "yes" if truth else "no"


def _neighbour(scene: Scene, rng: random.Random) -> tuple[str, str] | None:
    """What stands on one side of a shape, asked only where that is exactly one shape and no other is near the line."""
    for thing in shuffled(scene, rng):
        phrase = unique_phrase(thing, scene, rng)
        if phrase is None:
            continue
        for relation in rng.sample(list(OPPOSITE), len(OPPOSITE)):
            others = [other for other in scene.objects if other is not thing]
            there = [other for other in others if relation in relations(other, thing, scene)]
            clear = [other for other in others if OPPOSITE[relation] in relations(other, thing, scene)]
            if len(there) == 1 and len(clear) == len(others) - 1:
                return f"what shape is {relation} the {phrase.one}?", there[0].shape
    return None
