#!/usr/bin/env bash
# mpi-ustat batch slurm --ntasks 32 --time 00:30:00 --array 1-20 --venv .venv -- estimate scores.h5 --score score --label y --workers 100 --seed %a --output auc-%a.h5
#SBATCH --job-name=mpi-ustat-estimate
#SBATCH --nodes=1
#SBATCH --ntasks=32
#SBATCH --time=00:30:00
#SBATCH --array=1-20

. .venv/bin/activate || exit
# One thread a rank: the ranks fill the cores.
export OMP_NUM_THREADS=1
# On a file system without locks (some of Lustre, NFS) HDF5 opens no file unless this is set:
# export HDF5_USE_FILE_LOCKING=FALSE

index=$SLURM_ARRAY_TASK_ID
command=(
    mpi-ustat estimate scores.h5
    --score score
    --label y
    --workers 100
    --seed "$index"
    --output auc-"$index".h5
)

mpiexec -n 32 "${command[@]}"
