#!/usr/bin/env bash
# mpi-ustat batch pbs --ntasks 32 --time 00:30:00 --array 1-20 --venv .venv -- estimate scores.h5 --score score --label y --workers 100 --seed %a --output auc-%a.h5
# For OpenPBS and PBS Professional. Tested with stand-ins for mpiexec and qsub only: no PBS has run it.
#PBS -N mpi-ustat-estimate
#PBS -l select=1:ncpus=32:mpiprocs=32
#PBS -l walltime=00:30:00
#PBS -J 1-20
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit
. .venv/bin/activate || exit
# One thread a rank: the ranks fill the cores.
export OMP_NUM_THREADS=1
# On a file system without locks (some of Lustre, NFS) HDF5 opens no file unless this is set:
# export HDF5_USE_FILE_LOCKING=FALSE

index=$PBS_ARRAY_INDEX
command=(
    mpi-ustat estimate scores.h5
    --score score
    --label y
    --workers 100
    --seed "$index"
    --output auc-"$index".h5
)

mpiexec -n 32 "${command[@]}"
