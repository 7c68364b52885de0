#!/usr/bin/env python3
"""Draws timelines that QCCL_TRACE wrote as one SVG, or sums them up.

    trace_svg.py [--from MS] [--to MS] [--out FILE] [--summary] TRACE...

A run over MPI has one TRACE a rank.  Times count from the first mark of all files.  --from and --to cut a piece
out.  --summary prints a tab-separated table instead: for each rank, the milliseconds in which it computed, in which
slow reductions and the wire kept some thread of it busy, and which part of these lay under its compute.
"""
import argparse
import json
import sys
from xml.sax.saxutils import escape

KINDS = {"compute": "#bcc5ce", "encode": "#2a78d6", "wire": "#eda100", "decode": "#1baf7a", "fast": "#4a3aa7",
         "slow": "#e34948", "commit": "#e87ba4", "other calls": "#5f6b7a"}
WIDTH, LEFT, RIGHT, LANE, GAP, TOP = 1000, 190, 12, 9, 7, 46
FONT = 'font-family="Helvetica,Arial,sans-serif" font-size="12"'


def fail(sentence):
    sys.exit(f"trace_svg.py: {sentence}")


def load(paths):
    """(marks, names, dropped): marks as (row, begin, end, kind) in ms, row = (rank, thread); names of rows."""
    marks, names, dropped = [], {}, 0
    for path in paths:
        try:
            with open(path, encoding="utf-8") as f:
                trace = json.load(f)
        except (OSError, ValueError) as error:
            fail(f"{path}: {error}")
        dropped += trace["otherData"]["dropped"]
        for e in trace["traceEvents"]:
            row = (e["pid"], e["tid"])
            if e["ph"] == "X":
                begin = round(e["ts"] * 1000)  # in ns, so that marks that touch do so exactly
                marks.append((row, begin, begin + round(e["dur"] * 1000), e["name"]))
            elif e["name"] == "thread_name":
                names[row] = e["args"]["name"]
    if not marks:
        fail("no marks in " + ", ".join(paths))
    zero = min(m[1] for m in marks)
    return [(row, (begin - zero) / 1e6, (end - zero) / 1e6, kind) for row, begin, end, kind in marks], names, dropped


def cut(marks, begin, end):
    """What of the marks lies between begin and end."""
    return [(row, max(b, begin), min(e, end), kind) for row, b, e, kind in marks if b < end and e > begin]


def union(spans):
    """The spans as ones that are apart, in order."""
    apart = []
    for begin, end in sorted(spans):
        if apart and begin <= apart[-1][1]:
            apart[-1][1] = max(apart[-1][1], end)
        else:
            apart.append([begin, end])
    return apart


def length(spans):
    return sum(end - begin for begin, end in spans)


def common(a, b):
    """The time in both of two lists of spans that union has made."""
    total, i, j = 0.0, 0, 0
    while i < len(a) and j < len(b):
        total += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


# ---------------------------------------------------------------- summary
def summary(marks):
    print("rank\tcompute_ms\tslow_ms\tslow_under_compute\twire_ms\twire_under_compute")
    for rank in sorted({row[0] for row, *_ in marks}):
        spans = {kind: union((b, e) for row, b, e, k in marks if row[0] == rank and k == kind)
                 for kind in ("compute", "slow", "wire")}
        line = [str(rank), f"{length(spans['compute']):.3f}"]
        for kind in ("slow", "wire"):
            whole = length(spans[kind])
            share = f"{common(spans[kind], spans['compute']) / whole:.3f}" if whole else ""
            line += [f"{whole:.3f}", share]
        print("\t".join(line))


# ---------------------------------------------------------------- drawing
def lanes(marks):
    """marks of one row with the depth at which each lies inside others: (depth, begin, end, kind)."""
    placed, around = [], []
    for _, begin, end, kind in sorted(marks, key=lambda m: (m[1], -m[2])):
        while around and around[-1] <= begin:
            around.pop()
        placed.append((len(around), begin, end, kind))
        around.append(end)
    return placed


def step(span):
    """A round distance between the marks of the axis, for about ten of them."""
    size = 1e-3
    while True:
        for factor in (1, 2, 5):
            if span / (size * factor) <= 10:
                return size * factor
        size *= 10


def text(x, y, what, anchor="start", colour="#3c4650"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}" {FONT}>{escape(what)}</text>'


def legend(kinds):
    x, out = LEFT, []
    for kind in (k for k in KINDS if k in kinds):
        out += [f'<rect x="{x}" y="10" width="12" height="12" fill="{KINDS[kind]}"/>', text(x + 17, 20, kind)]
        x += 30 + 7 * len(kind)
    return out


def axis(begin, end, height, scale):
    out, distance = [], step(end - begin)
    number = int(-(-begin // distance))
    while number * distance <= end + 1e-9:
        x = LEFT + (number * distance - begin) * scale
        out += [f'<line x1="{x:.1f}" y1="{TOP - 6}" x2="{x:.1f}" y2="{height - 8}" stroke="#d5dae0"/>',
                text(x, TOP - 10, f"{number * distance:g}", "middle", "#5f6b7a")]
        number += 1
    return out + [text(LEFT - 10, TOP - 10, "ms", "end", "#5f6b7a")]


def boxes(placed, top, begin, scale):
    """One path a colour and lane; neighbours less than half a pixel apart are drawn together."""
    shapes = {}
    for depth, b, e, kind in placed:
        colour = KINDS.get(kind, KINDS["other calls"])
        x, right = LEFT + (b - begin) * scale, LEFT + (e - begin) * scale
        row = shapes.setdefault((depth, colour), [])
        if row and x - row[-1][1] < 0.5:
            row[-1][1] = max(row[-1][1], right)
        else:
            row.append([x, right])
    for (depth, colour), row in sorted(shapes.items()):
        y = top + depth * LANE
        path = "".join(f"M{x:.1f} {y}H{max(right, x + 0.4):.1f}v{LANE - 1}H{x:.1f}z" for x, right in row)
        yield f'<path fill="{colour}" d="{path}"/>'


def draw(marks, names, begin, end):
    scale, y, body = (WIDTH - LEFT - RIGHT) / (end - begin), TOP, []
    for row in sorted({m[0] for m in marks}, key=lambda r: (r[0], names.get(r, "") != "caller", r[1])):
        placed = lanes([m for m in marks if m[0] == row])
        height = LANE * (1 + max(p[0] for p in placed))
        body.append(f'<g id="rank{row[0]}-thread{row[1]}">')
        body.append(text(LEFT - 10, y + height / 2 + 4, f"rank {row[0]}, {names.get(row, row[1])}", "end"))
        body += [*boxes(placed, y, begin, scale), "</g>"]
        y += height + GAP
    height = y + 6
    kinds = {m[3] if m[3] in KINDS else "other calls" for m in marks}
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
                      f'viewBox="0 0 {WIDTH} {height}">', f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
                      *legend(kinds), *axis(begin, end, height, scale), *body, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description="Draws timelines that QCCL_TRACE wrote.")
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument("--from", dest="begin", type=float, default=0.0, metavar="MS")
    parser.add_argument("--to", dest="end", type=float, metavar="MS")
    parser.add_argument("--out", metavar="FILE", help="without it, standard output")
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    marks, names, dropped = load(options.traces)
    if dropped:
        print(f"trace_svg.py: {dropped} marks were dropped when the timeline was full", file=sys.stderr)
    end = options.end if options.end is not None else max(m[2] for m in marks)
    marks = cut(marks, options.begin, end)
    if not marks:
        fail(f"no marks between {options.begin:g} and {end:g} ms")
    if options.summary:
        return summary(marks)
    picture = draw(marks, names, options.begin, end)
    try:
        with open(options.out, "w", encoding="utf-8") if options.out else sys.stdout as f:
            f.write(picture)
    except OSError as error:
        fail(f"{options.out}: {error}")


if __name__ == "__main__":
    main()
