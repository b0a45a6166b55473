#!/usr/bin/env bash
# How a round scales with the number of ranks: measured on 1, 2 and 4 ranks over shared memory, and on 2 and 4 hosts
# (network namespaces of this machine) whose links carry 1 Gbit/s; a cost model, fitted to 1 and 2 ranks over shared
# memory and checked on the hosts, predicts up to 10 000. "pretend" times the own part of one rank of up to 10 000 that
# aren't there. Needs root for the namespaces, and iproute2.
# Writes results/scaling*.h5 and results/scaling.png. The settings are at the top of _venv.sh.
#
# The machine should be idle: each step prints how much of a core its ranks had, which is 100 % or, on 4 ranks, their
# share of the cores there are. A step that was disturbed can be run again, and "fit" after it.
#
#   scripts/scaling.sh [shared-1] [shared-2] [shared-4] [hosts-2] [hosts-4] [pretend] [fit]    all, unless some are named
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

prepare_venv plot data
export PATH=$venv/bin:$PATH OMP_NUM_THREADS=1
cd "$repo"
mkdir -p results

shared() {
    run_mpi "$1" scripts/scaling.py measure "shared memory" "results/scaling-shared-$1.h5"
}

hosts() {
    trap 'scripts/hosts.sh down 4' EXIT
    scripts/hosts.sh down 4
    scripts/hosts.sh up 4 1gbit
    # The namespaces share this machine's cores.
    scripts/hosts.sh run "$1" python scripts/scaling.py measure "TCP, 1 Gbit/s" "results/scaling-hosts-$1.h5" \
        --cores "$(nproc --all)"
}

pretend() {
    python scripts/scaling.py pretend results/scaling-pretended.h5
}

fit() {
    local suffix
    # Networks, and curves in grey, are those of the version that drew whole matrices.
    python scripts/scaling.py fit results/scaling-pretended.h5 --before results/scaling-before.h5 \
        --output results/scaling.h5
    for suffix in png pdf; do
        mpi-ustat plot results/scaling.h5 --output "results/scaling.$suffix" --overwrite
    done
}

[ $# -gt 0 ] || set -- shared-1 shared-2 shared-4 hosts-2 hosts-4 pretend fit
for step in "$@"; do
    case $step in
        shared-[124]) shared "${step#*-}" ;;
        hosts-[24]) hosts "${step#*-}" ;;
        pretend) pretend ;;
        fit) fit ;;
        *) die "there is no step $step: see the top of this file" ;;
    esac
done
