#!/usr/bin/env bash
# Runs this crate's own bench and its rivals in turn (A B C, A B C, ...) and prints medians, spread and ratios.
# README.md beside this file says what is measured and how to read it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)

usage() {
    cat <<'USAGE'
usage: benches/rivals/run.sh [options]
  --rounds N        rounds; each runs every program once (5)
  --scale F         factor on the amount of work, above 0 and up to 1; below 1 only shows that all runs (1)
  --workload LIST   comma-separated workloads (W1,W2,W2u,W3,W3b,W4,W5,W6,W6q,W7,W7q,W8)
  --objects KIND    what an update hands over: shared (the known object again) or fresh (a new one) (shared)
  --whole           run each program over all workloads at once, instead of turning after each workload
  --skip LIST       leave out: engine, client-go, kube-rs
  --reference NAME  what ratios refer to (delta-fifo; client-go/DeltaFIFO with --skip engine)
  --out FILE        where the JSON lines go (bench-results/rivals.jsonl)
environment:
  ENGINE_BENCH      command of this crate's bench
                    (cargo bench --quiet --features baseline --bench workloads -- --json)
  RIVALS_TARGET     where the rivals are built (benches/rivals/target)
USAGE
}

die() {
    echo "run.sh: $*" >&2
    exit 1
}

rounds=5 scale=1 objects=shared whole= skip= reference= out=$root/bench-results/rivals.jsonl
workloads=W1,W2,W2u,W3,W3b,W4,W5,W6,W6q,W7,W7q,W8
while (($#)); do
    case $1 in
    --whole) whole=1 ;;
    -h | --help) usage; exit 0 ;;
    --rounds | --scale | --objects | --workload | --skip | --reference | --out)
        (($# > 1)) || die "$1 needs a value"
        case $1 in
        --rounds) rounds=$2 ;;
        --scale) scale=$2 ;;
        --objects) objects=$2 ;;
        --workload) workloads=$2 ;;
        --skip) skip=$2 ;;
        --reference) reference=$2 ;;
        --out) out=$2 ;;
        esac
        shift
        ;;
    *) usage >&2; die "unknown option $1" ;;
    esac
    shift
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || die "--rounds is '$rounds'; give a number from 1 on"
[[ $objects == shared || $objects == fresh ]] || die "--objects is '$objects'; give shared or fresh"
for name in ${skip//,/ }; do
    [[ $name == engine || $name == client-go || $name == kube-rs ]] || die "--skip knows no '$name'"
done
skipped() { [[ ,$skip, == *,"$1",* ]]; }

# Build everything before anything is measured.
cd "$root"
bin=${RIVALS_TARGET:-$here/target}
mkdir -p "$bin"
programs=()
if ! skipped engine; then
    if [[ -z ${ENGINE_BENCH:-} ]]; then
        cargo bench --quiet --features baseline --bench workloads --no-run ||
            die "this crate's own bench does not build; --skip engine runs the rivals alone"
        ENGINE_BENCH="cargo bench --quiet --features baseline --bench workloads -- --json"
    fi
    programs+=(engine)
fi
if ! skipped client-go; then
    command -v go >/dev/null || die "the client-go rival needs Go (see README.md); --skip client-go runs without it"
    (cd "$here/client-go" && go build -o "$bin/client-go" .)
    programs+=(client-go)
fi
if ! skipped kube-rs; then
    cargo build --quiet --release --locked --target-dir "$bin" --manifest-path "$here/kube-rs/Cargo.toml"
    programs+=(kube-rs)
fi
((${#programs[@]})) || die "everything is skipped"
cargo build --quiet --release --locked --target-dir "$bin" --manifest-path "$here/table/Cargo.toml"
if [[ -z $reference ]]; then
    if ! skipped engine; then
        reference=delta-fifo
    elif ! skipped client-go; then
        reference=client-go/DeltaFIFO
    else
        reference=kube-rs/dispatcher
    fi
fi

run() {
    local program=$1
    shift
    case $program in
    engine) $ENGINE_BENCH "$@" ;; # several words on purpose
    client-go) "$bin/client-go" "$@" ;;
    kube-rs) "$bin/release/rival-kube-rs" "$@" ;;
    esac
}

mkdir -p "$(dirname "$out")"
cpu=$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
printf '{"meta":{"program":"machine","cpu":"%s","cores":%s,"kernel":"%s","load_before":"%s"}}\n' \
    "${cpu:-unknown}" "$(nproc)" "$(uname -sr)" "$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo unknown)" >"$out"

IFS=, read -ra steps <<<"$workloads"
[[ -z $whole ]] || steps=(all)
for step in "${steps[@]}"; do
    args=()
    [[ $step == all ]] || args+=(--workload "$step")
    # What is the default anyway is not said, so that a bench without these options can take part.
    [[ $scale == 1 ]] || args+=(--scale "$scale")
    [[ $objects == shared ]] || args+=(--objects "$objects")
    for ((round = 1; round <= rounds; round++)); do
        for program in "${programs[@]}"; do
            echo "$step, round $round of $rounds: $program" >&2
            run "$program" ${args[@]+"${args[@]}"} >>"$out" || die "$program failed on $step"
        done
    done
done

"$bin/release/rival-table" "$out" "$reference"
echo "The lines behind this table are in $out." >&2
