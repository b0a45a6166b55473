"""The pairwise loss for PyTorch against a double loop over the pairs in PyTorch, in one process."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from sharding import SPREADS, shard

from mpi_ustat import SerialComm, UserError
from mpi_ustat.learning.losses import LOSSES
from mpi_ustat.mpi.collectives import gather_rows

torch = pytest.importorskip("torch", reason="PyTorch isn't installed: pip install 'mpi_ustat[torch]'")

from mpi_ustat.torch import pairwise_loss, sum_gradients  # noqa: E402

MARGIN = 0.75
PHI: dict[str, Any] = {
    "hinge": lambda u: torch.relu(MARGIN - u),
    "squared-hinge": lambda u: torch.relu(MARGIN - u) ** 2,
    "logistic": lambda u: torch.nn.functional.softplus(-u),
}


def data(n: int = 26) -> dict[str, Any]:
    """Return scores with ties and margins hit exactly, labels 0 to 2, weights some of which are 0, and groups."""
    generator = np.random.default_rng(n)
    return {
        "scores": torch.tensor(np.round(generator.normal(size=n) * 4) / 4),
        "labels": torch.tensor(generator.integers(0, 3, n)),
        "weights": torch.tensor(np.where(generator.random(n) < 0.2, 0.0, generator.exponential(size=n))),
        "groups": torch.tensor(generator.integers(0, 3, n)),
    }


def by_pairs(name: str, scores: Any, labels: Any, weights: Any = None, groups: Any = None) -> Any:
    """Return the loss of consecutive classes by a loop over all pairs."""
    total = torch.zeros((), dtype=scores.dtype)
    for low, high in itertools.pairwise(sorted(set(labels.tolist()))):
        loss, weight = torch.zeros((), dtype=scores.dtype), 0.0
        for i in torch.nonzero(labels == high).ravel().tolist():
            for j in torch.nonzero(labels == low).ravel().tolist():
                if groups is None or groups[i] == groups[j]:
                    both = 1.0 if weights is None else float(weights[i] * weights[j])
                    loss = loss + both * PHI[name](scores[i] - scores[j])
                    weight += both
        total = total + loss / weight
    return total


def gathered(comm: Any, values: Any) -> np.ndarray:
    return gather_rows(comm, values.detach().numpy())


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_value_and_gradient_are_those_of_a_double_loop_in_one_process(
    comm: Any, loss: str, grouped: bool, weighted: bool, spread: str, dtype: str
) -> None:
    given = data()
    names = ["labels", *["weights"] * weighted, *["groups"] * grouped]
    options = {name: given[name] for name in names}
    whole = given["scores"].clone().requires_grad_()
    expected = by_pairs(loss, whole, **options)
    (3.0 * expected).backward()

    own = shard(comm, given["scores"], spread).to(getattr(torch, dtype)).requires_grad_()
    told = {name: shard(comm, each, spread) for name, each in options.items()}
    found = pairwise_loss(own, comm=comm, loss=loss, margin=MARGIN, **told)
    (3.0 * found).backward()

    assert found.dtype == own.dtype and found.shape == () and own.grad.dtype == own.dtype
    tolerance = {"float64": 1e-12, "float32": 1e-6}[dtype]
    assert found.item() == pytest.approx(expected.item(), rel=tolerance)
    assert gathered(comm, own.grad) == pytest.approx(whole.grad.numpy(), rel=tolerance, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_cut_of_a_batch_gives_the_same_bits(comm: Any, loss: str) -> None:
    scores, labels, weights, groups = (each[:6] for each in data().values())
    labels = torch.tensor([1, 0, 0, 1, 1, 0])
    whole = scores.clone().requires_grad_()
    expected = pairwise_loss(whole, labels, None, loss, MARGIN, groups, weights)
    expected.backward()
    for cuts in itertools.combinations_with_replacement(range(7), comm.size - 1):
        mine = slice(*(0, *cuts, 6)[comm.rank : comm.rank + 2])
        own = scores[mine].clone().requires_grad_()
        found = pairwise_loss(own, labels[mine], comm, loss, MARGIN, groups[mine], weights[mine])
        found.backward()
        assert found.item() == expected.item()
        assert gathered(comm, own.grad).tobytes() == whole.grad.numpy().tobytes()


def network(dtype: Any = None, width: int = 4) -> Any:
    """Return a small network, the same on every rank."""
    torch.manual_seed(1)
    layers = (torch.nn.Linear(3, width), torch.nn.Tanh(), torch.nn.Linear(width, 1))
    return torch.nn.Sequential(*layers).to(dtype or torch.float64)


@pytest.mark.parametrize("width", [4, 2000])
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("loss", LOSSES)
def test_summed_gradients_of_a_network_are_those_of_one_process(comm: Any, loss: str, spread: str, width: int) -> None:
    rows = torch.tensor(np.random.default_rng(5).normal(size=(21, 3)))
    labels = torch.tensor([1, 0, 0] * 7)
    alone, net = network(width=width), network(width=width)
    by_pairs(loss, alone(rows).ravel(), labels).backward()

    scores = net(shard(comm, rows, spread))
    assert scores.shape[1:] == (1,)
    pairwise_loss(scores, shard(comm, labels, spread)[:, None], comm, loss, MARGIN).backward()
    sum_gradients(net.parameters(), comm)

    # Not of each: the last bias shifts all scores alike, so that its derivative is 0 but for rounding.
    largest = max(each.grad.abs().max().item() for each in alone.parameters())
    for one, other in zip(alone.parameters(), net.parameters(), strict=True):
        assert other.grad.numpy() == pytest.approx(one.grad.numpy(), rel=1e-12, abs=1e-12 * largest)
    bits = b"".join(each.grad.numpy().tobytes() for each in net.parameters())
    assert set(comm.allgather(bits)) == {bits}


def test_steps_of_a_float32_network_keep_the_ranks_together_and_lower_the_loss(comm: Any) -> None:
    generator = np.random.default_rng(2)
    labels = torch.tensor([1, 0] * 30)
    rows = torch.tensor(generator.normal(size=(60, 3)), dtype=torch.float32) + labels[:, None]
    net = network(torch.float32)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.05)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        found = pairwise_loss(net(shard(comm, rows, "uneven")), shard(comm, labels, "uneven"), comm, "squared-hinge")
        found.backward()
        sum_gradients(net.parameters(), comm)
        optimizer.step()
        losses.append(found.item())
    assert losses[-1] < 0.7 * losses[0]
    bits = b"".join(each.detach().numpy().tobytes() for each in net.parameters())
    assert set(comm.allgather(bits)) == {bits}


def test_a_gradient_that_only_some_ranks_have_counts_as_zero_elsewhere(comm: Any) -> None:
    on_last, nowhere = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    if comm.rank == comm.size - 1:
        (3.0 * on_last).sum().backward()
    sum_gradients([on_last, nowhere], comm)
    assert on_last.grad.tolist() == [3.0, 3.0] and on_last.grad.dtype == torch.float32
    assert nowhere.grad is None
    sum_gradients(on_last, comm)
    assert on_last.grad.tolist() == [3.0 * comm.size] * 2


def test_labels_weights_and_groups_may_be_other_than_tensors() -> None:
    scores = torch.tensor([0.5, 0.25, 0.0], dtype=torch.float64)
    found = pairwise_loss(scores, np.array([True, False, False]), weights=[1, 1, 0], groups=["a", "a", "b"])
    assert found.item() == 0.75


def test_a_score_that_is_not_finite_makes_all_nan(comm: Any) -> None:
    own = shard(comm, torch.tensor([0.5, math.nan, 0.25, 1.0])).requires_grad_()
    found = pairwise_loss(own, shard(comm, [1, 0, 0, 1]), comm)
    found.backward()
    assert math.isnan(found.item()) and own.grad.isnan().all()


def test_without_gradients_it_is_a_number(comm: Any) -> None:
    with torch.no_grad():
        found = pairwise_loss(shard(comm, torch.tensor([0.5, 0.0])), shard(comm, [1, 0]), comm)
    assert found.item() == 0.5 and not found.requires_grad


def test_a_second_derivative_is_refused_where_torch_would_give_a_wrong_one() -> None:
    net = network()
    rows, labels = torch.ones(4, 3, dtype=torch.float64).cumsum(0), torch.tensor([1, 0, 0, 1])
    first = torch.autograd.grad(pairwise_loss(net(rows), labels), list(net.parameters()), create_graph=True)
    with pytest.raises(UserError, match="can be differentiated only once: leave out create_graph"):
        sum(each.square().sum() for each in first).backward()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"scores": torch.zeros(3, dtype=torch.float16)}, "the scores are torch.float16: give a tensor of float32 or"),
        ({"scores": [0.0, 1.0, 2.0]}, "the scores are list: give a tensor"),
        ({"scores": torch.zeros(3, 2)}, r"the scores have shape \(3, 2\): give one of each point"),
        ({"labels": torch.tensor(1)}, r"the labels have shape \(\): give one of each point"),
        ({"labels": torch.tensor([1, 0])}, r"the labels \(2,\): give one of each"),
        ({"weights": torch.tensor([1.0, -1.0, 1.0])}, "weights must be finite and not negative"),
    ],
)
def test_what_one_rank_can_not_use_is_refused_on_all(comm: Any, change: dict[str, Any], sentence: str) -> None:
    given = {"scores": torch.arange(3.0), "labels": torch.tensor([0, 1, 1])}
    with pytest.raises(UserError, match=sentence):
        pairwise_loss(**{**given, **(change if comm.rank == comm.size - 1 else {})}, comm=comm)


def test_one_class_among_all_points_is_refused(comm: Any) -> None:
    with pytest.raises(UserError, match=r"the labels have 1 different value"):
        pairwise_loss(torch.zeros(2), [1, 1], comm)


def test_gradients_that_can_not_be_added_are_refused_on_all(comm: Any) -> None:
    net = torch.nn.Embedding(4, 2, sparse=comm.rank == comm.size - 1)
    net(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(UserError, match="a gradient is sparse"):
        sum_gradients(net.parameters(), comm)
    if comm.size > 1:
        with pytest.raises(UserError, match="build the same network on each of them"):
            sum_gradients([torch.zeros(2 + comm.rank)], comm)


def test_one_process_needs_no_mpi() -> None:
    net = network()
    pairwise_loss(net(torch.eye(3, dtype=torch.float64)), [1, 0, 1]).backward()
    before = [each.grad.clone() for each in net.parameters()]
    sum_gradients(net.parameters(), SerialComm())
    assert all(torch.equal(each.grad, old) for each, old in zip(net.parameters(), before, strict=True))
