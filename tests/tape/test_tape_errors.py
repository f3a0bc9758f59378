"""What goes wrong is refused, by name and with numbers."""

from __future__ import annotations

import numpy as np
import pytest

import pebbling as pb


@pb.op
def double(x):
    return 2 * x


double.vjp(lambda x, y, g: 2 * g)


def test_a_result_that_is_not_a_number_needs_a_seed():
    tape = pb.Tape()
    x = tape.leaf(np.ones((2, 3)))
    y = double(x)
    with pytest.raises(pb.PebblingError, match=r"shape \(2, 3\).*seed="):
        tape.pullback(y)
    with pytest.raises(pb.PebblingError, match=r"the seed has shape \(3,\), its value \(2, 3\)"):
        tape.pullback(y, np.ones(3))
    with pytest.raises(pb.PebblingError, match=r"tangent of a leaf has shape \(\), its value \(2, 3\)"):
        tape.hvp(y, {x: 1.0}, np.ones((2, 3)))
    assert tape.pullback(y, np.ones((2, 3)))[x].tolist() == [[2.0] * 3] * 2


def test_handles_of_another_tape_and_of_a_freed_one():
    one, other = pb.Tape(), pb.Tape()
    x = one.leaf(1.0)
    y = double(x)
    with pytest.raises(pb.PebblingError, match="another tape"):
        other.pullback(y)
    add = pb.op(lambda a, b: a + b)
    with pytest.raises(pb.PebblingError, match="an input of op <lambda> is a handle of another tape"):
        add(x, other.leaf(1.0))
    one.free()
    for use in (lambda: one.pullback(y), lambda: double(y), lambda: one.hvp(y, {})):
        with pytest.raises(pb.PebblingError, match="freed"):
            use()


def test_what_is_no_handle_or_no_leaf():
    tape = pb.Tape()
    x = tape.leaf(1.0)
    y = double(x)
    with pytest.raises(pb.PebblingError, match="the result is float, not a handle"):
        tape.pullback(3.0)
    with pytest.raises(pb.PebblingError, match="for leaves"):
        tape.hvp(y, {y: 1.0})
    with pytest.raises(pb.PebblingError, match="not a handle"):
        tape.hvp(y, {"x": 1.0})
    with pytest.raises(pb.PebblingError, match="this is a handle"):
        tape.leaf(x)
    with pytest.raises(TypeError, match=r"\.value"):
        np.sin(x)
    with pytest.raises(TypeError, match="neither true nor false"):
        bool(x)


def test_handles_as_keywords_and_inside_lists():
    tape = pb.Tape()
    x = tape.leaf(1.0)
    scale = pb.op(lambda x, *, by: x * by)
    with pytest.raises(pb.PebblingError, match="handle as the keyword by"):
        scale(x, by=x)
    join = pb.op(lambda parts: sum(parts))
    with pytest.raises(pb.PebblingError, match=r"inside a list \(input 0\)"):
        join([x, x])


def test_an_op_without_a_vjp_on_the_way_is_named_and_others_are_not_asked():
    blind = pb.op(lambda x: np.sin(x))
    blind.name = "blind"
    tape = pb.Tape()
    x = tape.leaf(1.0)
    seen = blind(x)
    assert tape.pullback(double(x))[x] == 2.0
    with pytest.raises(pb.PebblingError, match=r"op blind .* has no vjp.*@blind\.vjp"):
        tape.pullback(double(seen))


def test_wrong_shapes_and_numbers_of_cotangents_are_named():
    @pb.op
    def odd(x, y):
        return x + y

    tape = pb.Tape()
    x, y = tape.leaf(np.ones(3)), tape.leaf(np.ones(3))
    z = odd(x, y)
    odd.vjp(lambda x, y, g: (g, g[:2]))
    with pytest.raises(pb.PebblingError, match=r"vjp of op odd gave .* shape \(2,\) for input 1, .* shape \(3,\)"):
        tape.pullback(z, np.ones(3))
    odd.vjp(lambda x, y, g: g)
    with pytest.raises(pb.PebblingError, match="gave 1 cotangents for 2 inputs"):
        tape.pullback(z, np.ones(3))
    odd.vjp(lambda x, y, g: (g, g))
    odd.jvp(lambda x, y, dx: dx[0][:1])
    with pytest.raises(pb.PebblingError, match=r"jvp of op odd gave .* shape \(1,\) for output 0, .* shape \(3,\)"):
        tape.hvp(z, {x: np.ones(3)}, np.ones(3))
    odd.jvp(lambda x, y, dx: (dx[0], dx[1]))
    with pytest.raises(pb.PebblingError, match="gave 2 tangents for 1 outputs"):
        tape.hvp(z, {x: np.ones(3)}, np.ones(3))


def compiled(x):
    return np.frombuffer(np.asarray(x * 1.0).tobytes())


def test_rules_that_nothing_can_build_are_asked_for():
    black_box = pb.op(compiled)
    black_box.vjp(lambda x, y, g: compiled(g))
    tape = pb.Tape()
    x = tape.leaf(np.ones(2))
    y = black_box(x)
    with pytest.raises(pb.PebblingError, match=r"op compiled has no jvp, .*@compiled\.jvp.*differences"):
        tape.hvp(y, {x: np.ones(2)}, np.ones(2))
    black_box.jvp(lambda x, y, dx: dx[0])
    with pytest.raises(pb.PebblingError, match=r"op compiled has no vjp_dot, .*@compiled\.vjp_dot.*differences"):
        tape.hvp(y, {x: np.ones(2)}, np.ones(2))


def test_differences_only_by_name():
    cube = pb.op(jvp="differences", vjp_dot="differences")(lambda x: compiled(x) ** 3)
    cube.vjp(lambda x, y, g: 3 * compiled(x[0]) ** 2 * g)
    tape = pb.Tape()
    x = tape.leaf(np.array([1.0, 2.0]))
    change = tape.hvp(cube(x), {x: np.array([1.0, 0.5])}, np.ones(2))[1][x]
    np.testing.assert_allclose(change, [6.0, 6.0], rtol=1e-8)
    with pytest.raises(ValueError, match="vjp_dot is 'differences' or left out"):
        pb.op(vjp_dot="complex step")


@pytest.mark.parametrize("slots", [1, 3])
def test_a_replay_that_differs(slots):
    random = np.random.default_rng(0)
    noisy = pb.op(lambda x: x + random.normal())
    noisy.vjp(lambda x, y, g: g)
    tape = pb.Tape(slots=slots)
    u = tape.leaf(1.0)
    for _ in tape.loop(range(8)):
        u = noisy(u)
    with pytest.raises(pb.ReplayError, match=r"step \d of loop 0 of the tape \(<lambda>\) came out differently"):
        tape.pullback(u)
    quiet = pb.Tape(slots=slots, verify=False)
    x = u = quiet.leaf(1.0)
    for _ in quiet.loop(range(8)):
        u = noisy(u)
    assert quiet.pullback(u)[x] == 1.0


def test_a_buffer_that_is_returned_every_time():
    buffer = np.zeros(4)

    @pb.op
    def reuse(x):
        np.multiply(x, 1.5, out=buffer)
        return buffer

    reuse.vjp(lambda x, y, g: 1.5 * g)
    tape = pb.Tape(slots=3)
    u = tape.leaf(np.ones(4))
    for _ in tape.loop(range(6)):
        u = reuse(u)
    with pytest.raises(pb.ReplayError, match="same buffer"):
        tape.pullback(u, np.ones(4))


def test_arrays_that_the_program_changes():
    start, forcing = np.ones(4), np.ones(4)
    shift = pb.op(lambda x, by: x + by)
    shift.vjp(lambda x, y, g: (g, None))
    tape = pb.Tape(slots=3)
    u = tape.leaf(start)
    for i in tape.loop(range(6)):
        forcing[:] = i
        u = shift(u, forcing)
    with pytest.raises(pb.ReplayError, match="given from outside the tape was changed"):
        tape.pullback(u, np.ones(4))
    tape.free()
    u = tape.leaf(start)
    y = double(u)
    start += 1
    with pytest.raises(pb.ReplayError, match="leaf 0 was changed"):
        tape.pullback(y, np.ones(4))


def test_a_derivative_inside_a_loop_is_refused():
    tape = pb.Tape(slots=3)
    u = tape.leaf(1.0)
    for _ in tape.loop(range(3)):
        u = double(u)
        with pytest.raises(pb.PebblingError, match="loop 0 of the tape is still going on"):
            tape.pullback(u)


def test_a_loop_whose_tape_is_freed_cannot_go_on():
    tape = pb.Tape(slots=3)
    u = tape.leaf(1.0)
    steps = tape.loop(range(3))
    next(steps)
    u = double(u)
    tape.free()
    u = tape.leaf(1.0)
    with pytest.raises(pb.PebblingError, match="freed"):
        next(steps)
    assert tape.pullback(double(u))[u] == 2.0


def test_schedules_and_budgets_that_do_not_fit():
    tape = pb.Tape(schedule=pb.Revolve(5, 2))
    with pytest.raises(ValueError, match="for 5 steps, loop 0 of the tape has 6"):
        next(iter(tape.loop(range(6))))
    with pytest.raises(ValueError, match="Online"):
        next(iter(tape.loop()))
    with pytest.raises(ValueError, match="give store= for the slow one"):
        next(iter(pb.Tape(schedule=pb.Hierarchical(5, [pb.Tier(1), pb.Tier(2, 1, 1)])).loop(range(5))))
    with pytest.raises(ValueError, match="at most one of slots, memory and schedule"):
        pb.Tape(slots=3, memory="1MB")
    with pytest.raises(ValueError, match="slots must be a whole number of at least 1"):
        pb.Tape(slots=0)
    with pytest.raises(ValueError, match="keep is one of 'all', 'cheap', 'none'"):
        pb.Tape(keep="some")
    with pytest.raises(ValueError, match="cost is 'cheap' or 'expensive'"):
        pb.op(cost="dear")(compiled)


def test_a_budget_error_in_a_loop_that_is_left_comes_with_the_next_use():
    tape = pb.Tape(memory=10)
    u = tape.leaf(np.ones(1000))
    for i in tape.loop(range(10)):
        u = double(u)
        if i == 1:
            break
    with pytest.raises(pb.BudgetError) as caught:
        double(u)
    assert caught.value.minimum > 8000
    for _ in tape.loop(range(10)):
        break
    v = tape.leaf(np.ones(1000))
    steps = tape.loop(range(10))
    for _ in range(2):
        next(steps)
        v = double(v)
    with pytest.raises(pb.BudgetError):
        next(steps)
