#!/bin/sh
# Trains the same small GPT with different gradient traffic and compares the final validation losses.
#
# usage: sh bench/convergence.sh [OPTION]...
#
# A run that is finished is a file, and is not done again: what was stopped goes on where it was.
# Seed 1 of every scheme comes first.  Needs a built qccl-gpt, python3, and for the picture gnuplot.
set -eu
cd "$(dirname "$0")/.."

all_schemes="fp32 int4 w4plain sdp4bit sr1 sign1 sign1ef duo4 duo1 duo0"
setting=${QCCL_CONVERGENCE_SETTING:-base}
schemes=${QCCL_CONVERGENCE_SCHEMES:-$all_schemes}
seeds=${QCCL_CONVERGENCE_SEEDS:-1 2 3}
steps=${QCCL_CONVERGENCE_STEPS:-}
multiple=${QCCL_CONVERGENCE_BATCH:-}
rate=${QCCL_CONVERGENCE_LR:-}
layers=${QCCL_CONVERGENCE_LAYERS:-}
width=${QCCL_CONVERGENCE_WIDTH:-}
text=${QCCL_CONVERGENCE_TEXT:-}
gpt=${QCCL_GPT:-build/bench/qccl-gpt}
out=bench/results
runs=
collect=0

show_help() {
    cat <<END
usage: sh bench/convergence.sh [OPTION]...

Trains with each scheme and seed, on 4 ranks as threads, one run at a time (a minute or two each on
two cores), and writes convergence.csv, convergence.md (a table) and convergence.svg.

  --setting base|large|small
                        base: batches of 4 sequences of 64 bytes a rank, 1400 steps at 3e-3 (default);
                        large: 4 times the batch, 600 steps at 1.5e-3, files convergence-large.*;
                        small: as base, a model of 2 layers of width 64, files convergence-small.*
  --schemes "A B ..."   of $all_schemes (default: all)
  --seeds "1 2 ..."     seeds of weights, batches and rounding (default: 1 2 3)
  --steps N             optimizer steps
  --batch M             so many times 4 sequences a rank
  --lr X                peak learning rate
  --layers N, --width N size of the model (3, 128: 668,800 parameters; small: 2, 64)
  --text FILE           what is learnt (default: that of qccl-gpt)
  --gpt PROGRAM         the program that trains (default: build/bench/qccl-gpt)
  --runs DIR            folder of finished runs and their logs (default: one of build/convergence, named
                        after the settings)
  --out DIR             folder of the results (default: bench/results)
  --collect             train nothing, only gather what is finished
  --help                this text

Each option can also stand in the environment: QCCL_CONVERGENCE_SETTING, _SCHEMES, _SEEDS, _STEPS,
_BATCH, _LR, _LAYERS, _WIDTH, _TEXT, and QCCL_GPT.

Schemes, and what qccl-gpt is asked for:
  fp32      nothing is compressed
  int4      the all-reduce of gradients at 4 bits
  sr1, sign1, sign1ef   the same at 1 bit: stochastic, sign and mean, with error feedback
  w4plain   sharded: exact gradients, weights themselves sent at 4 bits
  sdp4bit   sharded, 2 nodes of 2 ranks: gradients at 8 bits inside and 4 bits between nodes, weight
            differences at 4 bits
  duo4, duo1, duo0      sharded, each gradient reduced twice: at 4, 1 or 0 bits at once, exactly under
            the next step
END
}

die() {
    echo "convergence.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) show_help && exit 0 ;;
    --collect) collect=1 && shift && continue ;;
    esac
    [ $# -ge 2 ] || die "$1: no such option, or it needs a value (see --help)"
    case $1 in
    --setting) setting=$2 ;;
    --schemes) schemes=$2 ;;
    --seeds) seeds=$2 ;;
    --steps) steps=$2 ;;
    --batch) multiple=$2 ;;
    --lr) rate=$2 ;;
    --layers) layers=$2 ;;
    --width) width=$2 ;;
    --text) text=$2 ;;
    --gpt) gpt=$2 ;;
    --runs) runs=$2 ;;
    --out) out=$2 ;;
    *) die "$1: no such option (see --help)" ;;
    esac
    shift 2
done

case $setting in
base) default="1 1400 3e-3" name=convergence ;;
large) default="4 600 1.5e-3" name=convergence-large ;;
small) default="1 1400 3e-3" name=convergence-small layers=${layers:-2} width=${width:-64} ;;
*) die "--setting $setting: expected base, large or small" ;;
esac
layers=${layers:-3}
width=${width:-128}
multiple=${multiple:-${default%% *}}
rate=${rate:-${default##* }}
default=${default#* }
steps=${steps:-${default%% *}}
for number in "$multiple" "$steps" "$layers" "$width" $seeds; do
    case $number in
    *[!0-9]* | '') die "\"$number\" is no whole number" ;;
    esac
done
for scheme in $schemes; do
    case " $all_schemes " in
    *" $scheme "*) ;;
    *) die "no such scheme: $scheme; there are $all_schemes" ;;
    esac
done
if [ -z "$runs" ]; then
    learnt=${text:+-$(basename "$text")-$(cksum <"$text" | cut -d ' ' -f 1)}
    runs=build/convergence/batch$((multiple * 4))-steps$steps-lr$rate-layers$layers-width$width$learnt
fi

# ---------------------------------------------------------------- runs

# train SCHEME SEED FLAG...
train() {
    run=$runs/$1.$2
    seed=$2
    shift 2
    "$gpt" --ranks 4 --steps "$steps" --batch $((multiple * 4)) --lr "$rate" --layers "$layers" \
        --width "$width" --seed "$seed" ${text:+--text "$text"} --log "$run.tsv.part" \
        --json "$run.json.part" "$@" >"$run.log" 2>&1 || return 1
    mv "$run.tsv.part" "$run.tsv"
    mv "$run.json.part" "$run.json" # the last one: with it the run is finished
}

sdp4bit="reducescatter: int4:hadamard=32 intra=int8; delta: int4:group=2048; min=0"

# run_scheme SCHEME SEED
run_scheme() {
    case $1 in
    fp32) train "$@" --policy none ;;
    int4 | sr1 | sign1) train "$@" --policy "$1; min=0" ;;
    sign1ef) train "$@" --policy "sign1:feedback=on; min=0" ;;
    w4plain) train "$@" --sharded --weights plain --policy "allgather: int4:group=2048; min=0" ;;
    sdp4bit) (export QCCL_NODES=0,0,1,1 && train "$@" --sharded --policy "$sdp4bit") ;;
    duo*) train "$@" --duo "${1#duo}" --policy none ;;
    esac
}

count() {
    echo $#
}

# shellcheck disable=SC2086 # lists of words
run_all() {
    [ -x "$gpt" ] || die "there is no $gpt; build it, or say --gpt"
    mkdir -p "$runs"
    total=$(($(count $schemes) * $(count $seeds)))
    number=0
    failed=0
    for seed in $seeds; do
        for scheme in $schemes; do
            number=$((number + 1))
            printf '%3d of %d  %-8s seed %s  ' "$number" "$total" "$scheme" "$seed"
            if [ -f "$runs/$scheme.$seed.json" ]; then
                echo finished before
            elif run_scheme "$scheme" "$seed"; then
                tail -n 1 "$runs/$scheme.$seed.log"
            else
                failed=1
                echo "failed: $(tail -n 1 "$runs/$scheme.$seed.log")"
            fi
        done
    done
}

# ---------------------------------------------------------------- results

# collect: the three files of results, from the runs that are finished
collect_runs() {
    mkdir -p "$out"
    python3 bench/convergence.py "$runs" "$out/$name" "$steps" "$schemes" "$seeds"
    command -v gnuplot >/dev/null || {
        echo "no gnuplot, no picture" >&2
        return 0
    }
    gnuplot "$out/$name.gp"
    rm "$out/$name.gp"
    echo "written to $out: $name.csv, $name.md, $name.svg"
}

failed=0
[ $collect = 1 ] || run_all
collect_runs
exit $failed
