#!/usr/bin/env bash
# What finds most mistakes in a minute: format, clippy, the structure of the sources, unit tests and documentation's tests.
#
#   scripts/check.sh
set -euo pipefail
cd "$(dirname "$0")/.."
cargo fmt --all -- --check
cargo clippy --locked --quiet --all-targets -- -D warnings
cargo test --locked --quiet --lib --bins --test tidy
cargo test --locked --quiet --doc
