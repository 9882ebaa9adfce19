#!/bin/bash
# Submit the search, and the job that prints its table when all of its tasks have ended.
set -uo pipefail
cd "$(dirname "$0")" || exit 1

search=
# Whatever ends this before both are submitted, such as Ctrl-C, leaves no search without its table.
cancel() {
    [ -n "$search" ] || return
    if scancel "$search"; then
        echo "submit.sh: the table's job was not submitted, so the search ($search) was cancelled:" \
            "type bash submit.sh again" >&2
    else
        echo "submit.sh: the search is still there without its table: scancel $search" >&2
    fi
}
trap cancel EXIT
trap 'exit 1' INT TERM HUP

search=$(sbatch --parsable --hold search.sbatch) || exit 1
search=${search%%;*}
# Its tasks may wait for days, and parameters.jsonl may be that of another search by then.
if ! mkdir -p "search-$search" || ! cp parameters.jsonl "search-$search"; then
    echo "submit.sh: parameters.jsonl can't be copied to search-$search: see above; muster-quota shows" \
        "whether there is room" >&2
    exit 1
fi
scontrol release "$search" || exit 1
table=$(sbatch --parsable --dependency="afterany:$search" table.sbatch "search-$search") || exit 1
trap - EXIT
echo "search: job $search, its losses are in search-$search"
echo "table: job ${table%%;*}, which prints it to table-${table%%;*}.out"
