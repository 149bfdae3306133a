#!/usr/bin/env bash
# A worker under a steady load for a long time: memory must stay flat, the counts exact, and nothing may be left.
#
#   scripts/soak.sh [--for-s 600] [--rate N] [--share 0.8] [--binary PATH] [--store URL] [--seed N]
#
# Without --rate it measures for some seconds how much a worker takes, and loads it with --share of that. The events come
# over HTTP, with every fault that `hotcount load` knows. Exit code 0: all holds; 1: a finding, with a sentence.
#
# Memory is flat when the mean RSS of the last third is at most a tenth above that of the middle third. The first third
# does not count: the buffer, the window and the generations of the store fill in it.
set -euo pipefail

seconds=600 rate='' share=0.8 store='' seed=1 every=5
binary="$(dirname "$0")/../target/release/hotcount"
while [ $# -gt 0 ]; do
  case "$1" in
    --for-s) seconds=$2 ;;
    --rate) rate=$2 ;;
    --share) share=$2 ;;
    --binary) binary=$2 ;;
    --store) store=$2 ;;
    --seed) seed=$2 ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
  shift 2
done
if ! [ -x "$binary" ]; then
  echo "there is no $binary: build it with \`cargo build --release --locked\`, or give --binary PATH" >&2
  exit 2
fi

# Half a million members, who are all stored before long: what a store keeps in memory for each of them is no leak, and must
# not hide one. Likes of members that are stored cost more than others, so the measuring has the same.
kind=(--faults --unlikes 0.1 --users 5000 --posts 100)

place=$(mktemp -d) worker='' load=''
trap 'kill -KILL $worker $load 2>/dev/null || true; rm -rf "$place"' EXIT

fail() { echo "FAILED: $*" >&2; exit 1; }
calc() { awk -v OFMT=%.0f "BEGIN { print $* }"; }
# The value of a field in the last line of JSON.
field() { tail -n 1 "$2" | sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
# The sum of a metric over its labels.
metric() { awk -v name="$1" 'index($1, name) == 1 { sum += $2 } END { printf "%.0f", sum }' "$place/metrics"; }

# start STORE: a worker on a free port; sets worker and address.
start() {
  : >"$place/log"
  "$binary" run --source http: --store "$1" --http 127.0.0.1:0 --json >"$place/report" 2>"$place/log" &
  worker=$!
  for _ in $(seq 600); do
    address=$(sed -n 's/.*\(http:\/\/127\.0\.0\.1:[0-9]*\).*/\1/p' "$place/log" | head -n 1)
    [ -z "$address" ] || return 0
    kill -0 "$worker" 2>/dev/null || fail "the worker ended: $(cat "$place/log")"
    sleep 0.1
  done
  fail "the worker does not listen"
}

# stop: drains it; all that it held must be settled.
stop() {
  kill -TERM "$worker"
  wait "$worker" || fail "the worker ended with $?: $(tail -n 3 "$place/log")"
  worker=''
  [ "$(field left "$place/report")" = 0 ] || fail "something is left: $(cat "$place/report")"
}

if [ -z "$rate" ]; then
  echo "measuring what a worker takes"
  start "embedded:$place/capacity?memory_mib=8&cache_mib=16"
  messages=20000
  while :; do
    "$binary" load --to "$address" --messages "$messages" "${kind[@]}" --post-prefix "measured-$messages-" --json \
      >"$place/measured"
    # Long enough not to measure the beginning alone.
    if [ "$(calc "$(field elapsed_s "$place/measured") >= 10")" = 1 ]; then break; fi
    messages=$((messages * 3))
  done
  stop
  rm -rf "$place/capacity"
  measured=$(field messages_per_s "$place/measured")
  rate=$(calc "int($measured * $share)")
  echo "it takes ${measured%.*} messages/s; $rate are $share of that"
fi

# Small generations and a small cache: at any rate they are full long before the first third ends, and then must not grow.
store=${store:-embedded:$place/data?memory_mib=8&cache_mib=16}
start "$store"
"$binary" load --to "$address" --rate "$rate" --for-s "$seconds" "${kind[@]}" --seed "$seed" \
  --expect "$place/expected" --json >"$place/sent" 2>"$place/load.log" &
load=$!

began=$SECONDS
printf '%8s %12s %12s %10s %12s %10s\n' 'time s' 'received' 'RSS KiB' 'held' 'held bytes' 'buffered'
while kill -0 "$load" 2>/dev/null; do
  sleep "$every"
  curl -sf "$address/metrics" >"$place/metrics" || fail "the worker does not answer: $(tail -n 3 "$place/log")"
  rss=$(awk '/^VmRSS/ { print $2 }' "/proc/$worker/status")
  row="$((SECONDS - began)) $(metric hotcount_deliveries_received_total) $rss $(metric hotcount_held_deliveries)"
  row="$row $(metric hotcount_held_bytes) $(metric hotcount_buffered_likes)"
  echo "$row" >>"$place/rows"
  # shellcheck disable=SC2086 # a word a column
  printf '%8s %12s %12s %10s %12s %10s\n' $row
done
wait "$load" || fail "the load did not end well: $(cat "$place/sent" "$place/load.log")"
load=''
cat "$place/sent"

curl -sf "$address/metrics" >"$place/metrics"
for gauge in hotcount_held_deliveries hotcount_held_bytes; do
  [ "$(metric $gauge)" = 0 ] || fail "$gauge is $(metric $gauge) after everything was answered"
done
"$binary" verify --deep --store "$address" --json >"$place/verified" || fail "drift: $(tail -n 1 "$place/verified")"
"$binary" load check --expect "$place/expected" --store "$address" --json >"$place/checked" ||
  fail "counts differ: $(tail -n 1 "$place/checked")"
echo "verify: $(tail -n 1 "$place/verified")"
echo "check: $(tail -n 1 "$place/checked")"
stop
echo "report: $(cat "$place/report")"

awk -v rows="$(wc -l <"$place/rows")" '
  { third = int((NR - 1) * 3 / rows) + 1; sum[third] += $3; number[third]++ }
  $3 > most { most = $3 }
  END {
    if (number[2] == 0 || number[3] == 0) { print "FAILED: too short to say whether memory is flat"; exit 1 }
    middle = sum[2] / number[2]; last = sum[3] / number[3]
    printf "RSS: middle third %.0f KiB, last third %.0f KiB (%+.1f %%), at most %d KiB\n", middle, last, (last / middle - 1) * 100, most
    if (last > middle * 1.1) { print "FAILED: memory grows"; exit 1 }
  }' "$place/rows"
echo "ok: $seconds s at $rate messages/s"
