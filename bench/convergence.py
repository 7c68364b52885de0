"""Gathers finished training runs for convergence.sh.

    convergence.py RUNS OUT STEPS "SCHEME..." "SEED..."

RUNS has SCHEME.SEED.json of each finished run.  Writes OUT.csv, OUT.md and OUT.gp, which draws OUT.svg.
The gap of a run is to the fp32 run of the same seed, which starts from the same weights and sees the same batches.
"""
import csv
import json
import os
import statistics
import sys


def read_runs(folder, steps, schemes, seeds):
    """{scheme: {seed: summary}} of what is finished."""
    runs = {}
    for scheme in schemes:
        for seed in seeds:
            path = os.path.join(folder, f"{scheme}.{seed}.json")
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as file:
                (run,) = json.load(file)
            if run["steps"] != steps or run["seed"] != seed:
                sys.exit(f"convergence.py: {path} is of {run['steps']} steps and seed {run['seed']}")
            runs.setdefault(scheme, {})[seed] = run
    return runs


def gaps_of(runs, scheme):
    """Percent above fp32, of each seed that both have."""
    exact = runs.get("fp32", {})
    return [100 * (run["val_loss"] / exact[seed]["val_loss"] - 1)
            for seed, run in sorted(runs[scheme].items()) if seed in exact]


def spread(values, form):
    return form % statistics.stdev(values) if len(values) > 1 else ""


def sent(run, raw):
    """Bytes on the critical path and bytes of slow reductions, as shares of fp32's."""
    hidden = run.get("slow_bytes", 0) / raw
    return f"{run['wire_bytes'] / raw:.3f}" + (f" + {hidden:.3f}" if hidden else "")


def write_csv(path, runs):
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(("scheme", "seed", "steps", "val_loss"))
        for scheme, of_scheme in runs.items():
            for seed, run in sorted(of_scheme.items()):
                rows.writerow((scheme, seed, run["steps"], run["val_loss"]))


def table(runs):
    lines = ["| scheme | seeds | validation loss | spread | gap to fp32, % | spread | sent, of fp32 |",
             "|---|---|---|---|---|---|---|"]
    for scheme, of_scheme in runs.items():
        losses = [run["val_loss"] for run in of_scheme.values()]
        gaps = gaps_of(runs, scheme)
        mean = f"{statistics.mean(gaps):+.2f}" if gaps and scheme != "fp32" else ""
        run = next(iter(of_scheme.values()))
        cells = (scheme, len(losses), f"{statistics.mean(losses):.4f}", spread(losses, "%.4f"), mean,
                 spread(gaps, "%.2f") if mean else "", sent(run, run["raw_bytes"]))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def picture(runs, out):
    """One row a scheme, one point a run, and the mean as a number; powers of two apart beyond 0.5 %."""
    shown = [scheme for scheme in runs if scheme != "fp32" and gaps_of(runs, scheme)]
    points, means = [], []
    for row, scheme in enumerate(reversed(shown)):
        gaps = gaps_of(runs, scheme)
        points += [f"{gap:.4f} {row}" for gap in gaps]
        means.append(f'{statistics.mean(gaps):.4f} {row} "{statistics.mean(gaps):+.2f}"')
    names = ", ".join(f"'{scheme}' {row}" for row, scheme in enumerate(reversed(shown)))
    tics = ", ".join(f"'{gap}' scale({gap})" for gap in (-2, -1, 0, 1, 2, 4, 8, 16, 32))
    end = "\ne\n"
    return f"""set terminal svg size 800,{120 + 36 * len(shown)} noenhanced font 'sans,14' background '#ffffff'
set output '{out}.svg'
set title 'Final validation loss above the fp32 run of the same seed'
set xlabel 'gap, percent (linear within 1 %, logarithmic beyond)'
scale(x) = x < 0 ? -scale(-x) : (x <= 1 ? x : 1 + log(x) / log(2))
set xtics ({tics})
set ytics nomirror ({names})
set xrange [scale(-2):scale(48)]
set yrange [-0.6:{len(shown) - 0.4}]
set grid
set border 3
set xtics nomirror
unset key
plot '-' using (scale($1)):2 with points pointtype 7 pointsize 0.6 linecolor rgb '#1f77b4', \\
     '-' using (scale(48)):2:3 with labels right offset -0.5,0
""" + "\n".join(points) + end + "\n".join(means) + end


def main():
    folder, out, steps, schemes, seeds = sys.argv[1:]
    runs = read_runs(folder, int(steps), schemes.split(), [int(seed) for seed in seeds.split()])
    if not runs:
        sys.exit(f"convergence.py: no finished run in {folder}")
    write_csv(out + ".csv", runs)
    with open(out + ".md", "w", encoding="utf-8") as file:
        file.write(f"What `bench/convergence.sh` found, {steps} steps a run; docs/benchmarks.md explains it.\n\n")
        file.write(table(runs))
    with open(out + ".gp", "w", encoding="utf-8") as file:
        file.write(picture(runs, out))
    print(table(runs), end="")


if __name__ == "__main__":
    main()
