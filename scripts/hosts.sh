#!/usr/bin/env bash
# Several hosts on one machine, for trying what crosses a network: network namespaces on a bridge. Needs root, iproute2.
#
#   scripts/hosts.sh up 4 [1gbit]     makes hosts 10.77.0.1 … 10.77.0.4, each link limited to that rate
#   scripts/hosts.sh run 4 COMMAND    runs a command of the virtual environment with a rank on each host, over TCP only
#   scripts/hosts.sh run 4x2 COMMAND  the same with two ranks on each host, which share memory
#   scripts/hosts.sh down 4           removes them, and ends what runs in them
set -euo pipefail

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

up() {
    local n=$1 rate=${2:-} i
    ip link add brmpi type bridge
    ip addr add 10.77.0.254/24 dev brmpi
    ip link set brmpi up
    for i in $(seq "$n"); do
        ip netns add "mpi$i"
        ip link add "vmpi$i" type veth peer name eth0 netns "mpi$i"
        ip link set "vmpi$i" master brmpi up
        ip -n "mpi$i" addr add "10.77.0.$i/24" dev eth0
        ip -n "mpi$i" link set eth0 up
        ip -n "mpi$i" link set lo up
        # Both directions: what the host sends, and what the bridge sends to it.
        if [ -n "$rate" ]; then
            tc -n "mpi$i" qdisc replace dev eth0 root tbf rate "$rate" burst 256kb latency 50ms
            tc qdisc replace dev "vmpi$i" root tbf rate "$rate" burst 256kb latency 50ms
        fi
    done
}

down() {
    local n=$1 i
    for i in $(seq "$n"); do
        # A namespace outlives its name while a process is in it, or a connection that still tries to get through.
        { ip netns pids "mpi$i" | xargs -r kill -KILL; } 2>/dev/null || true
        ip netns del "mpi$i" 2>/dev/null || true
        ip link del "vmpi$i" 2>/dev/null || true
    done
    ip link del brmpi 2>/dev/null || true
}

# What mpiexec calls in place of ssh: [-x] HOST COMMAND…
shell() {
    while [[ $1 == -* ]]; do shift; done
    local k=${1##*.}
    shift
    exec ip netns exec "mpi${k#mpi}" unshare --uts /bin/bash -c "hostname mpi${k#mpi}; exec /bin/bash -c \"\$0\"" "$*"
}

run() {
    local n=${1%x*} ranks=1 hosts
    [[ $1 != *x* ]] || ranks=${1#*x}
    shift
    hosts=$(seq -s, -f '10.77.0.%g' "$n")
    # Without UCX_TLS the ranks would find each other in shared memory.
    HOSTS_AS_SHELL=1 UCX_TLS=tcp,self UCX_NET_DEVICES=eth0 mpiexec -launcher ssh -launcher-exec "$(readlink -f "$0")" \
        -localhost 10.77.0.254 -hosts "$hosts" -ppn "$ranks" -n "$((n * ranks))" "$@"
}

if [ -n "${HOSTS_AS_SHELL:-}" ]; then
    unset HOSTS_AS_SHELL
    shell "$@"
fi
[ $# -ge 2 ] || usage
case $1 in
    up | down | run) "$@" ;;
    *) usage ;;
esac
