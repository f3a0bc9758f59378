"""What can't be compiled of a plain loop on JAX arrays is refused, with file and line."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_common import assert_same
from source_programs import Body, X, breaks, checkpointed, fill, hands_on_a_numpy_array

import pebbling as pb
from flat_loops import run


def breaks_and_has_an_else(x):
    for _ in range(5):  # here
        x = jnp.sin(x)
        if x[0] < 0.1:
            break
    else:
        x = x * 2
    return jnp.sum(x)


def breaks_and_collects(x):
    ys = []
    for _ in range(5):  # here
        x = jnp.sin(x)
        ys.append(x)
        if x[0] < 0.1:
            break
    return sum(ys)[0]


def binds_in_the_logic_of_an_exit(x):
    for k in range(5):
        x = jnp.sin(x)
        if (size := jnp.sum(x)) < 0.1 and k > 1:  # here
            break
    return jnp.sum(x) * size


def changes_an_object_before_it_breaks(x):
    ys = [x, x]
    for _ in range(5):  # here
        x = jnp.sin(x)
        ys[0] = x
        if x[0] < 0.1:
            x = ys.pop()
            break
    return jnp.sum(x) + jnp.sum(ys[0])


def breaks_before_it_binds(x):
    for _ in range(5):  # here
        x = jnp.sin(x)
        if x[0] < 0.1:
            break
        last = x
    return jnp.sum(last)


def breaks_and_binds(x):
    while (size := jnp.sum(x)) > 0.01:  # here
        x = x / 2
        if jnp.max(x) < 0.1:
            break
    return size


def returns(x):
    for _ in range(5):
        if jnp.sum(x) < 0:  # here
            return x
        x = x - 1
    return jnp.sum(x)


def decides(x):
    for i in range(5):
        x = x * 2 if i > 2 else x  # here
    return jnp.sum(x)


def returns_from_a_loop_without_end(x):
    while True:
        x = x / 2
        if jnp.max(x) < 0.1:  # here
            return jnp.sum(x)


def never_ends(x):
    while True:  # here
        x = x / 2
    return jnp.sum(x)


def asks_for_a_constant(x, going=True):
    while going:  # here
        x = x / 2
    return jnp.sum(x)


def asks_an_array(x):
    while x > 0.1:  # here
        x = x / 2
    return jnp.sum(x)


def grows(x):
    y = x[:1]
    for _ in range(4):  # here
        y = jnp.concatenate([y, x])
    return jnp.sum(y)


def becomes_an_array(x):
    s = 0.0
    for _ in range(4):  # here
        s = s + x
    return jnp.sum(s)


def changes_its_type(x):
    k = jnp.int32(0)
    for _ in range(4):  # here
        k = k + jnp.sum(x)
    return k


def becomes_an_integer(x):
    k = 0.5
    for _ in range(4):  # here
        x = x * k
        k = jnp.argmax(x)
    return jnp.sum(x)


def grows_a_list(x):
    ys = [x]
    for _ in range(4):  # here
        ys.append(jnp.sin(ys[-1]))
    return sum(ys)[0]


def begins_with_nothing(x):
    best = None
    for _ in range(4):  # here
        x = jnp.sin(x)
        best = x if best is None else jnp.minimum(best, x)
    return jnp.sum(best)


def changes_a_word(x):
    mode = "a"
    for _ in range(4):  # here
        x = jnp.sin(x) if mode == "a" else x
        mode = "b"
    return jnp.sum(x)


def takes_an_element_of_a_list(x):
    gains = [1.0, 2.0, 3.0]
    for i in range(3):
        x = x * gains[i]  # here
    return jnp.sum(x)


def loops_up_to_the_index(x):
    for i in range(3):
        for _ in list(range(i)):  # here
            x = jnp.sin(x)
    return jnp.sum(x)


def formats(x):
    for i in range(3):
        x = x * len(f"{i:03d}")  # here
    return jnp.sum(x)


def makes_a_number(x):
    for _ in range(3):
        x = x * float(x[0])  # here
    return jnp.sum(x)


def selects(x):
    for _ in range(3):
        x = x + jnp.sum(x[x > 0])  # here
    return jnp.sum(x)


def uses_numpy(x):
    for _ in range(3):
        x = np.sin(x)  # here
    return jnp.sum(x)


def writes_into_an_array(x):
    for i in range(3):
        x[i] = 0.0  # here
    return jnp.sum(x)


def writes_into_a_numpy_array(x):
    table = np.zeros(3)
    for i in range(3):
        table[i] = 1.0  # here
        x = x * 2
    return jnp.sum(x) + table[0]


def draws(x):
    rng = np.random.default_rng(0)
    for _ in range(3):  # here
        x = x + rng.normal()
    return jnp.sum(x)


def draws_from_everybodys(x):
    for _ in range(3):  # here
        x = x + np.random.normal()
    return jnp.sum(x)


def moves_on(x):
    numbers = iter([1.0, 2.0, 3.0])
    for _ in range(3):  # here
        x = x * next(numbers)
    return jnp.sum(x)


def collects_for_an_unknown_time(x):
    ys = []
    while jnp.sum(x) > 0.1:  # here
        x = x / 2
        ys.append(x)
    return sum(ys)[0]


def leaves_what_may_not_be(x):
    while jnp.sum(x) > 0.1:  # here
        r = jnp.sum(x)
        x = x / 2
    return r


def over_unlike_arrays(x):
    for w in [x, x[:2]]:  # here
        x = x + jnp.sum(w)
    return jnp.sum(x)


def over_words(x):
    for word in ["a", "bc"]:  # here
        x = x * len(word)
    return jnp.sum(x)


def over_keys(x):
    table = {"a": x, "b": 2 * x}
    for key, value in table.items():  # here
        x = x + value * len(key)
    return jnp.sum(x)


def over_a_generator(x):
    for k in (2 * k for k in range(3)):  # here
        x = x * k
    return jnp.sum(x)


def changes_the_items(x):
    bodies = [Body(x, x), Body(2 * x, x)]
    for body in bodies:  # here
        body.position = body.position + x
    return jnp.sum(bodies[0].position)


def swaps(x):
    a, b = [x], [2 * x]
    for _ in range(3):  # here
        a, b = b, a
    return jnp.sum(a[0])


def begins_with_no_array(x):
    y = 0.0
    for i in range(3):  # here
        y = jnp.sin(y + i)
    return jnp.sum(x) * y


def collects_in_a_range_of_traced_bounds(x):
    ys = []
    n = jnp.argmax(x)
    for _ in range(n):  # here
        ys.append(x)
    return jnp.sum(x)


def zips_traced_bounds(x):
    n = jnp.argmax(x)
    for _, y in zip(range(n), x):  # here
        x = x + y
    return jnp.sum(x)


def appends_what_it_changes(x):
    bodies, body = [], Body(x, x)
    for _ in range(3):  # here
        body.position = jnp.sin(body.position)
        bodies.append(body)
    return jnp.sum(bodies[0].position)


def names_it_twice(x):
    body = Body(x, x)
    for _ in range(3):  # here
        body.position = jnp.sin(body.position)
        last = body
    return jnp.sum(last.position)


def lets_go(x):
    first = body = Body(x, x)
    for _ in range(3):  # here
        body.position = jnp.sin(body.position)
        body = Body(body.position, x)
    return jnp.sum(first.position) + jnp.sum(body.position)


def changes_the_list_that_it_runs_over(x):
    xs = [x, 2 * x, 3 * x]
    for y in xs:  # here
        xs[2] = xs[2] + y
    return jnp.sum(xs[2])


REFUSED = [
    (changes_the_list_that_it_runs_over, "changes an object that it runs over"),
    (appends_what_it_changes, "appends an object to a list and goes on changing it"),
    (names_it_twice, "two names stand for one object"),
    (lets_go, "changes an object and then lets go of it"),
    (breaks, "decides by a value.*if …: break"),
    (breaks_and_has_an_else, "its else depends on a break"),
    (breaks_and_collects, "appends to ys, and has a break that is traced"),
    (binds_in_the_logic_of_an_exit, "decides by a value"),
    (changes_an_object_before_it_breaks, "before a traced break changes an object"),
    (breaks_before_it_binds, "last has no value if a break ends the first step"),
    (breaks_and_binds, "its head binds a name"),
    (returns, "decides by a value"),
    (decides, "decides by a value.*jnp.where"),
    (returns_from_a_loop_without_end, "decides by a value"),
    (never_ends, "nothing that the loop changes decides when it ends"),
    (asks_for_a_constant, "nothing that the loop changes decides when it ends"),
    (asks_an_array, "3 truth values.*jnp.all"),
    (grows, r"y is float32\[1\] before a step and float32\[4\] after it"),
    (becomes_an_array, r"s is float32\[\] before a step and float32\[3\] after it"),
    (changes_its_type, r"k is int32\[\] before a step and float32\[\] after it.*astype"),
    (becomes_an_integer, r"k is float32\[\] before a step and int32\[\] after it"),
    (grows_a_list, "ys has another structure after a step .a list of 2. than before it .a list of 1."),
    (begins_with_nothing, r"best is None before a step and an array float32\[3\] after it"),
    (changes_a_word, "mode is 'a' before a step and 'b' after it"),
    (takes_an_element_of_a_list, r"as a Python int.*jnp.stack"),
    (loops_up_to_the_index, "as a Python int.*pebbling.jax.fori_loop"),
    (formats, "formats a value"),
    (makes_a_number, r"asks for the number.*keep it an array"),
    (selects, "selects by a mask"),
    (uses_numpy, "to NumPy.*jax.numpy"),
    (writes_into_an_array, r"x = x.at\[i\].set"),
    (writes_into_a_numpy_array, r"x = x.at\[i\].set"),
    (draws, "draws from rng .Generator.*jax.random"),
    (draws_from_everybodys, "global random generator"),
    (moves_on, "numbers is an iterator"),
    (collects_for_an_unknown_time, "appends to ys.*known only when it ends"),
    (leaves_what_may_not_be, "r has no value before the loop: give it one"),
    (over_unlike_arrays, "different types"),
    (over_words, "no arrays, such as 'a'.*unrolls"),
    (over_keys, "keys differ"),
    (over_a_generator, "runs over a generator"),
    (changes_the_items, "changes the items"),
    (swaps, "change places"),
    (begins_with_no_array, "from none that it names"),
    (collects_in_a_range_of_traced_bounds, "appends to ys.*bounds that are traced"),
    (zips_traced_bounds, "range of traced bounds with other items"),
]


@pytest.mark.parametrize(("f", "reason"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_what_cannot_be_compiled_is_refused_with_file_and_line(f, reason):
    lines, first = inspect.getsourcelines(f)
    line = first + next(place for place, text in enumerate(lines) if "# here" in text)
    with pytest.raises(pb.SourceError, match=rf"(?s)source_\w+\.py:{line}: .*{reason}"):
        jax.jit(jax.grad(checkpointed(f)))(X)


def test_the_line_is_that_of_a_function_in_the_same_file():
    line = inspect.getsourcelines(fill)[1] + 1
    with pytest.raises(pb.SourceError, match=f"source_programs.py:{line}: .*writes into a NumPy array"):
        jax.grad(checkpointed(hands_on_a_numpy_array))(X)


def test_the_error_of_jax_is_the_cause():
    with pytest.raises(pb.SourceError) as caught:
        jax.grad(checkpointed(breaks))(X)
    assert isinstance(caught.value.__cause__, jax.errors.TracerBoolConversionError)


def test_errors_of_the_program_stay_what_they_are():
    def f(x):
        for _ in range(3):
            x = x + undefined(x)
        return jnp.sum(x)

    def undefined(x):
        raise LookupError("no such table")

    def caught(x):
        try:
            for _ in range(3):
                x = x + undefined(x)
        except LookupError:
            x = 2 * x
        return jnp.sum(x)

    with pytest.raises(LookupError, match="no such table"):
        jax.grad(checkpointed(f))(X)
    assert_same(jax.grad(checkpointed(caught))(X), 2 * jnp.ones(3))


def test_a_loop_of_numpy_arrays_names_those_of_jax():
    def f(x):
        return run(lambda item, state, consts: (None, state, (), ()), range(3), [x]).state[0]

    with pytest.raises(pb.PebblingError, match=r"pebbling\.jax\.fori_loop"):
        jax.grad(f)(1.0)
