"""Which columns of a table are meant: by exact name, by number counted from 0, or by the name of a whole array."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from mpi_ustat.errors import UserError, did_you_mean
from mpi_ustat.storage.table import Column, NumberedColumns, Table
from mpi_ustat.storage.texts import MOST_DIGITS, brief, shown
from mpi_ustat.wording import count_of

_LISTED_COLUMNS = 20


@dataclass(frozen=True)
class Selection:
    """The data columns to be read from a table, all of `n_rows` rows."""

    columns: tuple[Column, ...]
    n_rows: int
    left_out: tuple[str, ...] = ()
    """The names of columns that would have been read if they were no index of the rows."""
    said: tuple[Column, ...] = ()
    """Columns that say something about the rows beside the data: weights, clusters."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the data columns."""
        return tuple(column.name for column in self.columns)


def choose(
    table: Table, wanted: Sequence[str], label: Column | None, said: Sequence[str] = (), *, otherwise_all: bool = False
) -> Selection:
    """Find the data columns that are meant; refuse unknown or ambiguous ones, of other lengths, or not numeric.

    Parameters
    ----------
    table : Table
    wanted : sequence of str
        Names or 0-based numbers of data columns, ranges of them such as ``"0-63"`` and ``"a..f"``, both ends included,
        or ``"all"`` for every column but the label; empty for the only one.
    label : Column or None
        The label column, which is no data column and has as many rows.
    said : sequence of str
        Names or numbers of columns that say something about the rows; no data columns unless they are wanted by name.
    otherwise_all : bool
        Whether empty means every column but the label.
    """
    about = [_one(table, name) for name in said]
    # A format's own label is never meant by "all", not even where no label is asked for.
    candidates = (
        column
        for column in table.columns
        if column.holds == "numbers"
        and (column.name != table.default_label if label is None else column != label)
        and (label is None or column.n_rows == label.n_rows)
        and column not in about
    )
    left_out: list[str] = []

    def is_data(column: Column) -> bool:
        if column.is_index:
            left_out.append(column.name)
        return not column.is_index

    data = filter(is_data, candidates)
    if not wanted and not otherwise_all:
        columns = list(islice(data, 2))
        if not columns and label is not None and len(table.columns) == 1:
            raise UserError(f"'{table.name}' has the label '{brief(label.name)}' and no other column: give data")
        if len(columns) != 1:
            which = "several data columns" if columns else "no data column of numbers"
            which += f" but the index '{brief(left_out[0])}'" if left_out and not columns else ""
            raise UserError(f"'{table.name}' has {which}: choose with columns= among {listing(table)}")
    elif not wanted or (tuple(wanted) == ("all",) and not _has_all(table)):
        columns = list(data)
    else:
        if "all" in wanted and not _has_all(table):
            raise UserError('all columns are chosen, and others besides: give columns="all" alone, or leave it out')
        columns = [column for name in wanted for column in _meant(table, name)]
        for column, times in Counter(columns).items():
            if times > 1:
                raise UserError(f"column '{brief(column.name)}' of '{table.name}' is chosen twice: choose it once")
    if not columns:
        raise UserError(f"'{table.name}' has no data column of numbers: it offers {listing(table)}")
    for column in columns:
        which = f"column '{brief(column.name)}' of '{table.name}'"
        if column == label:
            raise UserError(f"{which} is the label: leave it out of the data columns")
        if column.holds != "numbers":
            raise UserError(f"{which} holds {column.holds}, not numbers: choose another or convert it")
        if column.refusal:
            raise UserError(column.refusal)
    n_rows = common_length(table, columns, columns[-1] if label is None else label, "choose columns of one length")
    if n_rows == 0:
        raise UserError(f"'{table.name}' has no rows of data: give a file with data")
    common_length(table, about, columns[-1], "choose columns of one length")
    return Selection(tuple(columns), n_rows, tuple(left_out), tuple(about))


def common_length(table: Table, columns: Iterable[Column], last: Column, remedy: str) -> int:
    """Return how many rows columns of a table have; refuse those that don't have as many as the last one."""
    for column in columns:
        if column.n_rows != last.n_rows:
            raise UserError(
                f"columns '{brief(column.name)}' and '{brief(last.name)}' of '{table.name}' have {column.n_rows} and "
                f"{count_of(last.n_rows, 'row')}: {remedy}"
            )
    return last.n_rows


def choose_label(table: Table, label: str | None) -> Column:
    """Find the label column by its name or number, or else the one that the format has."""
    label = table.default_label if label is None else label
    if label is None and len(table.columns) == 1:
        raise UserError(
            f"'{table.name}' has one column only: two samples need a label column beside it, or a file for each; of "
            'one sample there is kernel="gini" or "variance"'
        )
    if label is None:
        raise UserError(f"no label column of '{table.name}' is chosen: choose with label= among {listing(table)}")
    return _one(table, label, "label ")


def _one(table: Table, name: str, kind: str = "") -> Column:
    """Find a column of numbers or text by its name or number."""
    found = _find(table, name)
    if len(found) > 1:
        raise UserError(f"'{name}' of '{table.name}' has {len(found)} columns: name one {kind}column")
    if found[0].holds not in ("numbers", "text"):
        raise UserError(
            f"the {kind}column '{brief(found[0].name)}' of '{table.name}' holds {found[0].holds}: "
            "convert it to text or numbers"
        )
    if found[0].refusal:
        raise UserError(found[0].refusal)
    return found[0]


def _has_all(table: Table) -> bool:
    return any("all" in (column.name, column.array) for column in table.columns)


def _meant(table: Table, wanted: str) -> list[Column]:
    """Return the columns of a name or number, or else those from one to another, in the order of the table.

    What is a name is no range: columns may be called ``1-2`` or ``a..b``.
    """
    numbers = re.fullmatch(r"([0-9]+)\s*-\s*([0-9]+)", wanted)
    ends = numbers.groups() if numbers else tuple(each.strip() for each in wanted.split(".."))
    if len(ends) != 2 or not all(ends):
        return _find(table, wanted)
    if found := _called(table, wanted):
        return found
    first, last = (_place(table, end, wanted) for end in ends)
    if first > last:
        raise UserError(f"'{wanted}' begins after its end in '{table.name}': give the first column first")
    return list(table.columns[first : last + 1])


def _place(table: Table, end: str, wanted: str) -> int:
    """Return the place among the table's columns of one end of a range."""
    found = _find(table, end)
    if len(found) > 1:
        raise UserError(f"'{end}' in '{wanted}' has {len(found)} columns in '{table.name}': name one column")
    return found[0].index if isinstance(table.columns, NumberedColumns) else list(table.columns).index(found[0])


def _find(table: Table, wanted: str) -> list[Column]:
    """Return the columns called `wanted`, or refuse it."""
    found = _called(table, wanted)
    if not found:
        lacks = f"'{table.name}' has no column '{brief(wanted)}'"
        if sign := _uncut(table, wanted):
            raise UserError(f"{lacks}, as its lines were not cut at '{shown(sign)}': give the sign with separator=")
        unnamed = ", and no line with names" if table.unnamed else ""
        raise UserError(f"{lacks}{alike(table, wanted)}{unnamed}: choose among {listing(table)}")
    return found


def _uncut(table: Table, wanted: str) -> str:
    """Return the sign beside a column's name in the first line, where that was taken for a single cell."""
    line = table.unnamed or table.columns[0].name if len(table.columns) == 1 else ""
    beside = re.search(rf"(?:^|([^\w\s.+\"'-]|\t)\s*){re.escape(wanted)}(?:\s*([^\w\s.+\"'-]|\t)|$)", line)
    return (beside[1] or beside[2] or "") if beside else ""


def _called(table: Table, wanted: str) -> list[Column]:
    """Return the columns called `wanted`: a whole array's by its name, else one by its name, else by its number."""
    columns = table.columns
    if isinstance(columns, NumberedColumns):
        by_array, by_name, by_number = [], columns.named(wanted), []
    else:
        by_array = [column for column in columns if column.array and column.array == wanted]
        by_name = [column for column in columns if column.name == wanted]
        by_name = by_name or [column for column in columns if f"{column.array}[{column.index}]" == wanted]
        number = int(wanted) if wanted.isdecimal() and len(wanted) < MOST_DIGITS else None
        by_number = [column for column in columns if column.number == number is not None]
        if not (by_array or by_name or by_number) and columns and columns[0].array:
            target = _followed(table.links, wanted)
            if target != wanted:
                return _called(table, target)
    if len(by_name) > 1 and not by_array:
        numbers = ", ".join(str(column.number) for column in by_name)
        raise UserError(
            f"'{table.name}' has {len(by_name)} columns '{brief(wanted)}': choose by number, one of {numbers}"
        )
    return by_array or by_name or by_number


def alike(table: Table, name: str) -> str:
    """Return the question whether a column of another name, or a range in another spelling, is meant, or nothing."""
    if spelled := _as_range(table, name):
        return f" (did you mean the range '{spelled}'?)"
    columns = table.columns[:1] if isinstance(table.columns, NumberedColumns) else table.columns
    return did_you_mean(name, (name for column in columns for name in (column.array, column.name) if name))


def _as_range(table: Table, name: str) -> str:
    """Return a range that is written as elsewhere, f0-f3, 1:3 or emb[0-15], as we write it; empty if it is none."""
    found = re.fullmatch(r"(?:(.+)\[)?([^][]+?)\s*[-:]\s*([^][]+?)\]?", name)
    if found is None:
        return ""
    ends = [f"{found[1]}[{end}]" if found[1] else end for end in found.groups()[1:]]
    return "..".join(ends) if all(_called(table, end) for end in ends) else ""


def has_name(table: Table, name: str) -> bool:
    """Return whether a column is called `name`."""
    if isinstance(table.columns, NumberedColumns):
        return bool(table.columns.named(name))
    return any(column.name == name for column in table.columns)


def lacking(table: Table, names: Iterable[str]) -> list[str]:
    """Return which of the names, or numbers, mean no column of a table."""
    return [name for name in names if not _called(table, name)]


def _followed(links: Mapping[str, str], name: str) -> str:
    """Return the path of what a name means, which may begin with a slash and go through links."""
    name, bracket, column = name.partition("[") if name not in links else (name, "", "")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    n_known = 0  # of the parts, as a path without links
    while n_known < len(parts):
        n_known += 1
        target = links.get("/".join(parts[:n_known]))
        if target is not None:
            known = target.split("/") if target else []
            parts, n_known = [*known, *parts[n_known:]], len(known)
    return "/".join(parts) + bracket + column


def listing(table: Table) -> str:
    """Name the columns on offer, or the first of them."""
    return in_short([column.name for column in islice(table.columns, _LISTED_COLUMNS)], len(table.columns))


def in_short(names: Sequence[str], n_names: int | None = None) -> str:
    """Return the first of some names of columns, and how many there are."""
    n_names = len(names) if n_names is None else n_names
    more = f", … ({n_names} in all)" if n_names > _LISTED_COLUMNS else ""
    return ", ".join(map(brief, names[:_LISTED_COLUMNS])) + more or "(nothing)"
