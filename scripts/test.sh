#!/usr/bin/env bash
# From nothing but Python >= 3.11 to a passed test suite: all of it without MPI ranks, and what has to do with communicators in
# 4 of them.
# Arguments go to pytest, e.g. scripts/test.sh -k partition, or -n 0 for one test after the other. The settings are at the top
# of _venv.sh.
# With --lowest as the first argument: with the lowest versions that setup.cfg admits, in an environment of their own.
set -euo pipefail
extras=(test plot data)
if [ "${1:-}" = --lowest ]; then
    shift
    export MPI_USTAT_LOWEST=1
    extras=(test plot sklearn)  # without the Shuttle data: their package wants a newer NumPy
fi
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

prepare_venv "${extras[@]}"
cd "$repo"

# Four ranks share whatever cores there are: one thread each.
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

status=0
say "== the tests, a core for each"
"$venv/bin/python" -m pytest -n auto --maxprocesses 8 "$@" || status=$?

say "== the tests in 4 ranks"
# -x: a rank that goes on after a failure is out of step with the others. No cache: the ranks would write it together.
# Code 5: of the tests that the arguments choose, none has to do with communicators; the run above tells whether there are any.
run_mpi 4 -m mpi4py -m pytest --with-mpi -x -p no:cacheprovider "$@" || { code=$?; [ "$code" -eq 5 ] || status=$code; }
exit "$status"
