#!/usr/bin/env bash
# The trade-off between accuracy and time or traffic, measured: on 2 ranks over shared memory, and on 4 hosts (network
# namespaces of this machine) whose links carry 1 Gbit/s, there with rows of 20 columns and of 2000 (300 iterations).
# Needs root for the namespaces, and iproute2.
# Writes results/tradeoff-*.h5 and results/tradeoff.png. The settings are at the top of _venv.sh; arguments go to
# tradeoff.py, e.g. --iterations 300 --runs 1.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

prepare_venv plot data
export PATH=$venv/bin:$PATH OMP_NUM_THREADS=1
cd "$repo"
mkdir -p results
here=results/tradeoff-shared-memory.h5
hosts=results/tradeoff-4-hosts.h5
wide=results/tradeoff-4-hosts-2000-columns.h5

run_mpi 2 scripts/tradeoff.py "2 ranks, shared memory" "$here" "$@"

trap 'scripts/hosts.sh down 4' EXIT
scripts/hosts.sh down 4
scripts/hosts.sh up 4 1gbit
scripts/hosts.sh run 4 python scripts/tradeoff.py "4 hosts, links of 1 Gbit/s" "$hosts" "$@"
scripts/hosts.sh run 4 python scripts/tradeoff.py "4 hosts, links of 1 Gbit/s, 2000 columns" "$wide" \
    --dimensions 2000 --iterations 300 --init zeros "$@"

for suffix in png pdf; do
    mpi-ustat plot "$here" "$hosts" --output "results/tradeoff.$suffix" --overwrite
    mpi-ustat plot "$wide" --output "results/tradeoff-2000-columns.$suffix" --overwrite
done
