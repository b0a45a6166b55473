#!/usr/bin/env bash
# From nothing but Python >= 3.11 to a distributed AUC: a table, an HDF5 file and a picture.
# The settings are at the top of _venv.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

prepare_venv plot data

out=$repo/results/demo
mkdir -p "$out"
run_mpi 4 -m mpi_ustat estimate shuttle --score f9 --scheme prop-swor --rounds 10 --reference --seed 1 \
    --output "$out/shuttle_f9.h5" --overwrite
"$venv/bin/python" -m mpi_ustat info "$out/shuttle_f9.h5"
"$venv/bin/python" -m mpi_ustat plot "$out/shuttle_f9.h5" --output "$out/shuttle_f9.png" --overwrite

cat <<EOF

The result file: $out/shuttle_f9.h5
Its picture:     $out/shuttle_f9.png
To go on:        . "$venv/bin/activate"; mpi-ustat --help
EOF
