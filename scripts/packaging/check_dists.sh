#!/usr/bin/env bash
# Builds the source distribution, and the wheel from it; installs the wheel in an environment of its own, and runs the tests
# of the source distribution against it, without the source distribution's own copy of the package.
# Arguments go to pytest, e.g. scripts/packaging/check_dists.sh tests/kernels. The files are left in dist/.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONNOUSERSITE=1
unset PYTHONPATH

"${PYTHON:-python3}" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet build
"$work/venv/bin/python" -m build --outdir "$work/dist" "$repo" >"$work/build.log" || { cat "$work/build.log" >&2; exit 1; }
mkdir -p "$repo/dist"
cp "$work"/dist/* "$repo/dist/"

wheel=("$work"/dist/*.whl)
"$work/venv/bin/python" -m pip install --quiet "${wheel[0]}[${MPI_USTAT_MPI:-mpich},test,plot,data]"
tar xzf "$work"/dist/*.tar.gz -C "$work"
cd "$work"/mpi_ustat-*/
rm -r mpi_ustat
"$work/venv/bin/python" -c 'import mpi_ustat; print("testing", mpi_ustat.__version__, "in", mpi_ustat.__file__)'
OMP_NUM_THREADS=1 "$work/venv/bin/python" -m pytest "$@"
