"""Estimates of Hoeffding components: unbiased over all samples of small laws, and right in simulations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from references import normal_half_square

from mpi_ustat.inference.components import (
    from_swr_blocks,
    k_sample_components,
    one_sample_components,
    subsets,
    two_sample_components,
)
from mpi_ustat.paper import models

Array = NDArray[Any]
SIGMAS = 4.5
"""Of a simulation: a right mean is refused with probability 7e-6 per comparison."""


def mean_over(values: Array, axes: Sequence[int]) -> Array:
    return values.mean(axis=tuple(axes), keepdims=True) if axes else values


def interactions(values: Array, n_axes: int) -> dict[tuple[int, ...], Array]:
    """Return d_Q = Σ_{R⊆Q} (-1)^{|Q|-|R|} (mean over the axes outside R), by the definition."""
    found = {}
    for q in subsets(n_axes):
        inside = [r for size in range(len(q) + 1) for r in itertools.combinations(q, size)]
        means = {r: mean_over(values, [axis for axis in range(n_axes) if axis not in r]) for r in inside}
        found[q] = sum(((-1) ** (len(q) - len(r)) * means[r] for r in inside), np.zeros(()))
    return found


def sums_of_squares(values: Array) -> dict[tuple[int, ...], Array]:
    """Return SS_Q of values of shape (n_1, …, n_K, p), each (p, p)."""
    sizes, n_axes = values.shape[:-1], values.ndim - 1
    return {
        q: math.prod(sizes[k] for k in range(n_axes) if k not in q)
        * np.einsum("ia,ib->ab", *[d.reshape(-1, values.shape[-1])] * 2)
        for q, d in interactions(values, n_axes).items()
    }


def margins(values: Array) -> tuple[Array, Array, Array]:
    """Return the centred sums of row means, of column means and of all values of shape (n, m, p)."""
    mean = values.mean(axis=(0, 1))
    rows, columns = values.mean(axis=1) - mean, values.mean(axis=0) - mean
    centred = (values - mean).reshape(-1, values.shape[-1])
    return rows.T @ rows, columns.T @ columns, centred.T @ centred


def true_components(values: Array, laws: Sequence[Array]) -> Array:
    """Return σ_S² of a kernel on a finite law: values (v_1, …, v_K, p), and each axis' probabilities."""
    n_axes = len(laws)

    def expect(array: Array, axes: Sequence[int]) -> Array:
        for axis in axes:
            weights = laws[axis].reshape([-1 if k == axis else 1 for k in range(array.ndim)])
            array = (array * weights).sum(axis=axis, keepdims=True)
        return array

    components = []
    for s in subsets(n_axes):
        inside = [r for size in range(len(s) + 1) for r in itertools.combinations(s, size)]
        g = sum(
            ((-1) ** (len(s) - len(r)) * expect(values, [k for k in range(n_axes) if k not in r]) for r in inside),
            np.zeros(()),
        )
        products = g[..., :, None] * g[..., None, :]
        components.append(expect(products, s).reshape(products.shape[-2:]))
    return np.array(components)


def all_samples(laws: Sequence[Array], sizes: Sequence[int]) -> Iterator[tuple[float, list[Array]]]:
    """Yield the probability of every outcome of independent samples, and the drawn support points of each."""
    draws = [itertools.product(range(len(law)), repeat=size) for law, size in zip(laws, sizes, strict=True)]
    for outcome in itertools.product(*draws):
        points = [np.array(drawn) for drawn in outcome]
        yield math.prod(float(law[i].prod()) for law, i in zip(laws, points, strict=True)), points


def test_subsets_go_by_size_and_then_lexicographically() -> None:
    assert subsets(1) == ((0,),)
    assert subsets(2) == ((0,), (1,), (0, 1))
    assert subsets(3) == ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2))
    assert len(subsets(5)) == 31


@pytest.mark.parametrize("sizes", [(2,), (4,), (2, 2), (3, 2), (2, 3, 2)])
def test_components_of_k_samples_are_unbiased_over_all_samples_of_a_finite_law(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(sizes))
    laws = [rng.dirichlet(np.ones(2 + k % 2)) for k in range(len(sizes))]
    kernel = rng.standard_normal((*(len(law) for law in laws), 2))  # two kernels on the same points
    total = np.zeros((2 ** len(sizes) - 1, 2, 2))
    for probability, points in all_samples(laws, sizes):
        total += probability * k_sample_components(sizes, sums_of_squares(kernel[np.ix_(*points)]))
    truth = true_components(kernel, laws)
    np.testing.assert_allclose(total, truth, rtol=0, atol=1e-12 * np.abs(kernel).max() ** 2)
    assert np.abs(truth).min() > 1e-6  # of all the components there is something to miss


def test_the_sums_of_squares_add_up_and_give_each_component_by_its_own_mean_squares() -> None:
    values = np.random.default_rng(3).standard_normal((4, 3, 5, 1))
    squares = sums_of_squares(values)
    assert math.isclose(sum(float(s.item()) for s in squares.values()), float(((values - values.mean()) ** 2).sum()))
    components = k_sample_components((4, 3, 5), squares)[:, 0, 0]
    ms = {q: float(s.item()) / math.prod((4, 3, 5)[k] - 1 for k in q) for q, s in squares.items()}
    pairs = ms[0, 1] + ms[0, 2] - ms[0, 1, 2]
    assert math.isclose(components[0], (ms[(0,)] - pairs) / 15, rel_tol=1e-12)
    assert math.isclose(components[4], (ms[0, 2] - ms[0, 1, 2]) / 3, rel_tol=1e-12)
    assert math.isclose(components[6], ms[0, 1, 2], rel_tol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(2, 2), (5, 3), (3, 11)])
def test_components_of_two_samples_are_those_of_k_and_put_together_the_variance_of_the_complete_statistic(
    n: int, m: int
) -> None:
    values = np.random.default_rng(n).standard_normal((n, m, 2)) + 7.0
    found = two_sample_components(n, m, *margins(values))
    np.testing.assert_allclose(found, k_sample_components((n, m), sums_of_squares(values)), rtol=1e-9, atol=1e-12)
    for part in range(2):
        h = values[..., part]
        s_r, s_c = h.mean(axis=1).var(ddof=1), h.mean(axis=0).var(ddof=1)
        residual = h - h.mean(axis=1, keepdims=True) - h.mean(axis=0) + h.mean()
        ms_residual = (residual**2).sum() / ((n - 1) * (m - 1))
        var_x, var_z, var_xz = found[:, part, part]
        variance = var_x / n + var_z / m + var_xz / (n * m)
        delong = s_r / n + s_c / m
        assert math.isclose(var_xz, ms_residual, rel_tol=1e-9)
        assert math.isclose(variance, delong - ms_residual / (n * m), rel_tol=1e-9)


def test_numbers_are_taken_as_matrices_of_one_entry() -> None:
    values = np.random.default_rng(1).standard_normal((6, 4, 1))
    rows, columns, squares = (float(each.item()) for each in margins(values))
    found = two_sample_components(6, 4, rows, columns, squares)
    assert found.shape == (3, 1, 1)
    np.testing.assert_array_equal(found, two_sample_components(6, 4, *margins(values)))
    assert one_sample_components(5, 2.0, 9.0).shape == (2, 1, 1)
    assert k_sample_components((3,), {(0,): 4.0}).tolist() == [[[2.0]]]


# --- one sample


def one_sample_sums(matrix: Array) -> tuple[int, Array, Array]:
    """Return n and the centred sums of `one_sample_components`, of symmetric matrices of shape (n, n, p)."""
    n = len(matrix)
    above = matrix[np.triu_indices(n, 1)]
    mean = above.mean(axis=0)
    rows = (matrix.sum(axis=1) - np.einsum("iip->ip", matrix)) / (n - 1) - mean
    return n, rows.T @ rows, (above - mean).T @ (above - mean)


@pytest.mark.parametrize("n", [4, 5])
def test_components_of_one_sample_are_unbiased_over_all_samples_of_a_finite_law(n: int) -> None:
    rng = np.random.default_rng(n)
    law = rng.dirichlet(np.ones(3))
    kernel = rng.standard_normal((3, 3, 2))
    kernel = kernel + kernel.transpose(1, 0, 2)
    total = np.zeros((2, 2, 2))
    for probability, (points,) in all_samples([law], [n]):
        total += probability * one_sample_components(*one_sample_sums(kernel[np.ix_(points, points)]))
    two_samples = true_components(kernel, [law, law])  # of h(X, Y) as if Y were another sample: ζ₁, ζ₁ and δ
    np.testing.assert_allclose(two_samples[0], two_samples[1], atol=1e-12)
    np.testing.assert_allclose(total, two_samples[1:], rtol=0, atol=1e-11)


def simulate(estimate: Callable[[np.random.Generator], Array], truth: Sequence[float], n_runs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = np.array([estimate(rng) for _ in range(n_runs)])
    error = values.std(axis=0, ddof=1) / math.sqrt(n_runs)
    assert (error > 0).all()
    assert (np.abs(values.mean(axis=0) - truth) <= SIGMAS * error).all()


def test_components_of_normal_samples_are_right_on_average() -> None:
    def gini(rng: np.random.Generator) -> Array:
        x = 3.0 + rng.standard_normal(12)
        return one_sample_components(*one_sample_sums(np.abs(x[:, None] - x)[..., None])).ravel()

    def half_square(rng: np.random.Generator) -> Array:
        x = 3.0 + 1.5 * rng.standard_normal(9)
        return one_sample_components(*one_sample_sums(((x[:, None] - x) ** 2 / 2)[..., None])).ravel()

    def product(rng: np.random.Generator) -> Array:
        x, z = 0.5 + rng.standard_normal(10), 2.0 * rng.standard_normal(7) - 1.0
        return two_sample_components(10, 7, *margins(np.multiply.outer(x, z)[..., None])).ravel()

    of_gini, of_square = models.normal_gini()[1], normal_half_square(1.5)[1]
    of_product = models.normal_product(0.5, -1.0, 1.0, 2.0)[1]
    simulate(gini, [of_gini.zeta1, of_gini.delta], 6000, 1)
    simulate(half_square, [of_square.zeta1, of_square.delta], 6000, 2)
    simulate(product, [of_product.var_x, of_product.var_z, of_product.var_xz], 6000, 3)


# --- blocks drawn with replacement


def test_blocks_drawn_with_replacement_estimate_the_empirical_law() -> None:
    # Over all the 3³ · 2² ways to draw a block from 3 × 2 points; then that law's components give the layout's own.
    rng = np.random.default_rng(8)
    values = rng.standard_normal((3, 2, 2))
    laws = [np.full(3, 1 / 3), np.full(2, 1 / 2)]
    total = np.zeros((3, 2, 2))
    for probability, points in all_samples(laws, (3, 2)):
        total += probability * two_sample_components(3, 2, *margins(values[np.ix_(*points)]))
    np.testing.assert_allclose(total, true_components(values, laws), atol=1e-13)
    np.testing.assert_allclose(
        from_swr_blocks(total, (3, 2)), two_sample_components(3, 2, *margins(values)), rtol=0, atol=1e-13
    )


@pytest.mark.parametrize("sizes", [(1, 5), (5, 1), (0, 3)])
def test_samples_of_one_point_have_no_components(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least two points"):
        two_sample_components(*sizes, 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="at least two points"):
        from_swr_blocks(np.ones((3, 1, 1)), sizes)


def test_one_sample_needs_four_points() -> None:
    with pytest.raises(ValueError, match="at least four points, not 3"):
        one_sample_components(3, 1.0, 1.0)


def test_estimates_are_not_clipped() -> None:
    # A matrix without row or column effects: all the variance is residual, and var_x, var_z come out negative.
    values = np.array([[1.0, -1.0], [-1.0, 1.0]])[..., None]
    np.testing.assert_array_equal(two_sample_components(2, 2, *margins(values)).ravel(), [-2.0, -2.0, 4.0])
