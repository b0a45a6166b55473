#!/usr/bin/env bash
# Builds the documentation in docs/_build/html, with every warning an error, and runs the notebook of docs/examples afresh.
# PYTHON is an interpreter with the extras docs and plot (default: that of .venv, or else the first on the PATH).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$repo/.venv/bin/python}
[ -x "$python" ] || python=python3
cd "$repo"
"$python" -m sphinx -W --keep-going -q -n -b html docs docs/_build/html
"$python" -m jupyter execute docs/examples/*.ipynb >/dev/null
printf '%s\n' "docs/_build/html/index.html"
