#!/usr/bin/env bash
# How a round scales with the number of ranks: measured on 1, 2 and 4 ranks over shared memory, and on 2 and 4 hosts
# (network namespaces of this machine) whose links carry 1 Gbit/s; a cost model, fitted to 1 and 2 ranks over shared
# memory and checked on the hosts, predicts up to 10 000. "pretend" times the own part of one rank of up to 10 000 that
# aren't there. Needs root for the namespaces, and iproute2.
# "complete" does the same for complete statistics, the AUC by sorting and pairs in a ring, whose constants are fitted to
# pretended ranks and checked on 1, 2 and 4 ranks; it needs the result of "fit".
# Writes results/scaling*.h5, results/scaling.png and results/scaling-complete.png. The settings are at the top of _venv.sh.
#
# The machine should be idle: each step prints how much of a core its ranks had, which is 100 % or, on 4 ranks, their
# share of the cores there are. A step that was disturbed can be run again, and "fit" after it.
#
#   scripts/scaling.sh [shared-1] [shared-2] [shared-4] [hosts-2] [hosts-4] [pretend] [fit] [complete]
#                                                                                              all, unless some are named
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
    # Networks, and curves in grey, are those of the version that drew whole matrices.
    python scripts/scaling.py fit results/scaling-pretended.h5 --before results/scaling-before.h5 \
        --output results/scaling.h5
    draw results/scaling
}

complete() {
    local ranks
    python scripts/scaling_complete.py pretend results/scaling-complete-pretended.h5
    for ranks in 1 2 4; do
        run_mpi "$ranks" scripts/scaling_complete.py measure "results/scaling-complete-$ranks.h5"
    done
    python scripts/scaling_complete.py fit results/scaling-complete-pretended.h5 results/scaling-complete-[124].h5 \
        --rounds results/scaling.h5 --output results/scaling-complete.h5
    draw results/scaling-complete
}

draw() {
    local suffix
    for suffix in png pdf; do
        mpi-ustat plot "$1.h5" --output "$1.$suffix" --overwrite
    done
}

[ $# -gt 0 ] || set -- shared-1 shared-2 shared-4 hosts-2 hosts-4 pretend fit complete
for step in "$@"; do
    case $step in
        shared-[124]) shared "${step#*-}" ;;
        hosts-[24]) hosts "${step#*-}" ;;
        pretend) pretend ;;
        fit | complete) "$step" ;;
        *) die "there is no step $step: see the top of this file" ;;
    esac
done
