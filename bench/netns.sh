#!/bin/sh
# Collectives between hosts on a shaped network, on one machine: a network namespace a host, a bridge as the switch,
# and a token bucket on both ends of every link.  Needs root, iproute2 and Open MPI.
#
# usage: sh bench/netns.sh up   [--ranks N] [--rate R]
#        sh bench/netns.sh down
#        sh bench/netns.sh run  [--ranks N] [--rate R] [--size S] [--policy P] [--collective C] [--json]
#                               [--program "COMMAND..."]
#
#   --ranks N       hosts, one rank on each (2)
#   --rate R        of every link, as tc writes it: 200mbit, 1gbit, 10gbit (1gbit)
#   --size S        raw bytes of the collective, as qccl-perf -b takes them (64M)
#   --policy P      as everywhere (int4)
#   --collective C  allreduce, reducescatter, allgather or delta (allreduce)
#   --json          one object instead of qccl-perf's table: time_us, baseline_time_us, wire_bytes of one rank,
#                   rel_error, ideal_time_us (what the rate allows for those bytes), ratio (raw bytes over
#                   those of the wire) and speedup
#   --program C     runs C on every host instead of qccl-perf; MPI's ranks are the hosts
#
# The baseline is the uncompressed call, MPI's own, in turn with the compressed one in the same run; its all-reduce is
# Open MPI's ring, which is faster here than its default (QCCL_RING=0: the default).  `run` sets the network up and
# takes it down, also when it is interrupted.  QCCL_PERF names another qccl-perf than build/bench/qccl-perf; further
# words of QCCL_PERF_FLAGS are passed on to it.  QCCL_NET (qccl) begins the namespaces' names: networks of other names
# live side by side, and nothing is set up over one in which a program runs.
set -eu
cd "$(dirname "$0")/.."

ranks=2
rate=1gbit
size=64M
policy=int4
collective=allreduce
json=0
program=
net=${QCCL_NET:-qccl}

die() {
    echo "netns.sh: $*" >&2
    exit 1
}

usage_error() {
    echo "netns.sh: $*; see sh bench/netns.sh --help" >&2
    exit 2
}

need_tools() {
    [ "$(id -u)" = 0 ] || die "network namespaces need root"
    for tool in ip tc mpirun; do
        command -v $tool >/dev/null || die "$tool is missing (Debian: iproute2, openmpi-bin)"
    done
}

# shape NAMESPACE DEVICE: queues are short, since long ones only add delay
shape() {
    case $rate in
        10gbit) queue="burst 512k limit 3m" ;;
        *) queue="burst 128k limit 300k" ;;
    esac
    # shellcheck disable=SC2086
    ip netns exec "$1" tc qdisc add dev "$2" root tbf rate "$rate" $queue
}

namespaces() {
    ip netns list | awk '{print $1}' | grep -E "^$net(h[0-9]+|sw)\$" || true
}

# Someone else's run is no leftover.
need_idle() {
    for name in $(namespaces); do
        [ -z "$(ip netns pids "$name")" ] || die "a program runs in $name: wait, set QCCL_NET, or end it with down"
    done
}

down() {
    for name in $(namespaces); do
        ip netns pids "$name" | xargs -r kill -9 2>/dev/null || true
        ip netns del "$name"
    done
}

up() {
    down
    ip netns add "${net}sw"
    ip -n "${net}sw" link add br0 type bridge
    ip -n "${net}sw" link set br0 up
    host=0
    while [ $host -lt "$ranks" ]; do
        ip netns add "${net}h$host"
        ip -n "${net}h$host" link set lo up
        ip -n "${net}sw" link add p$host type veth peer name e0 netns "${net}h$host"
        ip -n "${net}sw" link set p$host master br0 up
        ip -n "${net}h$host" link set e0 up
        ip -n "${net}h$host" addr add 198.18.0.$((host + 1))/24 dev e0
        shape "${net}h$host" e0
        shape "${net}sw" p$host
        host=$((host + 1))
    done
}

# What mpirun takes for ssh: the first word that is no option is the host's address, the rest its command.
write_agent() {
    printf '#!/bin/sh\nnet=%s\n' "$net" >"$work/agent"
    cat >>"$work/agent" <<'AGENT'
while :; do case $1 in -*) shift ;; *) break ;; esac; done
host=${net}h$((${1##*.} - 1))
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
AGENT
    chmod +x "$work/agent"
}

# on_hosts COMMAND: as ranks on all hosts
on_hosts() {
    hosts=""
    host=0
    while [ $host -lt "$ranks" ]; do
        hosts="$hosts${hosts:+,}198.18.0.$((host + 1)):1"
        host=$((host + 1))
    done
    ring="--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4"
    [ "${QCCL_RING:-1}" = 1 ] || ring=""
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        ip netns exec "${net}h0" unshare --uts sh -c "hostname ${net}h0; exec mpirun --oversubscribe --bind-to none \
        --leave-session-attached --mca plm rsh --mca plm_rsh_agent $work/agent --mca plm_rsh_no_tree_spawn 1 \
        --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include 198.18.0.0/24 \
        --mca oob_tcp_if_include 198.18.0.0/24 --mca mpi_yield_when_idle 1 $ring \
        --host $hosts -n $ranks $1" &
    wait $! # an interrupt ends this wait at once
}

# The object of --json, from qccl-perf's own.
summarise() {
    python3 - "$1" "$rate" <<'PYTHON'
import json, re, sys
row = json.load(open(sys.argv[1]))[0]
number, unit = re.fullmatch(r"([0-9.]+)([kmg]?)bit", sys.argv[2]).groups()
bits = float(number) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[unit]
out = {key: row[key] for key in ("collective", "policy", "ranks", "bytes", "time_us")}
out["rate"] = sys.argv[2]
out["baseline_time_us"] = row["uncompressed_time_us"]
out["wire_bytes"] = row["wire_bytes"]
out["rel_error"] = row["rel_error"]
out["ideal_time_us"] = row["wire_bytes"] * 8 / bits * 1e6
out["ratio"] = row["ratio"]
out["speedup"] = row["uncompressed_time_us"] / row["time_us"]
print(json.dumps(out))
PYTHON
}

run() {
    need_idle
    work=$(mktemp -d)
    trap 'down; rm -rf "$work"' EXIT
    trap 'exit 130' INT TERM HUP
    write_agent
    up
    if [ -n "$program" ]; then
        on_hosts "$program"
        return
    fi
    perf=${QCCL_PERF:-$(pwd)/build/bench/qccl-perf}
    [ -x "$perf" ] || die "$perf is missing: build it first (ninja -C build), or set QCCL_PERF"
    set -- "$perf $collective --policy '$policy; min=0' -b $size ${QCCL_PERF_FLAGS:-}"
    if [ $json = 1 ]; then
        on_hosts "$1 --json $work/perf.json" >"$work/log" 2>&1 || { cat "$work/log" >&2; die "the run failed"; }
        summarise "$work/perf.json"
    else
        on_hosts "$1"
    fi
}

command=${1:---help}
[ $# = 0 ] || shift
while [ $# -gt 0 ]; do
    option=$1
    shift
    case $option in
        --json) json=1; continue ;;
        --ranks | --rate | --size | --policy | --collective | --program) ;;
        *) usage_error "no such option: $option" ;;
    esac
    [ $# -gt 0 ] || usage_error "$option needs a value"
    case $option in
        --ranks) ranks=$1 ;;
        --rate) rate=$1 ;;
        --size) size=$1 ;;
        --policy) policy=$1 ;;
        --collective) collective=$1 ;;
        --program) program=$1 ;;
    esac
    shift
done
echo "$net" | grep -qE '^[a-z]+$' || usage_error "QCCL_NET=$net: expected small letters"
case $ranks in '' | *[!0-9]* | 0) usage_error "--ranks $ranks is no number of hosts" ;; esac
echo "$rate" | grep -qE '^[0-9.]+[kmg]?bit$' || usage_error "--rate $rate: expected something like 1gbit"

case $command in
    up) need_tools; need_idle; up ;;
    down) need_tools; down ;;
    run) need_tools; run ;;
    --help | -h) sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" ;;
    *) usage_error "no such command: $command" ;;
esac
