#!/bin/bash
# Say how steps go, and which log to read if one has failed: bash status.sh 41 42 43, on a login
# node. Exit code 0: all are done; 1: one has failed; 2: not all have ended, or nobody knows.
set -uo pipefail
cd "$(dirname "$0")" || exit 2

failed=
waiting=
for job in "$@"; do
    if ! line=$(sacct --noheader --parsable2 --allocations --format=JobName,State,ElapsedRaw \
        --jobs="$job"); then
        echo "status.sh: sacct did not answer for job $job: try it on a login node" >&2
        exit 2
    fi
    IFS='|' read -r name state seconds <<<"$line"
    case $state in
    "")
        echo "job $job: not known yet"
        waiting=yes
        ;;
    COMPLETED) echo "$name, job $job: done" ;;
    PENDING | RUNNING | COMPLETING | CONFIGURING | REQUEUED | SUSPENDED)
        echo "$name, job $job: $state"
        waiting=yes
        ;;
    CANCELLED* | DEPENDENCY*)
        if [ "$seconds" = 0 ]; then
            echo "$name, job $job: cancelled before it ran${failed:+, as $failed has failed}"
        else
            echo "$name, job $job: $state after $seconds s: read $name-$job.out"
        fi
        failed=${failed:-$name}
        ;;
    *)
        echo "$name, job $job: $state: read $name-$job.out, and what muster-job $job says"
        failed=${failed:-$name}
        ;;
    esac
done
[ -z "$failed" ] || exit 1
[ -z "$waiting" ] || exit 2
