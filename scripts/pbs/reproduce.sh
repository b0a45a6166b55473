#!/usr/bin/env bash
# mpi-ustat batch pbs --nodes 2 --ntasks-per-node 32 --time 12:00:00 --signal-before 120 --requeue --venv .venv -- reproduce fig4 --folder results
# For OpenPBS and PBS Professional. Tested with stand-ins for mpiexec and qsub only: no PBS has run it.
#PBS -N mpi-ustat-reproduce
#PBS -l select=2:ncpus=32:mpiprocs=32
#PBS -l place=scatter
#PBS -l walltime=12:00:00
#PBS -r y
#PBS -j oe

cd "$PBS_O_WORKDIR" || exit
. .venv/bin/activate || exit
# One thread a rank: the ranks fill the cores.
export OMP_NUM_THREADS=1
# On a file system without locks (some of Lustre, NFS) HDF5 opens no file unless this is set:
# export HDF5_USE_FILE_LOCKING=FALSE

command=(
    mpi-ustat reproduce fig4
    --folder results
)

# PBS gives no warning before the time limit, so `timeout` sends the launcher SIGUSR1. Passed on, it reaches
# the ranks, which write a checkpoint and leave with exit code 75. SECONDS: what the lines above have taken.
timeout --foreground --preserve-status --signal=USR1 "$((43080 - SECONDS))" \
    mpiexec -n 64 "${command[@]}"
code=$?
[ "$code" -ne 75 ] || qsub "$0"
exit "$code"
