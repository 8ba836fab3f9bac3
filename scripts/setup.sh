#!/bin/sh
# Makes the virtual environment named by $1 and, when root, installs the Debian packages that the
# tests use. Running it again repairs and is quick. PYTHON chooses the interpreter.
set -eu

venv=$1
python=${PYTHON:-python3}
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
stop() { say "$@"; exit 1; }

command -v "$python" >/dev/null || stop "no $python on PATH; install Python 3.11 or newer, or name one: make PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    stop "$("$python" --version) is too old; Holdfast needs Python 3.11 or newer: make PYTHON=/path/to/python3"

# command -> Debian package
missing=''
while read -r command package; do
    command -v "$command" >/dev/null || missing="$missing $package"
done <<'PACKAGES'
redis-server redis-server
redis-sentinel redis-sentinel
strace strace
systemd-analyze systemd
openssl openssl
ip iproute2
ss iproute2
unshare util-linux
munged munge
sbatch slurm-client
slurmctld slurmctld
slurmd slurmd
mpirun openmpi-bin
promtool prometheus
amtool prometheus-alertmanager
chromium chromium
PACKAGES
"$python" -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"

if [ -n "$missing" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "not installed:$missing (needs root and apt-get); the tests that use them will be skipped"
    else
        say "installing$missing"
        # A package may not start a service while it is installed: the tests start their own.
        policy=/usr/sbin/policy-rc.d
        if [ ! -e $policy ]; then
            printf '#!/bin/sh\nexit 101\n' >$policy
            chmod 755 $policy
            trap 'rm -f $policy' EXIT
        fi
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq || say "apt-get update failed; trying with the lists that are here"
        # shellcheck disable=SC2086
        apt-get install -qq -y --no-install-recommends $missing >/dev/null ||
            say "could not install$missing; the tests that use them will be skipped"
    fi
fi

if [ ! -x "$venv/bin/python" ]; then
    say "making $venv"
    "$python" -m venv "$venv" || stop "$python can't make a virtual environment; on Debian: apt-get install python3-venv"
fi

# torch first and alone, so that nothing else can choose another one.
say 'installing the pinned packages (torch is the large one)'
torch=$(grep '^torch==' constraints.txt)
"$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt "$torch"
"$venv/bin/python" -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt \
    -e '.[train,server,top,test,adapters,grafana]' hatchling editables
