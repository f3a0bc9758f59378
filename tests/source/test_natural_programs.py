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
    "a_set_of_what_the_loop_makes": "use numbers or text in place of the object",
    "a_dict_by_what_the_loop_makes": "use numbers or text in place of the object",
    "weak_references_to_what_the_loop_makes": "make the objects before the loop",
    "remembered_results_of_a_method": "call basis.__wrapped__, or keep results in a dict of your own",
    "remembered_results_of_a_clock": "call rate.__wrapped__, or keep results in a dict of your own",
    "remembered_random_numbers": "call disorder.__wrapped__, or keep results in a dict of your own",
    "two_generators_of_the_same_bits": "Reach it in one way alone",
    "objects_in_an_array": "keep what changes in a list, a dict or an object of your own",
    "an_attribute_of_a_member_of_an_enum": "keep what changes in a list, a dict or an object of your own",
    "a_generator_in_an_object": "can't be copied",
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
