"""Speelpenning's product y = x₁·x₂·…·xₙ, the oldest example of reverse mode.

Step i multiplies the state, a plain number, by xᵢ. The gradient is wanted with respect to the
factors, which are not part of the state: they are the same for all steps, and keeping them in every
snapshot would be a waste. So the adjoint carries their gradient along and ``reverse`` adds to it.

Shows: gradients with respect to parameters.

Run: python examples/speelpenning.py
"""

import numpy as np

import pebbling as pb

SIZE = 10


def factors():
    """x_i = i/(i+1), whose product is 1/(n+1)."""
    count = np.arange(1.0, SIZE + 1)
    return count / (count + 1)


def product_and_gradient(x, **budget):
    """The result of multiplying all of ``x``; its adjoint is that of the number 1 and that of ``x``."""

    def advance(product, step):
        return product * x[step]

    def reverse(product, adjoint, step):
        of_product, of_x = adjoint
        of_x[step] += of_product * product
        return of_product * x[step], of_x

    return pb.adjoint(advance, reverse, 1.0, len(x), seed=(1.0, np.zeros_like(x)), **budget)


def value_and_gradient(x):
    result = product_and_gradient(x, slots=3)
    return result.state, result.adjoint[1]


def main():
    x = factors()
    result = product_and_gradient(x, slots=3)
    print(f"y = {result.state}, exact {1 / (SIZE + 1)}")
    print(f"gradient       {result.adjoint[1]}")
    print(f"exact (y / x)  {1 / (SIZE + 1) / x}")
    print(result.report)
    print("\nTaylor test:")
    print(pb.taylor_test(value_and_gradient, x))


if __name__ == "__main__":
    main()
