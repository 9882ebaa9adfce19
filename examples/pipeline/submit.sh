#!/bin/bash
# Submit the three steps; each waits until the one before it has ended well. If it has not, SLURM
# cancels those that can then never run. bash submit.sh
set -uo pipefail
cd "$(dirname "$0")" || exit 1

jobs=()

# submit STEP WORD ...: submit a step, and keep its number. If it is refused, none is left waiting.
submit() {
    local step=$1 job
    shift
    if ! job=$(sbatch --parsable --kill-on-invalid-dep=yes "$@"); then
        ((${#jobs[@]})) && scancel "${jobs[@]}"
        echo "submit.sh: $step was refused (sbatch says why above), so no step is submitted" >&2
        exit 1
    fi
    jobs+=("${job%%;*}")
    echo "$step: job ${jobs[-1]}"
}

submit prepare prepare.sbatch
folder=pipeline-${jobs[0]}
submit fit --dependency="afterok:${jobs[0]}" fit.sbatch "$folder"
submit evaluate --dependency="afterok:${jobs[1]}" evaluate.sbatch "$folder"
echo "bash status.sh ${jobs[*]} says how they go, and which log to read if one fails"
