"""Statements about a scene whose label is known by construction, alone and after a premise.

`there is one red circle` means exactly one, `there is a red circle` at least one. A statement that the picture cannot
decide is neutral; after a premise it may become true or false.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from demo.recipe.nouns import NUMBERS, Phrase, caption_of, groups, shuffled, some_phrase, swapped, unique_phrase
from demo.recipe.scenes import COLOURS, SHAPES, Object, Scene

ENTAILMENT, CONTRADICTION, NEUTRAL = LABELS = ("entailment", "contradiction", "neutral")
ANSWERS = {ENTAILMENT: "yes", CONTRADICTION: "no", NEUTRAL: "maybe"}

CLEARLY_APART = 0.2
"""Distance of two centres, as a share of the width or height, from which one is left of or above the other."""

OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
FACTS = (
    ("{} is heavy", "{} is light"),
    ("{} is new", "{} is old"),
    ("{} is hard", "{} is soft"),
    ("{} is warm", "{} is cold"),
    ("{} is wet", "{} is dry"),
    ("{} is expensive", "{} is cheap"),
    ("{} is made of wood", "{} is made of metal"),
    ("{} is clean", "{} is dirty"),
    ("a child painted {}", "an adult painted {}"),
    ("anna likes {}", "anna hates {}"),
    ("someone bought {}", "nobody bought {}"),
)
PICTURE_FACTS = (
    "the picture was made on a monday",
    "the picture was made in winter",
    "a child made the picture",
    "the picture hangs in a school",
    "someone sold the picture",
    "anna likes the picture",
)

WEIGHTS = {
    "count": 25,
    "present": 14,
    "absent": 9,
    "position": 40,
    "colour": 9,
    "shape": 5,
    "size": 5,
    "compare": 8,
    "both": 5,
    "caption": 7,
}
"""How often each kind of statement is tried; positions often find no pair of shapes to speak of."""

_TRIES = 60
_FACT_PREMISE = 0.45


@dataclass(frozen=True)
class Statement:
    """A hypothesis, its label, the kind of fact it is about, and the premise it follows, if any."""

    hypothesis: str
    label: str
    kind: str
    premise: str | None = None


def statement(scene: Scene, rng: random.Random, label: str) -> Statement | None:
    """A statement with this label, or None where the scene allows none (an empty one does not allow all)."""
    if label == NEUTRAL:
        return Statement(_unknown(scene, rng) + ".", label, "unknown")
    for _ in range(_TRIES):
        kind = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        text = _MAKERS[kind](scene, rng, label == ENTAILMENT)
        if text:
            return Statement(text + ".", label, kind)
    return None


def statement_after_premise(scene: Scene, rng: random.Random, label: str) -> Statement | None:
    """As `statement`, after a true description, or after a fact that the picture cannot tell and that may decide."""
    subjects = [phrase for thing in shuffled(scene, rng) if (phrase := unique_phrase(thing, scene, rng))]
    if subjects and rng.random() < _FACT_PREMISE:
        return _after_fact(subjects, rng, label)
    inner = statement(scene, rng, label)
    known = statement(scene, rng, ENTAILMENT)
    if inner is None or known is None:
        return None
    premise = known.hypothesis
    if rng.random() < 0.3:
        premise = caption_of(groups(scene)) + "."
    elif label != NEUTRAL and subjects and rng.random() < 0.2:
        premise = rng.choice(rng.choice(FACTS)).format("the " + subjects[0].one) + "."
    return Statement(inner.hypothesis, label, inner.kind, premise)


def relations(first: Object, second: Object, scene: Scene) -> list[str]:
    """Where `first` clearly stands as seen from `second`: at most one of left and right, and of above and below."""
    right = (first.centre[0] - second.centre[0]) / scene.width
    down = (first.centre[1] - second.centre[1]) / scene.height
    found = ["right of" if right > 0 else "left of"] if abs(right) >= CLEARLY_APART else []
    return found + (["below" if down > 0 else "above"] if abs(down) >= CLEARLY_APART else [])


def unique_pair(scene: Scene, rng: random.Random) -> tuple[Object, Phrase, Object, Phrase] | None:
    """Two shapes that stand clearly apart, each with a phrase true of it only."""
    named = [(thing, phrase) for thing in shuffled(scene, rng) if (phrase := unique_phrase(thing, scene, rng))]
    if len(named) < 2 or not relations(named[0][0], named[1][0], scene):
        return None
    return *named[0], *named[1]


def _after_fact(subjects: list[Phrase], rng: random.Random, label: str) -> Statement:
    subject = "the " + subjects[0].one
    fact = rng.sample(rng.choice(FACTS), 2)
    premise = fact[0].format(subject) + "."
    if label == ENTAILMENT:
        hypothesis = fact[0].format(subject)
    elif label == CONTRADICTION:
        hypothesis = fact[1].format(subject)
    elif len(subjects) > 1 and rng.random() < 0.5:
        hypothesis = rng.choice(fact).format("the " + subjects[1].one)
    else:
        hypothesis = rng.choice(rng.choice([pair for pair in FACTS if fact[0] not in pair])).format(subject)
    return Statement(hypothesis + ".", label, "fact", premise)


def _unknown(scene: Scene, rng: random.Random) -> str:
    things = list(shuffled(scene, rng))
    if not things or rng.random() < 0.15:
        return rng.choice(PICTURE_FACTS)
    phrase = some_phrase(things[0], rng)
    fact = rng.choice(rng.choice(FACTS))
    if phrase.count(scene) == 1:
        return fact.format("the " + phrase.one)
    return fact.replace("{} is", "{} are").format("the " + phrase.many)


def _counted(scene: Scene, rng: random.Random, truth: bool) -> str | None:
    if not scene.objects:
        return None
    phrase = Phrase() if rng.random() < 0.12 else some_phrase(rng.choice(scene.objects), rng)
    count = phrase.count(scene)
    if not truth:
        if rng.random() < 0.45 and phrase.said:
            phrase = swapped(phrase, scene, rng)
        else:
            count += rng.choice((-1, 1)) if rng.random() < 0.8 else rng.choice((-3, -2, 2, 3))
        if phrase.count(scene) == count or not 0 < count < len(NUMBERS):
            return None
    return _numbered(phrase, count, rng)


def _numbered(phrase: Phrase, count: int, rng: random.Random) -> str:
    be = "is" if count == 1 else "are"
    return rng.choice(
        (
            f"there {be} {phrase.numbered(count)}",
            f"there {be} {phrase.numbered(count)}",
            f"there {be} exactly {phrase.numbered(count)}",
            f"the picture shows {phrase.numbered(count)}",
            f"{phrase.numbered(count)} can be seen",
        )
    )


def _existence(scene: Scene, rng: random.Random, truth: bool) -> Phrase | None:
    if not scene.objects:
        return None if truth else Phrase(None, rng.choice(list(COLOURS)), rng.choice(SHAPES))
    phrase = some_phrase(rng.choice(scene.objects), rng)
    if truth:
        return phrase
    phrase = swapped(phrase, scene, rng)
    return None if phrase.count(scene) else phrase


def _present(scene: Scene, rng: random.Random, truth: bool) -> str | None:
    phrase = _existence(scene, rng, truth)
    if phrase is None:
        return None
    name = phrase.with_article
    return rng.choice(
        (f"there is {name}", f"the picture shows {name}", f"{name} can be seen", f"there is at least one {phrase.one}")
    )


def _absent(scene: Scene, rng: random.Random, truth: bool) -> str | None:
    phrase = _existence(scene, rng, not truth)
    if phrase is None:
        return None
    return rng.choice((f"there is no {phrase.one}", f"there are no {phrase.many}", f"no {phrase.one} can be seen"))


def _position(scene: Scene, rng: random.Random, truth: bool) -> str | None:
    pair = unique_pair(scene, rng)
    if pair is None:
        return None
    first, first_phrase, second, second_phrase = pair
    relation = rng.choice(relations(first, second, scene))
    if not truth:
        relation = OPPOSITE[relation]
    if relation in ("left of", "right of") and rng.random() < 0.4:
        relation = f"to the {relation}"
    return f"the {first_phrase.one} is {relation} the {second_phrase.one}"


def _attribute(name: str) -> Callable[[Scene, random.Random, bool], str | None]:
    def make(scene: Scene, rng: random.Random, truth: bool) -> str | None:
        for thing in shuffled(scene, rng):
            subject = unique_phrase(thing, scene, rng, without=name)
            if subject:
                said = Phrase(**{name: getattr(thing, name)})
                if not truth:
                    said = swapped(said, scene, rng)
                value = said.with_article if name == "shape" else getattr(said, name)
                return f"the {subject.one} is {value}"
        return None

    return make


def _compared(scene: Scene, rng: random.Random, truth: bool) -> str | None:
    if not scene.objects:
        return None
    name = rng.choice(("shape", "colour"))
    first = Phrase(**{name: getattr(rng.choice(scene.objects), name)})
    second = swapped(first, scene, rng)
    more = first.count(scene) - second.count(scene)
    if more == 0 and (truth or rng.random() < 0.5):
        return None
    if rng.random() < 0.5:
        first, second, more = second, first, -more
    word = ("more" if more > 0 else "fewer") if truth else ("more" if more < 0 else "fewer")
    return f"there are {word} {first.many} than {second.many}"


def _both(scene: Scene, rng: random.Random, truth: bool) -> str | None:
    phrases = [some_phrase(thing, rng) for thing in list(shuffled(scene, rng))[:2]]
    if len(phrases) < 2 or phrases[0] == phrases[1]:
        return None
    if not truth:
        phrases[0] = swapped(phrases[0], scene, rng)
        if phrases[0].count(scene):
            return None
    rng.shuffle(phrases)
    return f"there is {phrases[0].with_article} and {phrases[1].with_article}"


def _captioned(scene: Scene, rng: random.Random, truth: bool) -> str | None:
    counted = groups(scene)
    if not counted:
        return None
    if not truth:
        index = rng.randrange(len(counted))
        count, phrase = counted[index]
        if rng.random() < 0.5:
            phrase = swapped(phrase, scene, rng)
        else:
            count += rng.choice((-1, 1))
        found = phrase.count(scene)
        if found == count or (count == 1 and found) or not 0 < count < len(NUMBERS):
            return None  # `a red circle` is true of two as well
        counted[index] = count, phrase
    return rng.choice(("", "the picture shows ")) + caption_of(counted)


Maker = Callable[[Scene, random.Random, bool], str | None]
_MAKERS: dict[str, Maker] = {
    "count": _counted,
    "present": _present,
    "absent": _absent,
    "position": _position,
    "colour": _attribute("colour"),
    "shape": _attribute("shape"),
    "size": _attribute("size"),
    "compare": _compared,
    "both": _both,
    "caption": _captioned,
}
