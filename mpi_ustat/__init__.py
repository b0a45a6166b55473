"""U-statistics over data spread across MPI processes.

>>> from mpi4py import MPI                                                   # doctest: +SKIP
>>> mpi_ustat.estimate(MPI.COMM_WORLD, x, z, "auc", n_rounds=4).value        # doctest: +SKIP
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpi_ustat.api.labelled import auc, compare_auc, multiclass_auc, roc_curve, vus
    from mpi_ustat.api.of_laws import energy_distance, energy_test, mmd, mmd_test
    from mpi_ustat.api.of_one_sample import concordance, gini, kendall, variance
    from mpi_ustat.api.results import ComparisonResult, Result, RocResult, StatisticResult, TestedResult, load, save
    from mpi_ustat.errors import DivergedError, UserError
    from mpi_ustat.estimation.estimate import estimate, estimate_samples
    from mpi_ustat.estimation.estimates import Estimate
    from mpi_ustat.kernels.kernel import Kernel
    from mpi_ustat.learning.fit import Fit
    from mpi_ustat.learning.learn import learn, learn_samples
    from mpi_ustat.learning.losses.loss import Loss
    from mpi_ustat.learning.objectives import PairObjective
    from mpi_ustat.learning.ranker import PairwiseRanker as PairwiseRanker
    from mpi_ustat.mpi.runtime import SerialComm
    from mpi_ustat.planning.plan import Plan, plan, plan_samples
    from mpi_ustat.plots.displays import DifferenceDisplay, EstimateDisplay, LearningDisplay, RocDisplay
    from mpi_ustat.schemes.scheme import Scheme
    from mpi_ustat.testing.result import TestResult
    from mpi_ustat.testing.samples import SamplesTest, test_samples
    from mpi_ustat.testing.test import test

__version__ = "0.2.0"

_HOME = {
    "auc": "mpi_ustat.api.labelled",
    "compare_auc": "mpi_ustat.api.labelled",
    "multiclass_auc": "mpi_ustat.api.labelled",
    "roc_curve": "mpi_ustat.api.labelled",
    "vus": "mpi_ustat.api.labelled",
    "concordance": "mpi_ustat.api.of_one_sample",
    "kendall": "mpi_ustat.api.of_one_sample",
    "gini": "mpi_ustat.api.of_one_sample",
    "variance": "mpi_ustat.api.of_one_sample",
    "energy_distance": "mpi_ustat.api.of_laws",
    "mmd": "mpi_ustat.api.of_laws",
    "energy_test": "mpi_ustat.api.of_laws",
    "mmd_test": "mpi_ustat.api.of_laws",
    "load": "mpi_ustat.api.results",
    "save": "mpi_ustat.api.results",
    "Result": "mpi_ustat.api.results",
    "RocDisplay": "mpi_ustat.plots.displays",
    "EstimateDisplay": "mpi_ustat.plots.displays",
    "DifferenceDisplay": "mpi_ustat.plots.displays",
    "LearningDisplay": "mpi_ustat.plots.displays",
    "StatisticResult": "mpi_ustat.api.results",
    "RocResult": "mpi_ustat.api.results",
    "ComparisonResult": "mpi_ustat.api.results",
    "TestedResult": "mpi_ustat.api.results",
    "DivergedError": "mpi_ustat.errors",
    "Estimate": "mpi_ustat.estimation.estimates",
    "Fit": "mpi_ustat.learning.fit",
    "Kernel": "mpi_ustat.kernels.kernel",
    "Loss": "mpi_ustat.learning.losses.loss",
    "PairObjective": "mpi_ustat.learning.objectives",
    "PairwiseRanker": "mpi_ustat.learning.ranker",
    "Plan": "mpi_ustat.planning.plan",
    "Scheme": "mpi_ustat.schemes.scheme",
    "SamplesTest": "mpi_ustat.testing.samples",
    "SerialComm": "mpi_ustat.mpi.runtime",
    "TestResult": "mpi_ustat.testing.test",
    "UserError": "mpi_ustat.errors",
    "estimate": "mpi_ustat.estimation.estimate",
    "estimate_samples": "mpi_ustat.estimation.estimate",
    "learn": "mpi_ustat.learning.learn",
    "learn_samples": "mpi_ustat.learning.learn",
    "plan": "mpi_ustat.planning.plan",
    "plan_samples": "mpi_ustat.planning.plan",
    "test": "mpi_ustat.testing.test",
    "test_samples": "mpi_ustat.testing.samples",
}

# Without PairwiseRanker: it needs scikit-learn, and `from mpi_ustat import *` must not.
__all__ = [
    "auc",
    "compare_auc",
    "multiclass_auc",
    "roc_curve",
    "vus",
    "concordance",
    "kendall",
    "gini",
    "variance",
    "energy_distance",
    "mmd",
    "energy_test",
    "mmd_test",
    "load",
    "save",
    "Result",
    "RocDisplay",
    "EstimateDisplay",
    "DifferenceDisplay",
    "LearningDisplay",
    "StatisticResult",
    "RocResult",
    "ComparisonResult",
    "TestedResult",
    "DivergedError",
    "Estimate",
    "Fit",
    "Kernel",
    "Loss",
    "PairObjective",
    "Plan",
    "SamplesTest",
    "Scheme",
    "SerialComm",
    "TestResult",
    "UserError",
    "__version__",
    "estimate",
    "estimate_samples",
    "learn",
    "learn_samples",
    "plan",
    "plan_samples",
    "test",
    "test_samples",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that `import mpi_ustat` costs nothing and needs no MPI."""
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
