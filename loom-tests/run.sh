#!/usr/bin/env bash
# Runs the models.
#
#   loom-tests/run.sh quick    what every change has to pass: all models at two preemptions on both stand-in queues, at
#                              one on the real queue and event, every mutation, shuttle, recorded histories
#   loom-tests/run.sh deep     three preemptions on the stand-ins, two on the real parts, more schedules (about half an hour)
set -euo pipefail
cd "$(dirname "$0")/.."

# Either would replace what the aliases set, and every model would compile away (the build refuses that too).
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS LOOM_MAX_DURATION LOOM_MAX_PERMUTATIONS DELTA_FIFO_BUG
export RUST_BACKTRACE=0

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# models NAME COMMAND...: runs, prints one line, and fails unless every test that passed was a model that ran.
models() {
    local name=$1 from=$SECONDS
    shift
    printf '\n==> %s: %s\n' "$name" "$*"
    if ! "$@" > "$log" 2>&1; then
        tail -n 200 "$log"
        echo "FAILED: $name"
        exit 1
    fi
    local ran passed executions
    ran=$(grep -c '^MODEL ' "$log" || true)
    passed=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    executions=$(sed -n 's/^MODEL .* executions=\([0-9]*\) .*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
    if [ "$ran" -eq 0 ] || [ "$ran" -ne "$passed" ]; then
        cat "$log"
        echo "FAILED: $name: $passed tests passed, but $ran models ran"
        exit 1
    fi
    printf '<== %s: %s models, %s executions, %s s\n' "$name" "$ran" "$executions" "$((SECONDS - from))"
}

# mutations COMMAND...: the table; fails unless every bug is caught.
mutations() {
    local from=$SECONDS
    printf '\n==> %s\n' "$*"
    if ! "$@" > "$log" 2>&1; then
        tail -n 200 "$log"
        echo "FAILED: $*"
        exit 1
    fi
    grep '^MUTATION' "$log"
    printf '<== %s s\n' "$((SECONDS - from))"
}

histories() {
    printf '\n==> recorded histories of real threads\n'
    cargo test --test linearizability -- --nocapture
}

case ${1:-} in
quick)
    models "loom" cargo loom -- --nocapture
    models "loom, weak queue" env DELTA_FIFO_QUEUE=weak cargo loom -- --nocapture
    mutations cargo loom-mutations
    models "loom, real queue and event, one preemption" env DELTA_FIFO_BOUND=1 cargo loom-real -- --nocapture
    mutations cargo loom-real-mutations
    models "shuttle, random" env SHUTTLE_ITERATIONS=500 cargo shuttle -- --nocapture
    models "shuttle, pct" env SHUTTLE_SCHEDULER=pct SHUTTLE_ITERATIONS=500 cargo shuttle -- --nocapture
    histories
    ;;
deep)
    models "loom, three preemptions" env DELTA_FIFO_BOUND=3 cargo loom -- --nocapture
    models "loom, weak queue" env DELTA_FIFO_QUEUE=weak cargo loom -- --nocapture
    models "loom, real queue and event" cargo loom-real -- --nocapture
    mutations cargo loom-mutations
    mutations cargo loom-real-mutations
    models "shuttle, random" env SHUTTLE_ITERATIONS=50000 cargo shuttle -- --nocapture
    models "shuttle, pct" env SHUTTLE_SCHEDULER=pct SHUTTLE_ITERATIONS=50000 cargo shuttle -- --nocapture
    histories
    ;;
*)
    sed -n '2,7s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
printf '\nAll passed in %s s.\n' "$SECONDS"
