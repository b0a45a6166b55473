"""A test that samples are of one law, as the content of a result file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mpi_ustat.estimation.stored import learnt_datasets
from mpi_ustat.storage.results import Dataset, ResultFile
from mpi_ustat.testing.result import TestResult
from mpi_ustat.testing.samples import SamplesTest
from mpi_ustat.testing.several import Several

_MOST_STORED = 100_000
_BINS = 1000
_OF_ALL = "sum over pairs of samples of their discrepancy times n_k n_l/(2N)"


def file_of_test(found: TestResult, data: Mapping[str, Any]) -> ResultFile:
    """Return a test as the content of a result file."""
    of_sample = ("sample",)
    quantiles = np.array(list(found.quantiles.values()))
    over = "over all pairs" if found.n_rounds is None else "of the workers that met"
    which = "all" if found.exact else "random"
    whom = "both" if len(found.sizes) == 2 else "all"
    datasets = {
        "estimate": Dataset(np.array(found.value), (), found.unit, f"the discrepancy of the samples, {over}"),
        "sizes": Dataset(np.array(found.sizes), of_sample, "", "sizes of the samples"),
        "test/p": Dataset(np.array(found.p), (), "1", f"p-value of the test that {whom} samples are of one law"),
        "test/n_permutations": Dataset(np.array(found.n_permutations), (), "", f"{which} relabellings of the blocks"),
        "test/n_blocks": Dataset(np.array(found.n_blocks), of_sample, "", "blocks of each sample"),
        "test/block_size": Dataset(np.array(found.block_size), (), "points", "points in each block"),
        "test/n_pairs": Dataset(np.array(found.n_pairs), (), "", "pairs of points that were evaluated"),
        "test/rests": Dataset(np.array(found.rests), of_sample, "points", "points that keep their label"),
        "test/quantile": Dataset(quantiles, ("level",), found.unit, "quantiles of the relabelled values"),
        **learnt_datasets(found.learnt),
    }
    scales = {"level": np.array(list(found.quantiles))}
    if found.several is not None:
        datasets["estimate"] = replace(datasets["estimate"], description="the largest of several studentised values")
        datasets |= _of_several(found.several)
        scales[found.several.option] = np.array(found.several.used)
    if found.n_permutations <= _MOST_STORED:
        description = f"the {'discrepancy' if found.several is None else 'statistic'} under each relabelling"
        datasets["test/relabelled"] = Dataset(found.relabelled, ("permutation",), found.unit, description)
    else:
        counts, edges = np.histogram(found.relabelled, bins=_BINS)
        datasets["test/count"] = Dataset(counts, ("bin",), "", "relabelled values in each bin")
        datasets["test/edge"] = Dataset(edges, ("edge",), found.unit, "where bins end and the next begin")
    if isinstance(found, SamplesTest):
        if found.several is None:
            datasets["estimate"] = replace(datasets["estimate"], description=_OF_ALL)
        datasets |= _of_pairs(found)
    for phase, seconds in found.seconds.items():
        datasets[f"seconds/{phase}"] = Dataset(np.array(seconds), (), "s", "of the slowest rank")
    config = {
        "kernel": found.kernel,
        "kernel_options": found.kernel_options,
        "n_permutations": found.n_permutations,
        "exact": found.exact,
        "n_workers": found.n_workers or sum(found.n_blocks),
        "n_rounds": found.n_rounds,
        "seed": found.seed,
        "data": dict(data),
    }
    return ResultFile("test", config, {}, datasets, scales)


def _of_several(found: Several) -> dict[str, Dataset]:
    """Return the results of each kernel as datasets."""
    of = (found.option,)
    return {
        "test/several/estimate": Dataset(np.array(found.estimates), of, "", "the discrepancy"),
        "test/several/studentised": Dataset(np.array(found.studentised), of, "1", "(estimate - mean)/deviation, or 0"),
        "test/several/mean": Dataset(np.array(found.means), of, "", "of the relabelled values and the estimate"),
        "test/several/deviation": Dataset(np.array(found.deviations), of, "", "of the same, the standard one"),
        "test/several/largest": Dataset(np.array(found.largest), (), "", "which of them is the largest, from 0"),
    }


def _of_pairs(found: SamplesTest) -> dict[str, Dataset]:
    """Return the results of the tests of every two samples as datasets."""
    told = {
        "first": ("", "a sample, from 0"),
        "second": ("", "the other"),
        "value": (found.unit, "the discrepancy of the two"),
        "p": ("1", "p-value of the test that the two are of one law"),
        "p_holm": ("1", "the same, corrected by Holm for how many pairs of samples there are"),
        "n_permutations": ("", "relabellings of the blocks of the two"),
    }
    return {
        f"test/pairs/{name}": Dataset(np.array([getattr(pair, name) for pair in found.pairs]), ("pair",), unit, what)
        for name, (unit, what) in told.items()
    }
