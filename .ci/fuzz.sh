#!/usr/bin/env bash
# Runs every fuzz target for a short, fixed number of inputs, on whatever toolchain is the default: without a sanitizer
# cargo-fuzz needs no nightly. The committed corpus is read and not written.
#
#   .ci/fuzz.sh [TARGET ...]          these targets (default: all)
#   FUZZ_RUNS=20000                   inputs for each target (default: 2,000 for reflector, whose runs are long)
#   FUZZ_SECONDS=600                  instead: so long for each
#   FUZZ_SANITIZER=address            with AddressSanitizer; needs nightly: `RUSTUP_TOOLCHAIN=nightly .ci/fuzz.sh`
#
# What a run finds new is in target/fuzz-corpus, an input that fails in fuzz/artifacts. A finding becomes a test first.
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizer=${FUZZ_SANITIZER:-none}
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo fuzz list)
fi

cargo fuzz build --sanitizer "$sanitizer"
for target in "${targets[@]}"; do
    runs=20000
    [ "$target" != reflector ] || runs=2000
    end=-runs=${FUZZ_RUNS:-$runs}
    [ -z "${FUZZ_SECONDS:-}" ] || end=-max_total_time=$FUZZ_SECONDS
    found=target/fuzz-corpus/$target
    mkdir -p "$found" "fuzz/corpus/$target"
    echo "==> fuzz $target, sanitizer $sanitizer, $end"
    # The report of a run without a finding is its last line.
    if ! cargo fuzz run --sanitizer "$sanitizer" "$target" "$found" "fuzz/corpus/$target" -- \
        "$end" -max_len=2048 -rss_limit_mb=2048 -timeout=20 > "target/fuzz-$target.log" 2>&1; then
        tail -n 60 "target/fuzz-$target.log"
        exit 1
    fi
    grep -E '^Done' "target/fuzz-$target.log" | tail -n 1
done
