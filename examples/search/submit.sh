#!/bin/bash
# Submit the search, and the job that prints its table when all of its tasks have ended.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

search=
# Whatever ends this before both are submitted, such as Ctrl-C, leaves no search without its table.
cancel() {
    [ -n "$search" ] || return
    if scancel "$search"; then
        echo "submit.sh: the table's job was not submitted, so the search ($search) was cancelled" >&2
    else
        echo "submit.sh: the search is still there without its table: scancel $search" >&2
    fi
}
trap cancel EXIT
trap 'exit 1' INT TERM HUP

search=$(sbatch --parsable search.sbatch) || exit 1
search=${search%%;*}
table=$(sbatch --parsable --dependency="afterany:$search" table.sbatch "search-$search") || exit 1
trap - EXIT
echo "search: job $search, its losses are in search-$search"
echo "table: job ${table%%;*}, which prints it to table-${table%%;*}.out"
