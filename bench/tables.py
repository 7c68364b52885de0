"""Turns what qccl-codec and qccl-perf wrote with --json into the tables of docs/benchmarks.md.

    tables.py codec memory|cache FILE...      one row a codec and kernel
    tables.py perf FILE...                    one row a measurement
"""
import json
import sys

OPERATIONS = (("encode", 0), ("decode", 1), ("decode-add", 1), ("sum", 2), ("sum", 4), ("sum-encode", 4))


def load(paths):
    rows = []
    for path in paths:
        with open(path) as f:
            rows += json.load(f)
    return rows


def print_table(head, lines):
    for line in (head, ["---"] * len(head), *lines):
        print("| " + " | ".join(line) + " |")


def codec_cell(row, where):
    """In memory the share of bandwidth says how good a kernel is, in cache the rate a cycle does."""
    rate = f"{row['values_per_s'] * 1e-9:.2f}"
    if where == "cache":
        return f"{rate} ({row['values_per_cycle']:.2f})"
    return f"{rate} ({row['share_of_read']:.2f}, {row['share_of_copy']:.2f})"


def codec_table(where, paths):
    cells = {}
    for row in load(paths):
        if row["where"] == where:
            key = row["codec"], row["kernel"].rsplit("_", 1)[1]
            cells.setdefault(key, {})[row["operation"], row["messages"]] = codec_cell(row, where)
    head = ["codec", "row"] + [f"{name} {count}" if count > 1 else name for name, count in OPERATIONS]
    lines = [[f"`{codec}`", cpu] + [row.get(o, "") for o in OPERATIONS]
             for (codec, cpu), row in cells.items()]
    print_table(head, lines)


def size_text(size):
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}"
    return f"{size} B"


def perf_line(row):
    return [row["collective"], size_text(row["bytes"]), str(row["ranks"]), f"`{row['codec']}`",
            f"{row['time_us'] * 1e-3:.3g}", f"{row['uncompressed_time_us'] * 1e-3:.3g}",
            f"{row['uncompressed_time_us'] / row['time_us']:.2f}", f"{row['busbw']:.2f}",
            f"{row['ratio']:.2f}", f"{row['rel_error']:.3g}", str(row["wrong"]),
            f"{row['workspace_bytes'] / row['bytes']:.3f}"]


def perf_table(paths):
    head = ["collective", "size", "ranks", "codec", "time, ms", "uncompressed, ms", "speed-up",
            "busbw, GB/s", "ratio", "relative error", "wrong", "workspace / size"]
    print_table(head, [perf_line(row) for row in load(paths)])


def main(words):
    if words[:1] == ["codec"] and len(words) > 2 and words[1] in ("memory", "cache"):
        codec_table(words[1], words[2:])
    elif words[:1] == ["perf"] and len(words) > 1:
        perf_table(words[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
