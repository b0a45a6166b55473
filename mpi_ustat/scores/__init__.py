"""Losses of differences of scores over all pairs, from the scores alone, wherever these lie.

>>> loss, coefficients = mpi_ustat.scores.loss_and_coefficients(comm, scores, labels)       # doctest: +SKIP

With s_i the scores and L the mean of φ(s_i - s_j) over all pairs of a positive i and a negative j, `coefficients` are
∂L/∂s_i of this rank's points: the gradient of L in whatever the scores are made of is Σ_i c_i ∂s_i.
"""

from mpi_ustat.scores.labelled import loss_and_coefficients
from mpi_ustat.scores.pairs import of_pairings
from mpi_ustat.scores.side import Side

__all__ = ["Side", "loss_and_coefficients", "of_pairings"]
