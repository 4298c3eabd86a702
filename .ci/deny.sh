#!/usr/bin/env bash
# The supply chain: what comes in, from where, under which licence, and that the versions we say we need are enough.
#
#   .ci/deny.sh            cargo-deny, the oldest versions, the oldest compiler
#
# Advisories need RustSec's database, which cargo-deny clones from GitHub. Where that cannot be reached the script says
# so and goes on; with DENY_ADVISORIES=required it fails instead, as it should where releases are made.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "==> bans, licences, sources"
cargo deny --locked --all-features check bans licenses sources

echo "==> advisories"
if ! cargo deny fetch db > /dev/null 2>&1; then
    if [ "${DENY_ADVISORIES:-}" = required ]; then
        echo "the advisory database cannot be fetched" >&2
        exit 1
    fi
    echo "NOT CHECKED: the advisory database cannot be fetched from here"
else
    cargo deny --locked --all-features check --hide-inclusion-graph advisories
fi

# The library alone, in a copy without what only tests and benches need: those have minimums of their own.
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r src docs README.md "$copy"
awk '/^\[/ { skip = /^\[dev-dependencies\]|^\[\[(bench|example|test)\]\]/ } !skip' Cargo.toml \
    | sed 's/^members = .*/members = ["."]/' > "$copy/Cargo.toml"
msrv=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
target=${CARGO_TARGET_DIR:-$PWD/target}/supply-chain

# Only the resolver needs the unstable flag, and any cargo that is told so has it.
for oldest in direct-minimal-versions minimal-versions; do
    echo "==> oldest dependencies: $oldest"
    rm -f "$copy/Cargo.lock"
    RUSTC_BOOTSTRAP=1 cargo update --quiet --manifest-path "$copy/Cargo.toml" "-Z$oldest"
    cargo check --quiet --manifest-path "$copy/Cargo.toml" --target-dir "$target" --lib --features baseline,informer
done

echo "==> oldest compiler: $msrv"
if ! rustup run "$msrv" rustc --version > /dev/null 2>&1; then
    if ! rustup toolchain install "$msrv" --profile minimal --no-self-update; then
        echo "NOT CHECKED: the toolchain $msrv cannot be installed from here"
        exit 0
    fi
fi
# With the oldest dependencies, which the copy has by now, and with those of Cargo.lock.
check_msrv() {
    cargo "+$msrv" check --quiet --manifest-path "$copy/Cargo.toml" --target-dir "$target" --lib --features baseline,informer
}
check_msrv
cp Cargo.lock "$copy/Cargo.lock"
check_msrv
