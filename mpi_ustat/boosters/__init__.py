"""What XGBoost and LightGBM lack where rows are spread over ranks: metrics over all pairs, and a start under mpiexec.

>>> from mpi_ustat import boosters                                           # doctest: +SKIP
>>> with boosters.xgboost_context(comm):                                     # doctest: +SKIP
...     xgboost.train(parameters, shard, custom_metric=boosters.auc(comm), evals=[(valid, "valid")])
"""

from mpi_ustat.boosters.metric import KERNELS, Metric, auc, metric
from mpi_ustat.boosters.xgboost_context import xgboost_context

__all__ = ["KERNELS", "Metric", "auc", "metric", "xgboost_context"]
