#!/usr/bin/env bash
# mpi-ustat batch slurm --nodes 2 --ntasks-per-node 32 --time 12:00:00 --signal-before 120 --requeue --venv .venv -- reproduce fig4 --folder results
#SBATCH --job-name=mpi-ustat-reproduce
#SBATCH --nodes=2
#SBATCH --ntasks=64
#SBATCH --ntasks-per-node=32
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append

. .venv/bin/activate || exit
# One thread a rank: the ranks fill the cores.
export OMP_NUM_THREADS=1
# On a file system without locks (some of Lustre, NFS) HDF5 opens no file unless this is set:
# export HDF5_USE_FILE_LOCKING=FALSE

command=(
    mpi-ustat reproduce fig4
    --folder results
)

# Before the time limit, up to a minute earlier than asked, SLURM sends this shell SIGUSR1. Passed on by the
# launcher it reaches the ranks, which write a checkpoint and leave with exit code 75.
mpiexec -n 64 "${command[@]}" &
job=$!
trap 'again=yes; kill -USR1 "$job"' USR1
again=yes
while [ "$again" ]; do # the trap ends `wait`
    again=
    wait "$job"
    code=$?
done
[ "$code" -ne 75 ] || scontrol requeue "$SLURM_JOB_ID"
exit "$code"
