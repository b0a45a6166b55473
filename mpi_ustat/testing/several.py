"""One test by several kernels, that differ in one option: the largest of their studentised values.

Which of several bandwidths tells two laws apart is not known before, and the one that is chosen by its p has no level.
With T_g⁽ᵏ⁾ the values of kernel k under the labellings g, the one that is there among them, μ_k their mean and σ_k
their standard deviation,

    M_g = max_k (T_g⁽ᵏ⁾ - μ_k) / σ_k

is relabelled as a whole. Means and deviations don't change when the labellings are exchanged, so that M is as
exchangeable as each T⁽ᵏ⁾, and its p as exact; all it takes are the block sums of each kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from mpi_ustat.errors import UserError
from mpi_ustat.kernels.discrepancy import Discrepancy
from mpi_ustat.kernels.registry import make_kernel, options_of
from mpi_ustat.numerics.types import Floats
from mpi_ustat.testing.labellings import Form
from mpi_ustat.testing.relabelled import p_value

_TOLD_APART = 1024.0
"""Kernels whose values have a smaller deviation, in units of what rounding may do, have no say."""


@dataclass(frozen=True)
class Listed:
    """An option of a kernel that has a list of values.

    Attributes
    ----------
    option : str
    values : tuple
        As they were asked for, none twice.
    """

    option: str
    values: tuple[Any, ...]

    @property
    def first(self) -> Any:
        """The value whose kernel learns from the points, if it is a word, or the first."""
        return next((each for each in self.values if isinstance(each, str)), self.values[0])

    def kernels(self, learnt: Discrepancy, options: Mapping[str, Any]) -> list[Discrepancy]:
        """Return the kernel of each value; `learnt` is that of the `first`, which has met the points."""
        made = [
            learnt if each == self.first else make_kernel(learnt.name, options=dict(options) | {self.option: each})
            for each in self.values
        ]
        return [cast(Discrepancy, each) for each in made]


def listed(kernel: object, options: Mapping[str, Any] | None) -> Listed | None:
    """Return the option of a kernel with a list of values, if there is one.

    Raises
    ------
    UserError
        If a list is empty, or a value is there twice.
    """
    if not isinstance(kernel, str):
        return None
    for name, option in options_of(kernel).items():
        given = (options or {}).get(name)
        given = given.tolist() if isinstance(given, np.ndarray) else given
        if not option.several or not isinstance(given, list | tuple):
            continue
        label = option.label or name
        if not given:
            raise UserError(f"there is no value in the list of {label}: give one or several")
        for each in given:
            option.checked(each)
            if list(given).count(each) > 1:
                raise UserError(f"{label} {each} is there twice: leave one out")
        if (options or {}).get("kernel") == "linear":
            raise UserError("the linear kernel of the MMD has no bandwidth: leave it out")
        return Listed(name, tuple(given))
    return None


@dataclass(frozen=True)
class Several:
    """What each of several kernels has found; attributes are of the kernels, in the order of their list.

    Attributes
    ----------
    option : str
        In which they differ.
    asked : tuple
        Its values as they were given.
    used : tuple
        Its values: where a word was given, what was learnt.
    estimates : tuple of float
        The discrepancies.
    studentised : tuple of float
        Less the mean, over the standard deviation, of their relabelled values and themselves; 0 where these are alike.
    means, deviations : tuple of float
    largest : int
        Which has the largest studentised value, from 0.
    """

    option: str
    asked: tuple[Any, ...]
    used: tuple[Any, ...]
    estimates: tuple[float, ...]
    studentised: tuple[float, ...]
    means: tuple[float, ...]
    deviations: tuple[float, ...]
    largest: int

    @classmethod
    def of(cls, which: Listed, kernels: Sequence[Discrepancy], estimates: Sequence[float], found: Together) -> Several:
        """Return the results."""
        used = tuple(getattr(kernel, which.option, asked) for kernel, asked in zip(kernels, which.values, strict=True))
        own, means, deviations = (tuple(each.tolist()) for each in (found.own, found.means, found.deviations))
        largest = int(found.own.argmax())
        return cls(which.option, which.values, used, tuple(estimates), own, means, deviations, largest)

    def rows(self) -> list[tuple[str, str]]:
        """Return the rows of a table."""
        found = []
        for k, (asked, used) in enumerate(zip(self.asked, self.used, strict=True)):
            name = f"{asked}" if asked == used else f"{asked} ({used!r})"
            mark = ", the largest" * (k == self.largest)
            told = f"{name}: {self.estimates[k]:.6g}, studentised {self.studentised[k]:.6g}{mark}"
            found.append(("" if k else f"{self.option}s", told))
        return found


class Together(NamedTuple):
    """Values of several kernels as one.

    Attributes
    ----------
    own : ndarray, shape (K,)
        Studentised values of the samples as they are.
    relabelled : ndarray, shape (R,)
        The largest of the kernels' under each labelling.
    tolerance : float
        How far apart rounding may put values that are equal.
    means, deviations : ndarray, shape (K,)
    """

    own: Floats
    relabelled: Floats
    tolerance: float
    means: Floats
    deviations: Floats


class Found(NamedTuple):
    """The statistic of one kernel, or the largest studentised one of several, and its p-value.

    Attributes
    ----------
    value : float
    p : float
    relabelled : ndarray, shape (R,)
    own : ndarray, shape (K,)
        Of each kernel.
    together : Together or None
        What several kernels have found.
    """

    value: float
    p: float
    relabelled: Floats
    own: Floats
    together: Together | None


def found_by(forms: Sequence[Form], relabelled: Floats, *, listed: bool, exact: bool) -> Found:
    """Return the results of the forms of K kernels and their values under all labellings, or random ones, (K, R)."""
    own = np.array([float(form.values(form.own)[0]) for form in forms])
    tolerances = np.array([form.tolerance for form in forms])
    if not listed:
        value = float(own[0])
        return Found(value, p_value(value, relabelled[0], tolerances[0], exact=exact), relabelled[0], own, None)
    found = together(own, relabelled, tolerances, exact=exact)
    value = float(found.own.max())
    p = p_value(value, found.relabelled, found.tolerance, exact=exact)
    return Found(value, p, found.relabelled, own, found)


def together(own: Floats, relabelled: Floats, tolerances: Floats, *, exact: bool) -> Together:
    """Return the studentised values of K kernels.

    Parameters
    ----------
    own : ndarray, shape (K,)
        Values of the samples as they are.
    relabelled : ndarray, shape (K, R)
    tolerances : ndarray, shape (K,)
        How far apart rounding may put values of each kernel.
    exact : bool
        Whether `relabelled` has all labellings. Otherwise `own` counts beside them.
    """
    # About the first, sums of squares lose no digits however far from 0 all values are; rows one by one save memory.
    means, deviations = np.zeros(len(own)), np.zeros(len(own))
    for k, (value, others) in enumerate(zip(own, relabelled, strict=True)):
        every = (others if exact else np.append(others, value)) - value
        means[k], deviations[k] = value + every.mean(), every.std()
    counts = deviations > _TOLD_APART * tolerances
    units = np.where(counts, deviations, np.inf)
    largest = np.full(relabelled.shape[1], -np.inf)
    for mean, unit, others in zip(means, units, relabelled, strict=True):
        np.maximum(largest, (others - mean) / unit, out=largest)
    tolerance = float(np.max(tolerances / units))
    return Together((own - means) / units + 0.0, largest + 0.0, tolerance, means, deviations)
