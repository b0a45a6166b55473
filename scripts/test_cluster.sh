#!/usr/bin/env bash
# Tests that need more of a cluster than one mpiexec:
#
#   scripts/test_cluster.sh slurm     jobs of a real SLURM, which is installed (Debian, root), started and stopped
#
# Further arguments go to pytest. The settings are at the top of _venv.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/_venv.sh"

# Runs tests that are marked slow.  Usage: slow_tests FILE ARGUMENT...
slow_tests() {
    OMP_NUM_THREADS=1 "$venv/bin/python" -m pytest -m slow -v -p no:cacheprovider "$@"
}

cluster_slurm() {
    . "$repo/scripts/_slurm.sh"
    local obstacle
    obstacle=$(slurm_obstacle)
    if [ -n "$obstacle" ]; then
        say "skipped: $obstacle"
        return
    fi
    prepare_venv test plot data
    trap slurm_stop EXIT
    slurm_start
    slow_tests tests/test_slurm.py "$@"
}

# Every function cluster_NAME is something to test.
name=${1:-}
if [ "$(type -t "cluster_$name")" != function ]; then
    known=$(compgen -A function cluster_ | sed 's/^cluster_//' | paste -sd '|')
    die "usage: ${0##*/} $known [pytest's arguments]"
fi
shift
cd "$repo"
"cluster_$name" "$@"
