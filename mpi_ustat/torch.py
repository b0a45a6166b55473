"""Pairwise losses for PyTorch: over all pairs of the points of all ranks, whatever makes the scores.

>>> loss = pairwise_loss(net(x), y, comm)                                    # doctest: +SKIP
>>> loss.backward()                                                          # doctest: +SKIP
>>> sum_gradients(net.parameters(), comm)                                    # doctest: +SKIP

With L the loss, the same on every rank, and c_i = ∂L/∂s_i, a rank's `backward` leaves Σ_i c_i ∂s_i/∂θ over its own
points in the gradients of θ. So dL/dθ is the sum of the ranks' gradients, not their mean.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mpi_ustat.errors import UserError
from mpi_ustat.learning.losses import DEFAULT_LOSS
from mpi_ustat.learning.losses.loss import Loss
from mpi_ustat.mpi.collectives import sum_over_workers
from mpi_ustat.mpi.interrupts import deferred
from mpi_ustat.mpi.runtime import SerialComm, attempt, succeed
from mpi_ustat.numerics.types import Floats
from mpi_ustat.scores.labelled import loss_and_coefficients

try:
    import torch
    from torch.autograd import Function
except ImportError as error:
    raise ImportError(
        f"mpi_ustat.torch needs PyTorch 2.0 or later ({error}): install it with pip install 'mpi_ustat[torch]'"
    ) from error

__all__ = ["pairwise_loss", "sum_gradients"]

_DTYPES = (torch.float32, torch.float64)


@deferred()
def pairwise_loss(
    scores: torch.Tensor,
    labels: torch.Tensor | ArrayLike,
    comm: Any = None,
    loss: str | Loss = DEFAULT_LOSS,
    margin: float = 1.0,
    groups: torch.Tensor | ArrayLike | None = None,
    weights: torch.Tensor | ArrayLike | None = None,
) -> torch.Tensor:
    """Return the mean loss over all pairs of the points of all ranks, differentiable by the scores.  Collective.

    `scores.loss_and_coefficients` has the formula. Scores travel, as doubles; `backward` is local: it multiplies each
    own point's derivative by the incoming gradient, which has to be the same on all ranks, as is what is computed from
    the loss alone. `sum_gradients` then makes dL/dθ of the ranks' parts.

    Parameters
    ----------
    scores : torch.Tensor, shape (n_local,) or (n_local, 1)
        Of this rank's points, float32 or float64, on any device; may be empty on some ranks.
    labels : torch.Tensor or array_like, shape (n_local,) or (n_local, 1)
        Points of the larger of two labels should score higher; more than two labels are ordered classes.
    comm : mpi4py.MPI.Comm or SerialComm, optional
        All its ranks call, with the same options. None: this process alone.
    loss : {"hinge", "squared-hinge", "logistic"} or Loss
        Of a difference of scores.
    margin : float
        Of a loss that goes by its name and has one.
    groups : torch.Tensor or array_like, shape (n_local,) or (n_local, 1), optional
        Numbers or text: only pairs of one group count.
    weights : torch.Tensor or array_like, shape (n_local,) or (n_local, 1), optional
        Finite and not negative. They are constants: nothing is differentiated by them.

    Returns
    -------
    torch.Tensor, shape ()
        The same on every rank, of the scores' dtype and device. It can be differentiated once; NaN if a score is.

    Raises
    ------
    UserError
        On every rank, if what any rank passes can't be used, or there are not two labels among all points.
    """
    comm = SerialComm() if comm is None else comm

    def on_host() -> dict[str, Any]:
        if not isinstance(scores, torch.Tensor) or scores.dtype not in _DTYPES:
            found = scores.dtype if isinstance(scores, torch.Tensor) else type(scores).__name__
            raise UserError(f"the scores are {found}: give a tensor of float32 or float64, such as scores.float()")
        given = {"scores": scores, "labels": labels, "groups": groups, "weights": weights}
        return {name: _one_a_point(name, each) for name, each in given.items() if each is not None}

    arrays = succeed(comm, on_host, "reading the scores")
    value, coefficients = loss_and_coefficients(comm, **arrays, loss=loss, margin=margin)
    derivative = torch.from_numpy(coefficients).to(scores).reshape(scores.shape)
    return _Known.apply(scores, derivative, value)


def _one_a_point(name: str, values: Any) -> NDArray[Any]:
    """Return the values of each point in the host's memory, without a last axis of length 1."""
    array = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
    if array.ndim == 0 or array.shape[1:] not in ((), (1,)):
        raise UserError(f"the {name} have shape {array.shape}: give one of each point, in shape (n,) or (n, 1)")
    return array.reshape(len(array))


class _Known(Function):
    """A number that is known together with its derivative by the scores."""

    @staticmethod
    def forward(ctx: Any, scores: torch.Tensor, derivative: torch.Tensor, value: float) -> torch.Tensor:
        ctx.save_for_backward(scores, derivative)
        return scores.new_tensor(value)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _Once.apply(gradient, *ctx.saved_tensors), None, None


class _Once(Function):
    """The product of the incoming gradient and the derivative, which depends on the scores in a way that isn't known.

    It takes the scores, so that whatever is differentiated a second time comes here: torch's own `once_differentiable`
    lets through an incoming gradient that is a constant, and what follows would be differentiated as if the derivative
    were one, too.
    """

    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, scores: torch.Tensor, derivative: torch.Tensor) -> torch.Tensor:
        return gradient * derivative

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None, None]:
        raise UserError("a pairwise loss can be differentiated only once: leave out create_graph for it")


@deferred()
def sum_gradients(parameters: torch.Tensor | Iterable[torch.Tensor], comm: Any) -> None:
    """Replace the gradients of parameters by their sums over the ranks, the same bits on every rank.  Collective.

    After `backward` of a `pairwise_loss` every rank then has dL/dθ. Of a loss that each rank takes over its own points
    only, it is the sum, too. The gradients are added as doubles, all at once.

    Parameters
    ----------
    parameters : tensor or iterable of tensors
        The same on every rank, such as ``net.parameters()``. A gradient that is None counts as 0 where another rank has
        one, and otherwise stays None.
    comm : mpi4py.MPI.Comm or SerialComm

    Raises
    ------
    UserError
        On every rank, if the ranks' parameters differ in number or shape, or a gradient is sparse.
    """
    members = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)

    def flat() -> list[Floats]:
        if any(each.grad is not None and each.grad.layout != torch.strided for each in members):
            raise UserError("a gradient is sparse: make it dense, as nn.Embedding(…, sparse=False) does")
        return [
            np.zeros(each.numel()) if each.grad is None else each.grad.detach().cpu().double().numpy().ravel()
            for each in members
        ]

    def told(_: list[Floats]) -> tuple[list[tuple[int, ...]], list[bool]]:
        return [tuple(each.shape) for each in members], [each.grad is not None for each in members]

    own, everyone = attempt(comm, flat, "adding up the gradients", share=told)
    if any(shapes != everyone[0][0] for shapes, _ in everyone):
        raise UserError("the ranks add up gradients of different parameters: build the same network on each of them")
    anywhere = [any(given) for given in zip(*(given for _, given in everyone), strict=True)]
    if comm.size == 1 or not any(anywhere):
        return
    kept = [part for part, given in zip(own, anywhere, strict=True) if given]
    total, _ = sum_over_workers(comm, np.concatenate(kept)[None], comm.size)  # each rank is a worker
    parts = iter(np.split(total, np.cumsum([len(part) for part in kept])[:-1]))
    for each, given in zip(members, anywhere, strict=True):
        if given:
            summed = torch.from_numpy(next(parts)).to(each).reshape(each.shape)
            if each.grad is None:
                each.grad = summed
            else:
                each.grad.detach().copy_(summed)
