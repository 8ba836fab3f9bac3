#!/bin/sh
# Runs the unit tests against the built wheel, in a virtual environment where the checkout is not
# installed and from an empty folder, so that a file missing from the wheel is noticed.
set -eu

venv=$1
cd "$(dirname "$0")/.."
root=$PWD
wheel=$(ls -t dist/holdfast-*.whl | head -n 1)
packed=$root/build/wheel-venv

rm -rf "$packed"
"$venv/bin/python" -m venv --without-pip "$packed"
site() { "$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
# Everything but the project comes from the first environment. Its own .pth files (the editable
# install among them) are not followed from here.
site "$root/$venv" >"$(site "$packed")/dependencies.pth"
"$venv/bin/python" -m pip --disable-pip-version-check --python "$packed/bin/python" \
    install --quiet --no-deps --ignore-installed "$root/$wheel"

empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
cd "$empty"
"$packed/bin/python" - "$packed" <<'PYTHON'
import sys

import holdfast
import holdfast_sidecar

for package in (holdfast, holdfast_sidecar):
    if not package.__file__.startswith(sys.argv[1]):
        sys.exit(f"{package.__name__} comes from {package.__file__}, not from the wheel")
PYTHON
"$packed/bin/python" -m pytest -q -m 'not soak' --numprocesses 2 --dist loadfile \
    -c "$root/pyproject.toml" --rootdir "$root" \
    -p no:cacheprovider "$root/tests/unit"
