"""What the demo does and says."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..chain import StoreAll
from ..drive import Taylor, taylor_test
from ..loops.forecast import Forecast, forecast
from ..numpy import loop, value_and_grad
from ..show.pebbles import pebbles
from ..show.words import describe
from ..units import format_bytes
from .picture import Shown, draw
from .watch import Watched, watch
from .wave import MOMENTS, SHAPE, SILENCE, STEPS, air, step

SHARE = 0.01
"""Of the memory that storing everything takes."""


def loudness(steps: int, **budget: Any) -> Callable[[Any], Any]:
    """How loud the microphone hears the tone, as a function of the speed of sound at every point."""
    return lambda speed: loop(step, SILENCE, steps, speed, **budget)[2]


def demo(
    directory: str | os.PathLike[str] = "demo", say: Callable[[str], None] = print, steps: int = STEPS
) -> list[Path]:
    """Differentiate a simulation in 1 % of the memory, say what it took, and draw it; the files that were written."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    pictures = [folder / "wave.svg", folder / "plan.svg"]
    speed, all_of_it = air(), StoreAll(steps)

    say(f"Sound crosses a room: {steps:,} steps of {SHAPE[0]} × {SHAPE[1]} points in plain NumPy.")
    say("Wanted: how the loudness at the microphone changes with the speed of sound at every point.\n")
    everything = watch(lambda: value_and_grad(loudness(steps, schedule=all_of_it))(speed))
    budget = int(SHARE * everything.peak)
    planned = forecast(step, SILENCE, steps, speed, memory=budget)
    say(f"storing everything  {format_bytes(everything.peak)}")
    say(f"budget              {format_bytes(budget)}, {100 * SHARE:.0f} % of it")
    _say_plan(planned, say)

    budgeted = watch(lambda: value_and_grad(loudness(steps, memory=budget))(speed))
    _say_measured(everything, budgeted, say)
    fast = _seconds(lambda: value_and_grad(loudness(steps, schedule=all_of_it))(speed))
    slow = _seconds(lambda: value_and_grad(loudness(steps, memory=budget))(speed))
    say(f"time                {slow:.1f} s of CPU; storing everything {fast:.1f} s")

    say("\nIs it the gradient? The Taylor test of it:\n")
    say(str(_taylor(steps, speed, budgeted.result)))

    draw(Shown(_moments(steps, speed), budgeted.result[1], everything, budgeted, budget), pictures[0])
    pebbles(planned.schedule, pictures[1], state=planned.measured.state, tape=planned.measured.tape)
    say(f"\nPictures: {pictures[0]} (the wave, its gradient, the memory), {pictures[1]} (the plan)")
    return pictures


def _say_plan(planned: Forecast, say: Callable[[str], None]) -> None:
    measured = planned.measured
    say(f"one state           {format_bytes(measured.state)}; the tape of a step {format_bytes(measured.tape)}")
    say(f"plan                {describe(planned.schedule)}; {planned.forwards:.2f} forwards a step")
    say(
        f"planned peak        {format_bytes(planned.peak)}, of it {format_bytes(measured.working)} for the step at hand"
    )


def _say_measured(everything: Watched, budgeted: Watched, say: Callable[[str], None]) -> None:
    share = 100 * budgeted.peak / everything.peak
    equal = everything.result[1].tobytes() == budgeted.result[1].tobytes()
    say(f"measured peak       {format_bytes(budgeted.peak)}, {share:.2f} % of storing everything")
    say(f"gradients           {'equal to the last bit' if equal else 'NOT EQUAL'}")


def _seconds(call: Callable[[], Any]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


def _taylor(steps: int, speed: Any, result: tuple[Any, Any]) -> Taylor:
    """Tests the gradient that was computed; elsewhere the value alone is needed."""
    return taylor_test(lambda at: result if at is speed else (loudness(steps)(at), None), speed)


def _moments(steps: int, speed: Any) -> list[tuple[int, Any]]:
    """The pressure at some moments of the way."""
    sound, fields, wanted = SILENCE, [], [round(moment * steps) for moment in MOMENTS]
    for i in range(steps):
        sound = step(i, sound, speed)
        if i + 1 in wanted:
            fields.append((i + 1, sound[1]))
    return fields
