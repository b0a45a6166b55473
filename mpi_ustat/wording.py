"""Words of messages and tables that depend on a number."""

from __future__ import annotations


def plural(number: object, one: str, many: str = "") -> str:
    """Return the words for one thing, or those for more and for none, by default with the usual ending.

    What is written decides: "1" is one thing, "1.0" and "1 or 2" are more.

    >>> plural(2, "row"), plural(1, "row"), plural(0, "class"), plural(3, "has", "have")
    ('rows', 'row', 'classes', 'have')
    """
    return one if str(number) == "1" else many or one + ("es" if one.endswith("s") else "s")


def count_of(number: object, one: str, many: str = "") -> str:
    """Return a number with its noun.

    >>> count_of(1, "worker"), count_of("0.5", "pair"), count_of(1, "cluster has", "clusters have")
    ('1 worker', '0.5 pairs', '1 cluster has')
    """
    return f"{number} {plural(number, one, many)}"
