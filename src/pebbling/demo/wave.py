"""Sound that crosses a room, in plain NumPy: the program that the demo differentiates.

A short tone starts at a loudspeaker, bends through a lens of slower air and is heard by a microphone.
Explicit steps in time on a grid; the borders swallow what reaches them. Differentiated is the loudness
with respect to the speed of sound at every point: where would a change be heard?
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
Sound: TypeAlias = tuple[Array, Array, Any]

SHAPE = 84, 144
STEPS = 1500
SPEAKER, MICROPHONE, LENS = (46, 20), (38, 124), (42, 70)
LENS_RADIUS = 14.0
PERIOD, FADE = 90, 16
MOMENTS = 0.32, 0.5, 0.67
"""When to look at the pressure, as a share of all steps."""


def around(center: tuple[int, int], width: float) -> Array:
    """A smooth bump at a point of the room."""
    rows, columns = np.ogrid[: SHAPE[0], : SHAPE[1]]
    return np.exp(-((rows - center[0]) ** 2 + (columns - center[1]) ** 2) / (2 * width**2))


def air() -> Array:
    """The square of the speed of sound, in cells a step: slower inside the lens."""
    return 0.018 - 0.009 * np.tanh(3 * around(LENS, 8.0))


def border() -> Array:
    """What is left of a field after a step: all of it inside, less and less towards the walls."""
    distances = [np.minimum(np.arange(n), np.arange(n)[::-1]) for n in SHAPE]
    inside = np.minimum.outer(*distances)
    return np.exp(-((0.02 * np.clip(FADE - inside, 0, None)) ** 2))


SILENCE: Sound = np.zeros(SHAPE), np.zeros(SHAPE), 0.0
SOURCE, EAR, WALLS = around(SPEAKER, 1.5), around(MICROPHONE, 3.0), border()


def step(i: int, sound: Sound, speed: Array) -> Sound:
    """The pressure before and now, and how loud it has been, one step later."""
    before, now, loudness = sound
    spread = np.roll(now, 1, 0) + np.roll(now, -1, 0) + np.roll(now, 1, 1) + np.roll(now, -1, 1) - 4.0 * now
    tone = np.sin(2 * np.pi * i / PERIOD) * np.exp(-(((i - 3 * PERIOD) / (1.2 * PERIOD)) ** 2))
    after = WALLS * (2.0 * now - before + speed * spread + tone * SOURCE)
    return WALLS * now, after, loudness + np.sum(EAR * after**2)
