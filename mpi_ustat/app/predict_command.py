"""`mpi-ustat predict`: the scores that a learnt model gives the rows of some data, a piece of them at a time."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from mpi_ustat.app.output_files import check_names
from mpi_ustat.app.result_output import Origin, print_result
from mpi_ustat.app.sample_options import add_file_arguments, file_options, given_files
from mpi_ustat.errors import PlacedError, UserError
from mpi_ustat.estimation.estimate import estimate
from mpi_ustat.estimation.estimates import Estimate
from mpi_ustat.estimation.printed import bar
from mpi_ustat.learning.linear_model import LinearModel, model_of
from mpi_ustat.mpi.runtime import announced, together
from mpi_ustat.numerics.types import Floats
from mpi_ustat.storage.classes import classes_of
from mpi_ustat.storage.columns import in_short
from mpi_ustat.storage.data import DataSource
from mpi_ustat.storage.files import check_target
from mpi_ustat.storage.labels import show
from mpi_ustat.storage.pieces import Pieces, pieces_of
from mpi_ustat.storage.results import load
from mpi_ustat.storage.score_files import as_bytes, is_text, score_file, told_of
from mpi_ustat.storage.table import Codes, LabelledRows, no_codes, recoded
from mpi_ustat.wording import count_of, plural


def add_parser(commands: Any) -> None:
    """Add the command's parser to the group of commands."""
    parser = commands.add_parser(
        "predict",
        help="score rows by a learnt model",
        description="Score the rows of DATA by the model that mpi-ustat learn has written, in their order.",
    )
    parser.add_argument("model", metavar="MODEL", help="a result file of mpi-ustat learn, or of PairwiseRanker.save")
    add_file_arguments(
        parser,
        positive="its value for the positives; with a label, the AUC of the scores is printed",
        columns="the model's columns, in its order, where DATA call them otherwise (default: those of its names)",
    )
    group = parser.add_argument_group("output")
    group.add_argument("--output", metavar="F", help="write the scores, to a text F.csv or to F.h5")
    group.add_argument("--overwrite", action="store_true", help="replace an existing file")
    group.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    group.add_argument("--quiet", action="store_true", help="no progress and no table")
    parser.set_defaults(run=run_command)


def run_command(comm: Any, arguments: argparse.Namespace) -> int:
    """Run the command on this rank; rank 0 prints and writes.  Collective."""
    origin = Origin(comm, arguments)
    text = False
    with together(comm, "checking the output files"):
        if arguments.output is not None:
            text = is_text(arguments.output)
            if comm.rank == 0:
                check_names({"output file": arguments.output}, [arguments.model, *given_files(arguments)])
                check_target(arguments.output, arguments.overwrite)
    model = _model(comm, arguments.model)
    source = _source(arguments, model)
    labelled = arguments.label is not None or arguments.positive is not None or arguments.rest
    pieces = pieces_of(comm, source, labelled=labelled)
    _refuse_others(pieces, model, arguments.model)
    if arguments.output is None and pieces.label is None:
        raise UserError("nothing is asked for: give --output, a file for the scores, or --label, for their AUC")
    kept = _Kept()
    found: Estimate | None = None
    with ExitStack() as held:
        out = None
        with together(comm, "writing the scores"):
            if comm.rank == 0 and arguments.output is not None:
                n_rows = pieces.selection.n_rows
                out = held.enter_context(score_file(arguments.output, n_rows, overwrite=arguments.overwrite))
        for first in announced(range(0, len(pieces), comm.size), "score"):
            with together(comm, f"reading {pieces.table.name}"):
                content = _scored(pieces, first + comm.rank, model, kept, text if arguments.output else None)
            parts = comm.gather(content)
            with together(comm, "writing the scores"):
                if out is not None:
                    out.add(b"".join(parts))
        if pieces.label is not None:
            found, source = _auc(comm, kept, pieces, source)
        told = _told(arguments, model, pieces, source, found)
        with together(comm, "writing the scores"):
            if out is not None:
                out.finish(told_of(told, origin.attributes()))
            held.close()
    if comm.rank == 0:
        _print(arguments, told, model, found)
    return 0


def _model(comm: Any, path: str) -> LinearModel:
    """Read the model on rank 0.  Collective."""
    model = None
    with together(comm, f"reading the model {path}"):
        if comm.rank == 0:
            model = model_of(load(path), path)
    found: LinearModel = comm.bcast(model)
    return found


def _source(arguments: argparse.Namespace, model: LinearModel) -> DataSource:
    """Return where the rows are, with the model's columns, and its positives unless others are given."""
    source = DataSource(**file_options(arguments), finite=True)
    if not source.columns:
        whose = f"the model '{os.path.basename(arguments.model)}'"
        source = replace(source, columns=model.columns, columns_of=whose)
    if source.positive is None:
        rest = source.rest or bool(model.data.get("rest", False))
        source = replace(source, positive=model.data.get("positive"), rest=rest)
    return source


def _refuse_others(pieces: Pieces, model: LinearModel, path: str) -> None:
    """Refuse columns that are not as many as the model's, as those of whole arrays may be."""
    n_columns = len(pieces.selection.columns)
    if n_columns != len(model.columns):
        raise UserError(
            f"{count_of(n_columns, 'column')} of '{pieces.table.name}' {plural(n_columns, 'is', 'are')} chosen, and "
            f"the model '{os.path.basename(path)}' has "
            f"{len(model.columns)} ({in_short(model.columns)}): name as many with columns=, in the model's order"
        )


class _Kept:
    """What a rank keeps of the rows that it has scored, for the AUC: 8 bytes each, and a label in few."""

    def __init__(self) -> None:
        self._scores: list[Floats] = []
        self._codes: list[Codes] = [no_codes()]
        self._texts: dict[str, int] = {}

    def add(self, scores: Floats, rows: LabelledRows) -> None:
        self._scores.append(scores)
        self._codes.append(recoded(rows.label_codes, rows.label_texts, self._texts))

    def rows(self) -> LabelledRows:
        """Return all that was kept, scores as the only column."""
        scores = np.concatenate([np.empty(0), *self._scores])
        return LabelledRows(scores[:, np.newaxis], np.concatenate(self._codes), tuple(self._texts))


def _scored(pieces: Pieces, piece: int, model: LinearModel, kept: _Kept, text: bool | None) -> bytes:
    """Return the scores of a piece as they stand in the file, if there is one (`text` or not) and such a piece."""
    if piece >= len(pieces):
        return b""
    first, rows = pieces.read(piece)
    with np.errstate(over="ignore", invalid="ignore"):
        scores = model.scores(rows.values)
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise PlacedError(
            f"the score of row {first + int(wrong[0])} of '{pieces.table.name}' (counted from 0) is beyond the range "
            "of doubles: check the row, and the model's standardisation"
        )
    if pieces.label is not None:
        kept.add(scores, rows)
    return b"" if text is None else as_bytes(scores, text=text)


def _auc(comm: Any, kept: _Kept, pieces: Pieces, source: DataSource) -> tuple[Estimate, DataSource]:
    """Return the AUC of all scores, and the source with the label of the positives.  Collective."""
    rows = kept.rows()
    assert pieces.label is not None
    found = classes_of(comm, rows, pieces.label.name, pieces.table.name, source)
    x, z = (rows.values[each, 0] for each in found.members)
    source = replace(source, positive=show(found.chosen[0]), rest=found.of_rest)
    return estimate(comm, x, z, "auc", complete=True, seed=0), source


def _told(
    arguments: argparse.Namespace, model: LinearModel, pieces: Pieces, source: DataSource, found: Estimate | None
) -> dict[str, Any]:
    """Return the facts about the scores that are printed as JSON and kept in the file."""
    told: dict[str, Any] = {
        "model": os.path.basename(arguments.model),
        "data": pieces.origin,
        "n_rows": pieces.selection.n_rows,
        "columns": list(pieces.selection.names),
        "threshold": model.threshold,
    }
    if found is None:
        return told
    assert pieces.label is not None
    told |= {"label": pieces.label.name, "positive": source.positive, "rest": source.rest}
    told |= {"auc": found.value, "n": found.sizes[0], "m": found.sizes[1]}
    assert found.error is not None
    within = found.error.intervals[0]
    return told | {
        "stderr": found.error.stderr[0],
        "interval": [within.lower, within.upper],
        "confidence": found.config.confidence,
        "flags": list(found.flags),
    }


def _print(arguments: argparse.Namespace, told: dict[str, Any], model: LinearModel, found: Estimate | None) -> None:
    rows = [("rows", f"{told['n_rows']} of {', '.join(told['data']['files'])}, by {told['model']}")]
    if model.threshold is not None:
        rows.append(("threshold", f"{model.threshold:.6g}: scores above it are called positive"))
    if found is not None:
        rest = "the rest" if told["rest"] else "the other class"
        assert found.error is not None
        within = bar(found.error.stderr[0], found.error.intervals[0])
        rows += [
            ("AUC", f"{found.value}{within}"),
            *(("beware", flag) for flag in found.flags),
            ("points", f"n = {told['n']} of the class '{told['positive']}', m = {told['m']} of {rest}"),
        ]
    print_result(arguments, told, rows)
