#!/usr/bin/env bash
# A power study as a SLURM array: twenty tasks, four at once, each a test of data of its own. Run it where sbatch is, in the
# folder of power_study.py; the batch job activates the environment that is active now.
set -euo pipefail
python power_study.py make 20
mpi-ustat batch slurm --ntasks 4 --time 00:05:00 --array 1-20%4 --venv "$VIRTUAL_ENV" --output power.sbatch --overwrite -- \
    estimate sample-%a.csv --label group --positive 1 --columns u,v --kernel energy --test --permutations 999 --seed %a \
    --output power-%a.h5 --overwrite
sbatch --wait power.sbatch
python power_study.py collect
