# Sourced by test_cluster.sh: a SLURM of one node on this machine, in a folder of its own, without systemd.
# Its jobs run as root, on as many processors as it is told to believe in. Needs root; Debian's packages.
#
# It defines: slurm_obstacle, slurm_start, slurm_stop. Uses say and die of _venv.sh.

slurm_dir=

# Prints why there can be no SLURM here; nothing if there can. Installs it where it is missing.
slurm_obstacle() {
    if [ "$(id -u)" != 0 ]; then
        echo "SLURM is started and stopped by root"
    elif ! slurm_there && ! command -v apt-get >/dev/null; then
        echo "there is no SLURM, and no apt-get to install it with"
    elif ! slurm_there && ! slurm_install >&2; then
        echo "there is no SLURM, and it could not be installed from Debian's packages"
    fi
}

slurm_there() {
    PATH=$PATH:/usr/sbin:/sbin
    local program
    for program in munged slurmctld slurmd sbatch srun scontrol; do
        command -v "$program" >/dev/null || return 1
    done
}

slurm_install() {
    say "installing SLURM from Debian's packages"
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q update && apt-get -q install -y --no-install-recommends slurm-wlm munge && slurm_there
}

slurm_start() {
    local host
    host=$(hostname -s)
    PATH=$PATH:/usr/sbin:/sbin
    slurm_dir=$(mktemp -d "${TMPDIR:-/tmp}/mpi_ustat-slurm-XXXXXX")
    chmod 755 "$slurm_dir"
    mkdir "$slurm_dir/state" "$slurm_dir/spool"
    head -c 128 /dev/urandom >"$slurm_dir/munge.key"
    chmod 600 "$slurm_dir/munge.key"
    # cred_expire is also how long a job that is queued again waits: 2 minutes if it isn't set.
    # MpiDefault=none: srun starts strangers, as on many clusters, unless it is told of an MPI.
    cat >"$slurm_dir/slurm.conf" <<EOF
ClusterName=mpi_ustat
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=16837
SlurmdPort=16838
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm_dir/munge.socket,cred_expire=20
CredType=cred/munge
StateSaveLocation=$slurm_dir/state
SlurmdSpoolDir=$slurm_dir/spool
SlurmctldPidFile=$slurm_dir/slurmctld.pid
SlurmdPidFile=$slurm_dir/slurmd.pid
SlurmctldLogFile=$slurm_dir/slurmctld.log
SlurmdLogFile=$slurm_dir/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
JobRequeue=1
KillWait=5
MinJobAge=600
SchedulerParameters=sched_interval=5,batch_sched_delay=1
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 RealMemory=1000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOF
    export SLURM_CONF=$slurm_dir/slurm.conf
    munged --force --key-file="$slurm_dir/munge.key" --socket="$slurm_dir/munge.socket" \
        --pid-file="$slurm_dir/munged.pid" --log-file="$slurm_dir/munged.log" --seed-file="$slurm_dir/munged.seed" 2>&1 |
        sed 's/^/munged: /' >&2
    slurmctld -c
    slurmd
    local i
    for i in $(seq 300); do
        ! sinfo -h -o %T 2>/dev/null | grep -qx idle || return 0
        sleep 0.2
    done
    tail -n 20 "$slurm_dir"/*.log >&2
    die "SLURM was started, but its node does not get idle: its logs are above"
}

# Ends the jobs and the daemons that slurm_start has started, and removes their folder.
slurm_stop() {
    local daemon pid i
    [ -n "$slurm_dir" ] || return 0
    scancel --state=running --state=pending 2>/dev/null || true
    for i in $(seq 50); do
        [ -n "$(squeue -h 2>/dev/null)" ] || break
        sleep 0.2
    done
    for daemon in slurmd slurmctld munged; do
        pid=$(cat "$slurm_dir/$daemon.pid" 2>/dev/null) && [ -n "$pid" ] || continue
        kill "$pid" 2>/dev/null || continue
        for i in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            sleep 0.2
        done
    done
    rm -rf "$slurm_dir"
    slurm_dir=
}
