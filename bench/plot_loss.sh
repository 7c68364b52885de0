#!/bin/sh
# Draws the validation loss of two or more training runs as an SVG.
#
# usage: sh bench/plot_loss.sh OUT.svg LOG...
#
# Each LOG is a file that qccl-gpt --log wrote; its name without folder and .tsv names the curve.
# Needs gnuplot (Debian: gnuplot-nox).
set -eu

if [ $# -lt 2 ]; then
    echo "usage: sh bench/plot_loss.sh OUT.svg LOG..." >&2
    exit 2
fi
out=$1
shift

# A text between single quotes, as gnuplot wants it: quotes inside are doubled.
quote() {
    printf "'"
    printf '%s' "$1" | sed "s/'/''/g"
    printf "'"
}

curves=
for log in "$@"; do
    if [ "$(head -n 1 "$log" | cut -f 1,3)" != "$(printf 'step\tval_loss')" ]; then
        echo "plot_loss.sh: $log is no log of qccl-gpt" >&2
        exit 1
    fi
    curves="${curves:+$curves, }$(quote "$log") skip 1 using 1:3 with linespoints \
pointsize 0.5 linewidth 2 title $(quote "$(basename "$log" .tsv)")"
done

gnuplot <<END
set terminal svg size 800,500 noenhanced font 'sans,14' background '#ffffff'
set output $(quote "$out")
set datafile separator tab
set title 'Validation loss of the same training with different gradient traffic'
set xlabel 'optimizer step'
set ylabel 'validation loss, nats a byte'
set grid
set key top right
plot $curves
END
