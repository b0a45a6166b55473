"""Add groups of cells that were run alone to a file of the coverage study, in place of its own of these names.

    mpiexec -n 2 mpi-ustat reproduce coverage --cells 'clusters*' --folder some
    python scripts/merge_coverage.py results/coverage.h5 some/coverage.h5

A group's seed is its place among all groups, so that the numbers are those of a run of all. The pictures beside the
first file are drawn again. What the file says of how it was made is of the first; ``merged_command`` is the second's.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mpi_ustat.paper.experiments_coverage import merged
from mpi_ustat.plots.pictures import draw, save_figure
from mpi_ustat.storage.results import load, save


def main() -> None:
    """Merge, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="replaced by the merged one")
    parser.add_argument("groups", type=Path, help="the file of the groups to add")
    options = parser.parse_args()
    result = merged(load(options.file), load(options.groups))
    save(options.file, result, overwrite=True)
    for suffix in (".png", ".pdf"):
        if options.file.with_suffix(suffix).exists():
            save_figure(draw(result), options.file.with_suffix(suffix), overwrite=True)


if __name__ == "__main__":
    main()
