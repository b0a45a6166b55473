#!/usr/bin/env bash
# From a clone to the first AUC: runs the commands of README.md's section of that name in an empty folder, with this
# repository and a file of scores of its own, and says how long each took.
set -euo pipefail
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mapfile -t commands < <(sed -n '/^## From a clone/,/^## /{/^```sh/,/^```/p;}' "$repo/README.md" | grep -v '^```')
[ "${#commands[@]}" -ge 1 ] || { echo "newcomer.sh: README.md has no such commands" >&2; exit 1; }
cd "$work"
awk 'BEGIN { srand(1); print "score,y"; for (i = 0; i < 2000; i++) print rand() + (i % 2) / 2 "," i % 2 }' >mine.csv
unset PYTHONPATH PYTHONHOME
export PIP_DISABLE_PIP_VERSION_CHECK=1
begin=$EPOCHREALTIME
for command in "${commands[@]}"; do
    from=$EPOCHREALTIME
    printf '$ %s\n' "$command"
    bash -c "${command//REPOSITORY/\"$repo\"}" 2>&1 | { grep -v '^WARNING' || true; } | tail -n 15
    awk "BEGIN { printf \"# %.1f s\n\", $EPOCHREALTIME - $from }"
done
awk "BEGIN { printf \"# %d commands, %.1f s in all\n\", ${#commands[@]}, $EPOCHREALTIME - $begin }"
times >times.txt
echo "# user and system time of the commands: $(tail -n 1 times.txt)"
