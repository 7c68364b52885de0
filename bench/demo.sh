#!/bin/sh
# Shows what 4-bit gradients do to a real training run, in about three minutes.
#
# usage: sh bench/demo.sh
#
# Installs what is missing (Debian packages), builds into build/, trains the same small GPT on 4
# ranks once with fp32 and once with 4-bit gradients, and sets the two side by side.  Then it times
# the all-reduce of gradients from that run and shows what 4 bits do to their values.  Its results
# are in build/demo.  QCCL_DEMO_STEPS sets the length of the training runs.
set -eu
cd "$(dirname "$0")/.."

steps=${QCCL_DEMO_STEPS:-1200}
ranks=4
out=build/demo
log=build/demo.log # of the installation and the build

say() {
    printf '\n== %s\n' "$*"
}

die() {
    echo "demo.sh: $*" >&2
    exit 1
}

# show_log WHAT: the end of the log of what failed, and the end of this script
show_log() {
    tail -n 30 "$log" >&2
    die "$1 failed; $log has all of it"
}

# ---------------------------------------------------------------- packages

has_library() {
    command -v pkg-config >/dev/null && pkg-config --exists "$1"
}

has_compiler() {
    command -v cc >/dev/null && echo '#include <stdio.h>' | cc -E - >/dev/null 2>&1
}

missing_packages() {
    has_compiler || echo gcc libc6-dev
    command -v meson >/dev/null || echo meson
    command -v ninja >/dev/null || echo ninja-build
    command -v pkg-config >/dev/null || echo pkg-config
    has_library libxxhash || echo libxxhash-dev
    has_library openblas || echo libopenblas-dev
    has_library zlib || echo zlib1g-dev
    command -v gnuplot >/dev/null || echo gnuplot-nox
    [ -r /usr/share/dictd/gcide.dict.dz ] || echo dict-gcide
}

# run_install SUDO PACKAGES: both are lists of words
# shellcheck disable=SC2086
run_install() {
    $1 apt-get update -qq &&
        $1 env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends $2
}

install_packages() {
    packages=$(missing_packages | tr '\n' ' ')
    [ -n "$packages" ] || return 0
    command -v apt-get >/dev/null ||
        die "install what these Debian packages have, then run this again: $packages"
    as_root=
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null ||
            die "run this as root, then try again: apt-get install $packages"
        as_root=sudo
    fi
    say "installing $packages"
    run_install "$as_root" "$packages" >"$log" 2>&1 || show_log "the installation"
}

# ---------------------------------------------------------------- build

programs="bench/qccl-gpt bench/qccl-perf bench/qccl-apply"

configure() {
    if [ ! -f build/build.ninja ]; then
        meson setup build --buildtype=release -Dtests=disabled
    elif ! ninja -C build -t query bench/qccl-gpt >/dev/null 2>&1; then
        meson setup --reconfigure build # was configured before OpenBLAS or zlib was there
    fi
}

# shellcheck disable=SC2086 # one word a program
build() {
    say "building into build/"
    { configure && ninja -C build $programs; } >"$log" 2>&1 || show_log "the build"
}

# ---------------------------------------------------------------- training

# train NAME POLICY FLAG...
train() {
    name=$1
    policy=$2
    shift 2
    say "training with $name gradients ($steps steps, $ranks ranks as threads)"
    build/bench/qccl-gpt --ranks $ranks --steps "$steps" --policy "$policy" \
        --log "$out/$name.tsv" --json "$out/$name.json" "$@"
}

# value RUN KEY: a number of a run's summary
value() {
    sed -n "s/.*\"$2\": \([^,}]*\).*/\1/p" "$out/$1.json"
}

# row LABEL KEY FORMAT SCALE
row() {
    awk -v label="$1" -v format="$3" -v scale="$4" -v a="$(value fp32 "$2")" \
        -v b="$(value int4 "$2")" 'BEGIN {
            printf "%-36s %12s %12s\n", label, sprintf(format, a * scale),
                   sprintf(format, b * scale)
        }'
}

compare() {
    printf '%-36s %12s %12s\n' "" fp32 int4
    row "validation loss, nats a byte" val_loss %.4f 1
    row "gradient bytes sent, GB" wire_bytes %.2f 1e-9
    row "ratio to fp32" ratio %.2f 1
    row "relative error of what was encoded" sampled_rel_error %.3f 1
    row "time in the all-reduce, %" comm_share %.1f 100
    row "text learnt, bytes a second" tokens_per_s %.0f 1
}

# ---------------------------------------------------------------- the demo

mkdir -p build
install_packages
build
rm -rf "$out"
mkdir -p "$out"

dump_step=$(((steps + 1) / 2))
train fp32 none --dump-grads "$out/grads" --dump-step $dump_step
train int4 int4

say "side by side"
compare >"$out/summary.txt"
cat "$out/summary.txt"
sh bench/plot_loss.sh "$out/loss.svg" "$out/fp32.tsv" "$out/int4.tsv"

set --
rank=0
while [ $rank -lt $ranks ]; do
    set -- "$@" "$out/grads/grad.rank$rank.f32"
    rank=$((rank + 1))
done
bytes=$(($(wc -c <"$1")))

say "all-reduce of the gradients of step $dump_step ($bytes bytes a rank)"
build/bench/qccl-perf allreduce --policy int4 --ranks $ranks -o avg -b $bytes -e $bytes \
    --input "$@" >"$out/perf.txt"
cat "$out/perf.txt"
echo "The ranks share one memory: what fewer bytes save on a network is not in these times."

say "what 4 bits do to these gradients"
build/bench/qccl-apply allreduce --policy "int4; min=0" --op avg --out "$out/averaged" "$@" \
    >"$out/apply.txt"
cat "$out/apply.txt"

say "written to $out"
cat <<END
loss.svg             the two loss curves
summary.txt          the table above; fp32.json and int4.json have its numbers
fp32.tsv, int4.tsv   the progress of both runs
grads/               each rank's gradient at step $dump_step, raw fp32
averaged/            their average through 4 bits, as each rank got it
perf.txt, apply.txt  the two outputs above
END
