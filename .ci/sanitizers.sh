#!/usr/bin/env bash
# The stress, fault and hostile-input tests under the sanitizers, valgrind and miri.
#
#   .ci/sanitizers.sh [thread] [address] [valgrind] [miri]       default: all
#   DELTA_FIFO_STRESS_SECONDS=2                                  time of each stress shape
#
# thread    ThreadSanitizer. The standard library is built with it too (component rust-src of nightly): without that, a
#           contended std mutex inside event-listener gives dozens of false reports.
# address   AddressSanitizer, and with it LeakSanitizer: what is not freed when a test ends is reported.
# valgrind  memcheck over the same tests as they are.
# miri      undefined behaviour, and leaks, in the code of the queue and of what it stands on; a small part of the tests,
#           because it is a thousand times slower.
#
# The library has no unsafe code of its own. What is looked for is in its dependencies, and in how they are used.
set -euo pipefail
cd "$(dirname "$0")/.."

host=$(rustc -vV | sed -n 's/^host: //p')
target=${CARGO_TARGET_DIR:-$PWD/target}
export DELTA_FIFO_STRESS_SECONDS=${DELTA_FIFO_STRESS_SECONDS:-2}
# Panics are part of these tests, and backtraces of them are slow here.
export RUST_BACKTRACE=0
tests=(--test stress --test faults --test hostile)
wanted=("$@")
[ ${#wanted[@]} -gt 0 ] || wanted=(thread address valgrind miri)

need_component() {
    rustup component list --toolchain nightly | grep -q "^$1.*(installed)" || rustup component add "$1" --toolchain nightly
}

for tool in "${wanted[@]}"; do
    from=$SECONDS
    echo "==> $tool"
    case $tool in
    thread)
        need_component rust-src
        RUSTFLAGS="-Zsanitizer=thread" TSAN_OPTIONS="halt_on_error=1" cargo +nightly test -Zbuild-std --target "$host" \
            --target-dir "$target/tsan" --profile model "${tests[@]}"
        ;;
    address)
        RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS="detect_leaks=1" cargo +nightly test --target "$host" \
            --target-dir "$target/asan" --profile model "${tests[@]}"
        ;;
    valgrind)
        # One thread at a time runs under it, so less is done in the same time.
        programs=$(cargo test --no-run --profile model --target-dir "$target/valgrind" --message-format=json "${tests[@]}" \
            | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
        for program in $programs; do
            valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect \
                --errors-for-leak-kinds=definite,indirect --fair-sched=yes "$program" --test-threads=1 \
                --skip million
        done
        ;;
    miri)
        need_component rust-src
        need_component miri
        # permissive-provenance: parking_lot_core, under dashmap, casts an address to a pointer, which is allowed.
        MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" cargo +nightly miri test \
            --target-dir "$target/miri" --test faults futures:: -- --skip again_and_again
        MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance" cargo +nightly miri test \
            --target-dir "$target/miri" --test hostile -- nothing_is_left a_claim_that a_timeout limits_of_nothing
        ;;
    *)
        echo "there is no $tool here" >&2
        exit 2
        ;;
    esac
    echo "<== $tool: $((SECONDS - from)) s"
done
