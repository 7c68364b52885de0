#!/bin/sh
# bench/netns.sh measures on its shaped network and leaves nothing behind, as TAP.  Skips without root, network
# namespaces or tc.  usage: sh tests/netns.sh QCCL_PERF
set -u
here=$(dirname "$0")/..
export QCCL_PERF="$1" QCCL_PERF_FLAGS="-n 3 -w 1"

if [ "$(id -u)" != 0 ] || ! command -v tc >/dev/null || ! ip netns add qcclprobe 2>/dev/null; then
    echo "1..0 # SKIP no root, no tc or no network namespaces"
    exit 0
fi
ip netns del qcclprobe

number=0
failed=0

# check NAME COMMAND...
check() {
    name=$1
    shift
    number=$((number + 1))
    if "$@"; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        failed=1
    fi
}

nothing_left() {
    ! ip netns list | grep -q '^qccl'
}

# What a run over a link of 100 Mbit/s cannot be: faster than the link.
is_shaped() {
    python3 - "$1" <<'PYTHON'
import json, sys
row = json.loads(sys.argv[1])
keys = ("time_us", "baseline_time_us", "wire_bytes", "rel_error", "ideal_time_us", "speedup")
assert all(isinstance(row[key], (int, float)) for key in keys), row
assert 0 < row["rel_error"] < 1 and row["time_us"] > row["ideal_time_us"] / 2, row
PYTHON
}

refuses() {
    sh "$here/bench/netns.sh" run --rate fast >/dev/null 2>&1
    [ $? = 2 ]
}

object=$(timeout 100 sh "$here/bench/netns.sh" run --ranks 2 --rate 100mbit --size 4M --json)
check "a run prints what it measured, within what the link allows" is_shaped "$object"
check "the network is gone afterwards" nothing_left
sh "$here/bench/netns.sh" run --program "sleep 60" >/dev/null 2>&1 &
sleep 3
kill -TERM $!
wait $! 2>/dev/null
check "also after a run that was interrupted" nothing_left
check "a rate that is none is refused" refuses
echo "1..$number"
exit $failed
