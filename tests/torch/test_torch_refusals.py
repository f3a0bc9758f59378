"""What a loop refuses: it says what it found, and never loses a gradient in silence."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pebbling as pb
from pebbling.torch import loop


def test_writing_into_the_state():
    def body(i, s):
        s += 1
        return s * 2

    with pytest.raises(pb.ReplayError, match="written into"):
        loop(body, torch.randn(3, requires_grad=True) * 1, 10)


def test_writing_into_a_view_of_the_state():
    def body(i, s):
        first = s[:1]
        first.mul_(2)
        return s * 2

    with pytest.raises(pb.ReplayError, match="written into"):
        loop(body, torch.randn(3, requires_grad=True) * 1, 10)


def test_writing_into_an_argument_or_a_captured_tensor():
    c, x = torch.randn(3), torch.randn(3, requires_grad=True)

    def argument(i, s, c):
        c.add_(1)
        return s * c

    def captured(i, s):
        c.add_(1)
        return s * c

    with pytest.raises(pb.ReplayError, match="written into"):
        loop(argument, x, 10, c)
    with pytest.raises(pb.ReplayError, match="written into"):
        loop(captured, x, 10)


def test_writing_between_the_loop_and_backward():
    x, a = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    data = torch.randn(3)
    value = loop(lambda i, s, a, data: torch.sin(s * a + data), x, 10, a, data).sum()
    data.add_(1)
    with pytest.raises(pb.ReplayError, match="written into"):
        value.backward()
    value = loop(lambda i, s, a: torch.sin(s * a), x, 10, a).sum()
    with torch.no_grad():
        a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


class Hiding:
    """Holds a tensor where nobody can look."""

    __slots__ = ("_get",)

    def __init__(self, tensor):
        store = iter(lambda: tensor, None)
        self._get = store.__next__

    def __call__(self):
        return self._get()


def test_hidden_leaves_are_found_on_the_graph():
    w, x = torch.randn(3, requires_grad=True), torch.randn(3)
    hiding = Hiding(w)
    loop(lambda i, s: torch.sin(s * hiding()), x, 10, slots=2).sum().backward()
    found, w.grad = w.grad, None
    s = x
    for _ in range(10):
        s = torch.sin(s * w)
    s.sum().backward()
    assert torch.equal(found, w.grad)


def test_hidden_computed_tensors_are_refused():
    theta, x = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    hiding = Hiding(theta * 2)
    with pytest.raises(pb.SourceError, match="can't be found"):
        loop(lambda i, s: torch.sin(s * hiding()), x, 10)


def test_a_leaf_that_is_only_met_later_is_refused():
    w, x = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
    hiding = Hiding(w)
    value = loop(lambda i, s: torch.sin(s * hiding()) if i == 5 else torch.sin(s), x, 10, slots=2)
    with pytest.raises(pb.SourceError, match="can't be found"):
        value.sum().backward()


def test_a_state_that_is_differentiated_only_later_is_refused():
    x, t = torch.randn(3, requires_grad=True), torch.zeros(3)

    def body(i, s):
        x, t = s
        return torch.sin(x + t), (t + x if i == 5 else t + 1)

    with pytest.raises(pb.ReplayError, match=r"state\[1\].*require gradients from the start"):
        loop(body, (x, t), 10, slots=2)[0].sum().backward()
    assert loop(body, (x, t.requires_grad_()), 10, slots=2)[0].requires_grad


def test_random_numbers_that_are_not_torchs_are_found_out():
    generator = np.random.default_rng(0)
    x = torch.randn(300_000, requires_grad=True)
    value = loop(lambda i, s: torch.sin(s) * float(generator.random()), x, 10, slots=2)
    with pytest.raises(pb.ReplayError, match="came out differently"):
        value.sum().backward()


def test_a_buffer_that_is_updated_only_later_is_refused():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, i, x):
            if i == 3:
                self.seen += 1
            return torch.sin(x)

    with pytest.raises(pb.ReplayError, match=r"buffer 'seen' of Counting"):
        loop(Counting(), torch.randn(3, requires_grad=True), 10)


def test_differentiating_twice_in_reverse_says_what_to_do():
    x = torch.randn(3, requires_grad=True)
    (first,) = torch.autograd.grad(loop(lambda i, s: torch.sin(s), x, 10).sum(), x, create_graph=True)
    with pytest.raises(pb.PebblingError, match="jvp"):
        first.sum().backward()


def test_a_kept_gradient_of_a_captured_tensor_is_refused():
    theta, x = torch.randn(3, requires_grad=True), torch.randn(3)
    w = theta * 2
    w.retain_grad()
    with pytest.raises(pb.PebblingError, match="retain_grad"):
        loop(lambda i, s: torch.sin(s * w), x, 10)
    loop(lambda i, s, w: torch.sin(s * w), x, 10, w).sum().backward()
    assert w.grad is not None


def test_a_schedule_for_another_length_is_refused():
    with pytest.raises(ValueError, match="9 steps"):
        loop(lambda i, s: s, torch.randn(3, requires_grad=True), 10, schedule=pb.Revolve(9, 3))


def test_another_structure_is_refused():
    with pytest.raises(pb.PebblingError, match="same structure"):
        loop(lambda i, s: (s, s), torch.randn(3, requires_grad=True), 10)
