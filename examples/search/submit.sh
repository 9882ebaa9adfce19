#!/bin/bash
# Submit the search, and the job that prints its table when all of its tasks have ended.
set -euo pipefail
cd "$(dirname "$0")"

search=$(sbatch --parsable search.sbatch)
search=${search%%;*}
if ! table=$(sbatch --parsable --dependency="afterany:$search" table.sbatch "search-$search"); then
    scancel "$search"
    echo "submit.sh: the table's job was refused, so the search ($search) was cancelled" >&2
    exit 1
fi
echo "search: job $search, its losses are in search-$search"
echo "table: job ${table%%;*}, which prints it to table-${table%%;*}.out"
