#!/usr/bin/env bash
# mpi-ustat batch pbs --nodes 2 --ntasks-per-node 32 --time 01:00:00 --memory 64G --venv .venv -- estimate scores.h5 --score score --label y --rounds 10 --reference --seed 1 --output auc.h5
# For OpenPBS and PBS Professional. Tested with stand-ins for mpiexec and qsub only: no PBS has run it.
#PBS -N mpi-ustat-estimate
#PBS -l select=2:ncpus=32:mpiprocs=32:mem=64gb
#PBS -l place=scatter
#PBS -l walltime=01:00:00
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit
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
