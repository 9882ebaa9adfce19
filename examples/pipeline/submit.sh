#!/bin/bash
# Submit the three steps; each waits until the one before it has ended well. If it has not, SLURM
# cancels those that can then never run. bash submit.sh
set -uo pipefail
cd "$(dirname "$0")" || exit 1

jobs=()
job=

# Whatever ends this before all are submitted, such as Ctrl-C, leaves none waiting.
cancel() {
    [ -z "$job" ] || jobs+=("${job%%;*}")
    ((${#jobs[@]})) || return
    scancel "${jobs[@]}" || echo "submit.sh: these steps are still there: scancel ${jobs[*]}" >&2
}
trap cancel EXIT
trap 'exit 1' INT TERM HUP

# submit STEP WORD ...: submit a step, and keep its number.
submit() {
    local step=$1
    shift
    if ! job=$(sbatch --parsable --kill-on-invalid-dep=yes "$@"); then
        echo "submit.sh: $step was refused (sbatch says why above), so no step is submitted" >&2
        exit 1
    fi
    jobs+=("${job%%;*}")
    job=
    echo "$step: job ${jobs[-1]}"
}

submit prepare prepare.sbatch
folder=pipeline-${jobs[0]}
submit fit --dependency="afterok:${jobs[0]}" fit.sbatch "$folder"
submit evaluate --dependency="afterok:${jobs[1]}" evaluate.sbatch "$folder"
trap - EXIT
echo "bash status.sh ${jobs[*]} says how they go, and which log to read if one fails"
