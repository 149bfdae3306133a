#!/usr/bin/env bash
# The full numbers of the proofs of which `.ci/run` runs a part: about an hour on two cores.
#
#   scripts/prove.sh [--seeds 100000] [--kills 500] [--outage-s 600]
set -euo pipefail
cd "$(dirname "$0")/.."
seeds=100000 kills=500 outage_s=600
while [ $# -gt 0 ]; do
  case "$1" in
    --seeds) seeds=$2 ;;
    --kills) kills=$2 ;;
    --outage-s) outage_s=$2 ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
export HOTCOUNT_REQUIRE_EMULATORS=1
cargo test --locked --test simulation -- --seeds "$seeds"
cargo test --locked --test killed -- --kills "$kills"
cargo test --locked --test killed -- away --outage-s "$outage_s"
cargo test --locked --test interleavings
PROPTEST_CASES=10000 cargo test --locked --test parsers
