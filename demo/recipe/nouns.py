"""Noun phrases for shapes, and captions: `large red circle`, `two small blue squares and a green star`."""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from demo.recipe.scenes import COLOURS, SHAPES, SIZES, Object, Scene

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")
NOTHING = "nothing"
ATTRIBUTES = ("size", "colour", "shape")
VALUES: dict[str, tuple[str, ...]] = {"size": SIZES, "colour": tuple(COLOURS), "shape": SHAPES}

_MOST_GROUPS = 3
_PRESENT_VALUE = 0.7


@dataclass(frozen=True)
class Phrase:
    """What a noun phrase says of a shape; None is left unsaid."""

    size: str | None = None
    colour: str | None = None
    shape: str | None = None

    def matches(self, thing: Object) -> bool:
        """Whether the phrase is true of the shape."""
        return all(getattr(self, name) in (None, getattr(thing, name)) for name in ATTRIBUTES)

    def count(self, scene: Scene) -> int:
        """How many shapes of the scene the phrase is true of."""
        return sum(self.matches(thing) for thing in scene.objects)

    @property
    def said(self) -> list[str]:
        """Names of the attributes that the phrase gives."""
        return [name for name in ATTRIBUTES if getattr(self, name) is not None]

    @property
    def one(self) -> str:
        """`red circle`."""
        return " ".join([*(word for word in (self.size, self.colour) if word), self.shape or "shape"])

    @property
    def many(self) -> str:
        """`red circles`."""
        return self.one + "s"

    @property
    def with_article(self) -> str:
        """`a red circle`, `an orange star`."""
        return ("an " if self.one[0] in "aeiou" else "a ") + self.one

    def numbered(self, count: int) -> str:
        """`one red circle`, `two red circles`."""
        return f"{NUMBERS[count]} {self.one if count == 1 else self.many}"


def phrase_of(thing: Object) -> Phrase:
    """All that a phrase can say of the shape."""
    return Phrase(thing.size, thing.colour, thing.shape)


def some_phrase(thing: Object, rng: random.Random, without: str | None = None) -> Phrase:
    """A phrase true of the shape that gives at least one attribute, and not the attribute `without`."""
    names = [name for name in ATTRIBUTES if name != without]
    while True:
        kept = [name for name in names if rng.random() < (0.45 if name == "size" else 0.75)]
        if kept:
            return Phrase(**{name: getattr(thing, name) for name in kept})


def unique_phrase(thing: Object, scene: Scene, rng: random.Random, without: str | None = None) -> Phrase | None:
    """A phrase true of this shape only, if a few tries find one."""
    for _ in range(4):
        phrase = some_phrase(thing, rng, without)
        if phrase.count(scene) == 1:
            return phrase
    return None


def swapped(phrase: Phrase, scene: Scene, rng: random.Random, attribute: str | None = None) -> Phrase:
    """The phrase with one attribute changed, mostly to a value that another shape of the scene has."""
    name = attribute or rng.choice(phrase.said)
    others = [value for value in VALUES[name] if value != getattr(phrase, name)]
    present = sorted({getattr(thing, name) for thing in scene.objects} & set(others))
    return replace(phrase, **{name: rng.choice(present if present and rng.random() < _PRESENT_VALUE else others)})


def shuffled(scene: Scene, rng: random.Random) -> Iterator[Object]:
    """The scene's shapes in random order."""
    yield from rng.sample(scene.objects, len(scene.objects))


def groups(scene: Scene) -> list[tuple[int, Phrase]]:
    """The scene's shapes counted by full kind or, where more than three kinds stand there, by shape alone.

    The order is fixed: by shape, then colour, then size.
    """
    kinds = Counter(phrase_of(thing) for thing in scene.objects)
    if len(kinds) > _MOST_GROUPS:
        kinds = Counter(Phrase(shape=thing.shape) for thing in scene.objects)
    return sorted(((count, phrase) for phrase, count in kinds.items()), key=lambda group: _order(group[1]))


def caption_of(counted: list[tuple[int, Phrase]]) -> str:
    """`a large red circle and two small blue squares`, or `nothing`."""
    parts = [phrase.with_article if count == 1 else phrase.numbered(count) for count, phrase in counted]
    return " and ".join(parts) or NOTHING


def caption(scene: Scene) -> str:
    """The one caption of the scene."""
    return caption_of(groups(scene))


def _order(phrase: Phrase) -> tuple[int, ...]:
    return tuple(
        VALUES[name].index(value) if (value := getattr(phrase, name)) else -1 for name in ("shape", "colour", "size")
    )
