#!/usr/bin/env bash
# Builds the documentation in docs/_build/html, with every warning an error, and runs the notebook of docs/examples.
# PYTHON is an interpreter with the extras docs and plot (default: that of .venv, or else the first on the PATH).
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python=${PYTHON:-$repo/.venv/bin/python}
[ -x "$python" ] || python=$(command -v python3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$repo"
"$python" -m sphinx -W --keep-going -q -b html docs docs/_build/html
cp docs/examples/*.ipynb docs/examples/*.csv "$work"
cd "$work"
"$python" -m jupyter execute ./*.ipynb 2>execute.log || { cat execute.log >&2; exit 1; }
printf '%s\n' "$repo/docs/_build/html/index.html"
