"""What XGBoost and LightGBM lack over ranks: metrics and losses of all pairs, and a start under mpiexec.

>>> from mpi_ustat import boosters                                           # doctest: +SKIP
>>> with boosters.xgboost_context(comm):                                     # doctest: +SKIP
...     xgboost.train(parameters, shard, custom_metric=boosters.auc(comm), evals=[(valid, "valid")])
"""

from mpi_ustat.boosters.metric import KERNELS, Metric, auc, metric
from mpi_ustat.boosters.objective import PairwiseObjective, pairwise_objective
from mpi_ustat.boosters.xgboost_context import xgboost_context

__all__ = ["KERNELS", "Metric", "PairwiseObjective", "auc", "metric", "pairwise_objective", "xgboost_context"]
