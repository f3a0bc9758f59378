"""Programs as people write them have with checkpointed loops the gradients that they have without, to the last bit."""

from __future__ import annotations

import natural_programs
import numpy as np
import pytest

import pebbling as pb
from pebbling.source import checkpoint

U = np.array([0.3, -0.7, 1.1, 0.5])
OPTIONS = [{}, {"slots": 1}, {"slots": 3}]
REFUSED = {
    "an_inner_loop_changes_an_attribute_through_an_alias": "write into a copy of it",
    "a_while_that_renews_its_array": "np.zeros_like",
    "buffers_that_are_filled": "np.zeros_like",
    "a_generator_function_beside_the_loop": "can't be copied",
    "a_memo_made_by_a_function": "pass u to it as an argument",
    "a_method_of_an_operator": "Pass it as one of the loop's arguments",
}
"""Those that may be refused, and what they are told to do."""


@pytest.mark.parametrize("function", natural_programs.PROGRAMS, ids=lambda function: function.__name__)
def test_it_is_what_the_plain_program_gives(function):
    words = REFUSED.get(function.__name__)
    try:
        value, gradient = pb.value_and_grad(function)(U.copy())
        for options in OPTIONS:
            found, other = pb.value_and_grad(checkpoint(**options)(function))(U.copy())
            assert found == value
            np.testing.assert_array_equal(other, gradient)
    except pb.SourceError as error:
        if words is None or words not in str(error):
            raise
