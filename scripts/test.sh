#!/usr/bin/env bash
# Runs the tests whose name has PART in it, wherever they are, and shows what they print. Emulators are started as they are
# needed; a test that needs one that is not installed fails instead of being skipped.
#
#   scripts/test.sh PART
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -ne 1 ]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
export HOTCOUNT_REQUIRE_EMULATORS=1
ran=0
targets=(--lib --bins)
for test in tests/*/main.rs; do
  name=${test%/main.rs}
  name=$(basename "$name")
  # These have names of their own for what they try; their --help says how to run them.
  [[ $name =~ ^(interleavings|killed|simulation)$ ]] || targets+=(--test "$name")
done
listed=$(cargo test --locked --quiet "${targets[@]}" -- --list 2>/dev/null | grep -c "$1.*: test$" || true)
if [ "$listed" -eq 0 ]; then
  echo "no test has '$1' in its name" >&2
  exit 1
fi
cargo test --locked --quiet "${targets[@]}" "$1" -- --nocapture
