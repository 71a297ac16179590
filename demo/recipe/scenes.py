"""Scenes of coloured shapes: sampled from a seed, so that what is true of them is known, and painted with Pillow.

Coordinates are picture pixels, x to the right and y downwards. Sizes are fractions of a picture's *side*, by which is
meant the geometric mean of its width and height: the model resizes pictures to a square, which keeps that mean.
"""

import math
import random
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

Colour = tuple[int, int, int]

SHAPES = ("circle", "square", "triangle", "star")
SIZES = ("large", "small")
COLOURS: dict[str, Colour] = {
    "red": (214, 38, 40),
    "orange": (246, 136, 28),
    "yellow": (246, 218, 40),
    "green": (42, 158, 62),
    "blue": (38, 84, 214),
    "purple": (142, 56, 176),
}

TOWER_SEEDS = range(0, 1_000_000)
TRAINING_SEEDS = range(1_000_000, 2_000_000)
HELD_OUT_SEEDS = range(2_000_000, 3_000_000)
DEMO_SEEDS = range(3_000_000, 4_000_000)
"""Seeds of scenes by use. They are disjoint, so no picture of the evaluation or the demo was trained on."""

SIDE_PIXELS = (200, 480)
LONGEST_ASPECT = 1.6
DIAMETER = {"large": (0.24, 0.30), "small": (0.12, 0.155)}
GAP = 0.045
"""Least distance between two shapes' circumscribed circles."""

_COUNT_WEIGHTS = (2, 12, 18, 20, 20, 16, 12)
_BACKGROUND_WEIGHTS = {"plain": 66, "gradient": 14, "noise": 8, "texture": 12}
_COLOUR_JITTER = 16
_TILT_DEGREES = 12
_SUPERSAMPLING = 4
_STAR_WAIST = 0.45
_FEW_KINDS = 3


@dataclass(frozen=True)
class Object:
    """One shape: what it is, and the circle around it in picture pixels."""

    shape: str
    colour: str
    size: str
    centre: tuple[float, float]
    radius: float
    tilt: float = 0.0
    paint: Colour = (0, 0, 0)

    @property
    def outline(self) -> list[tuple[float, float]]:
        """The corners of the shape in picture pixels; for a circle, of a fine polygon."""
        return [(self.centre[0] + x, self.centre[1] + y) for x, y in _corners(self.shape, self.radius, self.tilt)]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom in picture pixels."""
        xs, ys = zip(*self.outline, strict=True)
        return min(xs), min(ys), max(xs), max(ys)


@dataclass(frozen=True)
class Scene:
    """A picture's content: `width` by `height` pixels, a background, and the shapes on it."""

    seed: int
    width: int
    height: int
    background: str
    objects: tuple[Object, ...]

    @property
    def side(self) -> float:
        """Geometric mean of width and height in pixels."""
        return math.sqrt(self.width * self.height)


def sample_scene(seed: int, *, crowded: bool = False) -> Scene:
    """The scene of a seed: none to six shapes, mostly of three kinds at most; `crowded`: up to eleven of any kind."""
    rng = random.Random(seed)
    while True:
        width, height = rng.randint(*SIDE_PIXELS), rng.randint(*SIDE_PIXELS)
        if max(width, height) <= LONGEST_ASPECT * min(width, height):
            break
    background = rng.choices(list(_BACKGROUND_WEIGHTS), list(_BACKGROUND_WEIGHTS.values()))[0]
    count = rng.randint(3, 11) if crowded else rng.choices(range(len(_COUNT_WEIGHTS)), _COUNT_WEIGHTS)[0]
    empty = Scene(seed, width, height, background, ())
    while True:
        scene = _placed(empty, _kinds(rng, count, crowded), rng)
        if scene is not None:
            return scene
        count = max(1, count - 1) if crowded else count


def paint(scene: Scene) -> Image.Image:
    """The scene as an RGB picture; the same seed gives the same pixels."""
    image = Image.fromarray(_background(scene))
    for thing in scene.objects:
        left, top, right, bottom = (math.floor(value) for value in thing.box)
        size = (right - left + 2, bottom - top + 2)
        mask = Image.new("L", (size[0] * _SUPERSAMPLING, size[1] * _SUPERSAMPLING))
        corners = [((x - left) * _SUPERSAMPLING, (y - top) * _SUPERSAMPLING) for x, y in thing.outline]
        ImageDraw.Draw(mask).polygon(corners, fill=255)
        image.paste(thing.paint, (left, top), mask.resize(size, Image.Resampling.BOX))
    return image


def _kinds(rng: random.Random, count: int, crowded: bool) -> list[tuple[str, str, str]]:
    """Shape, colour and size of `count` objects."""

    def kind() -> tuple[str, str, str]:
        return rng.choice(SHAPES), rng.choice(list(COLOURS)), rng.choice(SIZES)

    if crowded:
        return [
            (shape, colour, "small" if rng.random() < 0.4 else size)
            for shape, colour, size in (kind() for _ in range(count))
        ]
    if rng.random() < 0.2:
        return [kind() for _ in range(count)]
    first = kind()
    few = [first]
    for _ in range(rng.randint(1, _FEW_KINDS) - 1):
        shape, colour, size = kind()
        if rng.random() < 0.5:  # a near relative of the first: two of the three attributes agree
            shape, colour, size = rng.choice(
                [(shape, first[1], first[2]), (first[0], colour, first[2]), (first[0], first[1], size)]
            )
        few.append((shape, colour, size))
    return [few[index] if index < len(few) else rng.choice(few) for index in range(count)]


def _placed(scene: Scene, kinds: list[tuple[str, str, str]], rng: random.Random) -> Scene | None:
    """The scene with shapes that do not touch, or None if they do not fit."""
    objects: list[Object] = []
    for shape, colour, size in sorted(kinds, key=lambda kind: kind[2]):
        radius = rng.uniform(*DIAMETER[size]) * scene.side / 2 * (1.12 if shape != "circle" else 1.0)
        paint = _jittered(COLOURS[colour], rng)
        tilt = rng.uniform(-_TILT_DEGREES, _TILT_DEGREES)
        for _ in range(60):
            centre = rng.uniform(radius, scene.width - radius), rng.uniform(radius, scene.height - radius)
            if all(math.dist(centre, other.centre) > radius + other.radius + GAP * scene.side for other in objects):
                objects.append(Object(shape, colour, size, centre, radius, tilt, paint))
                break
        else:
            return None
    rng.shuffle(objects)
    return replace(scene, objects=tuple(objects))


def _jittered(colour: Colour, rng: random.Random) -> Colour:
    red, green, blue = (min(255, max(0, c + rng.randint(-_COLOUR_JITTER, _COLOUR_JITTER))) for c in colour)
    return red, green, blue


def _corners(shape: str, radius: float, tilt: float) -> list[tuple[float, float]]:
    """Corners about the centre, on the circle of `radius` (a star's waist lies within)."""
    start, count = {"circle": (0, 48), "square": (45, 4), "triangle": (-90, 3), "star": (-90, 10)}[shape]
    points = []
    for index in range(count):
        angle = math.radians(start + tilt + 360 * index / count)
        length = radius * (_STAR_WAIST if shape == "star" and index % 2 else 1)
        points.append((length * math.cos(angle), length * math.sin(angle)))
    return points


def _background(scene: Scene) -> NDArray[np.uint8]:
    """Pixels UINT8 [height, width, 3]: pale or dark, and vivid only where nothing stands on it."""
    rng = np.random.default_rng(scene.seed)
    vivid = not scene.objects and scene.background == "texture"
    height, width = scene.height, scene.width
    base = _tint(rng, vivid)
    if scene.background == "gradient":
        other, angle = _tint(rng, vivid), rng.uniform(0, 2 * math.pi)
        y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
        ramp = np.clip(0.5 + (x - 0.5) * math.cos(angle) + (y - 0.5) * math.sin(angle), 0, 1)[..., None]
        pixels = base * (1 - ramp) + other * ramp
    elif scene.background == "texture":
        pixels = _clouds(rng, scene, vivid) + base
    else:
        pixels = np.broadcast_to(base, (height, width, 3))
    if scene.background in ("noise", "texture"):
        pixels = pixels + rng.normal(0, rng.uniform(3, 14), (height, width, 1))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def _tint(rng: np.random.Generator, vivid: bool) -> NDArray[np.float64]:
    """A colour FP64 [3]: bright two times in three, dark else, with a little hue."""
    level = rng.uniform(165, 255) if rng.random() < 0.67 else rng.uniform(0, 80)
    return level + rng.uniform(-90, 90, 3) if vivid else level + rng.uniform(-18, 18, 3)


def _clouds(rng: np.random.Generator, scene: Scene, vivid: bool) -> NDArray[np.float64]:
    """Smooth random structure at several scales, as in a blurred photograph: FP64 [height, width, 3] about zero."""
    total = np.zeros((scene.height, scene.width, 3))
    for cells in (3, 6, 12, 24):
        grey = rng.normal(0, 1, (cells, cells, 1))
        coarse = grey + rng.normal(0, 1.0 if vivid else 0.25, (cells, cells, 3))
        tile = np.clip(128 + 40 * coarse, 0, 255).astype(np.uint8)
        smooth = Image.fromarray(tile).resize((scene.width, scene.height), Image.Resampling.BICUBIC)
        total += (np.asarray(smooth.filter(ImageFilter.GaussianBlur(1)), np.float64) - 128) * (2.4 / math.sqrt(cells))
    return total * (1.4 if vivid else 0.55)
