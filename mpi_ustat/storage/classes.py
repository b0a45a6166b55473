"""Which of labelled rows are in which sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mpi_ustat.numerics.types import Flags
from mpi_ustat.storage.labels import MOST_CLASSES, Label, in_order, label_value, ordered_labels, positive_label
from mpi_ustat.storage.stored import ROWS_AT_A_TIME
from mpi_ustat.storage.table import LabelledRows

if TYPE_CHECKING:
    from mpi_ustat.storage.data import DataSource


class Classes(NamedTuple):
    """Which labels make a sample, and which of a rank's rows are in each."""

    chosen: list[Label]
    """The first sample's label, and the others'."""
    census: Counter[Label]
    """How many rows of all have each label."""
    of_rest: bool
    """Whether the second of two samples is all labels but the first one's."""
    members: Iterator[Flags]
    """For each sample, whether each row is in it; made when it is looked at."""
    source: DataSource
    """What was wanted; where it was open whether classes are, this tells."""


def classes_of(comm: Any, rows: LabelledRows, label: str, file: str, source: DataSource) -> Classes:
    """Find the classes that a source wants among labelled rows; `label` and `file` are for messages.  Collective."""
    values = [label_value(text) for text in rows.label_texts]
    wanted = [label_value(text) for text in source.classes or ((source.positive,) if source.positive else ())]
    census = _census(comm, rows, values, wanted)
    if source.or_all and not wanted and not source.rest and len(census) > 2:
        source = replace(source, classes=(), by_name=True, highest_first=False)
    if source.classes is not None:
        ordered = ordered_labels(census, source.classes, label, file, by_name=source.by_name)
        chosen = ordered[::-1] if source.highest_first else ordered
    else:
        positive = positive_label(census, source.positive, label, file, rest=source.rest)
        chosen = [positive, *(each for each in in_order(census) if each != positive)][:2]
    of_rest = source.rest and len(census) > 2

    def members() -> Iterator[Flags]:
        for each in chosen:
            rest = of_rest and each != chosen[0]
            is_wanted = np.zeros(len(rows.label_codes), dtype=bool)
            for code in (code for code, value in enumerate(values) if value == (chosen[0] if rest else each)):
                is_wanted |= rows.label_codes == code
            yield is_wanted ^ rest

    return Classes(chosen, census, of_rest, members(), source)


def _census(comm: Any, rows: LabelledRows, labels: list[Label], chosen: list[Label]) -> Counter[Label]:
    """Return how many rows of all have each label, of those chosen and the lowest few.  Collective."""
    codes, found = rows.label_codes, np.zeros(len(labels), dtype=np.int64)
    step = max(ROWS_AT_A_TIME, len(labels))  # NumPy makes wide integers of narrow ones
    for start in range(0, len(codes), step):
        found += np.bincount(codes[start : start + step], minlength=len(labels))
    counts: Counter[Label] = Counter()
    for label, count in zip(labels, found.tolist(), strict=True):
        counts[label] += count
    # A column that is no label may have millions of values; the smallest few tell as much.
    few = {*in_order(counts)[: MOST_CLASSES + 1], *(label for label in chosen if label in counts)}
    census: Counter[Label] = Counter()
    for counts_of_rank in comm.allgather({label: counts[label] for label in few}):
        census.update(counts_of_rank)
    return census
