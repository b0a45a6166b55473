#!/usr/bin/env bash
# mpi-ustat batch slurm --nodes 2 --ntasks-per-node 32 --time 01:00:00 --memory 64G --venv .venv -- estimate scores.h5 --score score --label y --rounds 10 --reference --seed 1 --output auc.h5
#SBATCH --job-name=mpi-ustat-estimate
#SBATCH --nodes=2
#SBATCH --ntasks=64
#SBATCH --ntasks-per-node=32
#SBATCH --time=01:00:00
#SBATCH --mem=64G

. .venv/bin/activate || exit
# One thread a rank: the ranks fill the cores.
export OMP_NUM_THREADS=1
# On a file system without locks (some of Lustre, NFS) HDF5 opens no file unless this is set:
# export HDF5_USE_FILE_LOCKING=FALSE

command=(
    mpi-ustat estimate scores.h5
    --score score
    --label y
    --rounds 10
    --reference
    --seed 1
    --output auc.h5
)

mpiexec -n 64 "${command[@]}"
