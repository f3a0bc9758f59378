"""Loops inside the transforms of torch.func, and forward mode."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap
from torch_bodies import plain

import pebbling as pb
from pebbling.torch import loop

torch.manual_seed(0)
NET = torch.nn.Linear(4, 4)
X, A, V = (torch.randn(4) for _ in range(3))


def body(i, s, a):
    return torch.tanh(NET(s) * a + 0.3 * s)


def value(run, steps=30):
    return lambda x, a: (run(body, x, steps, a, slots=4) ** 2).sum()


class Model(torch.nn.Module):
    def __init__(self, run):
        super().__init__()
        self.net, self.run = NET, run

    def forward(self, x):
        return (self.run(lambda i, y: torch.tanh(self.net(y)), x, 30, slots=4) ** 2).sum()


TRANSFORMS = {
    "grad": lambda run: grad(value(run))(X, A),
    "grad of the second argument": lambda run: grad(value(run), 1)(X, A),
    "vjp": lambda run: vjp(lambda x: run(body, x, 30, A, slots=4), X)[1](V)[0],
    "jvp": lambda run: jvp(lambda x: value(run)(x, A), (X,), (V,))[1],
    "jvp over grad": lambda run: jvp(grad(lambda x: value(run)(x, A)), (X,), (V,))[1],
    "vmap": lambda run: vmap(lambda x: value(run)(x, A))(torch.stack([X, V])),
    "vmap over grad": lambda run: vmap(grad(lambda x: value(run)(x, A)))(torch.stack([X, V])),
    "hessian": lambda run: hessian(lambda x: value(run)(x, A))(X),
    "jacrev": lambda run: jacrev(lambda x: run(body, x, 30, A, slots=4))(X),
    "functional_call": lambda run: grad(lambda p: functional_call(Model(run), p, (X,)))(
        dict(Model(run).named_parameters())
    )["net.weight"],
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_give_what_they_give_on_a_plain_loop(name):
    assert torch.equal(TRANSFORMS[name](plain), TRANSFORMS[name](loop))


def test_grad_of_grad():
    def twice(run):
        return grad(lambda x: (grad(value(run, 10))(x, A) * V).sum())(X)

    torch.testing.assert_close(twice(loop), twice(plain), rtol=1e-5, atol=1e-6)


def test_forward_mode_without_a_transform():
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, V)
        ours, theirs = (forward_ad.unpack_dual(value(run)(x, A)).tangent for run in (loop, plain))
        assert torch.equal(ours, theirs)


def test_gradients_of_parameters_through_vmap():
    def gradients(run):
        NET.zero_grad()
        vmap(lambda x: value(run)(x, A))(torch.stack([X, V])).sum().backward()
        return NET.weight.grad.clone()

    torch.testing.assert_close(gradients(loop), gradients(plain))
    NET.zero_grad()


def test_while_loops():
    def f(run):
        return grad(lambda x: run(lambda i, s: s * 1.1 + x, x, lambda s, i: i < 17).sum())(X)

    assert torch.equal(f(loop), f(plain))


def test_integer_leaves_are_batched_too():
    def f(run):
        def step(i, s):
            x, k = s
            return torch.sin(x * k), k + 1

        return vmap(grad(lambda x, k: run(step, (x, k), 8)[0].sum()))(torch.randn(2, 3), torch.tensor([1, 2]))

    torch.manual_seed(0)
    expected = f(plain)
    torch.manual_seed(0)
    assert torch.equal(f(loop), expected)


def test_a_tensor_that_cannot_be_followed_is_refused():
    held = (X * 2,)
    with pytest.raises(pb.SourceError, match="pass it as an argument"):
        grad(lambda x: loop(lambda i, s: s * held[0], x, 5).sum())(X)


def test_bytes_cannot_be_measured_inside_a_transform():
    with pytest.raises(pb.PebblingError, match="give slots="):
        grad(lambda x: loop(lambda i, s: torch.sin(s), x, 5, memory="1MB").sum())(X)


def test_differentiating_a_transform_again_in_reverse_is_refused():
    x = torch.randn(2, 3, requires_grad=True)
    loss = vmap(lambda x: loop(lambda i, s: torch.sin(s), x, 5).sum())(x).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(pb.PebblingError, match="jvp"):
        first.sum().backward()
