#!/usr/bin/env python3
"""Makes the golden files in this folder from the independent oracle.  The command, from the root of the tree:

    python3 tests/golden/make.py [PATH/TO/oracle.py]

The oracle's path defaults to $QCCL_ORACLE, then ../shared/oracle/oracle.py.  Three files are written, one case a
line, columns divided by |:

    collectives.txt   collective|ranks|nodes|op|type|count|seed|sequence|pattern|input seed|codecs|result
    codecs.txt        codec|count|seed|segment|sequence|rank|stage|pattern|input seed|decoded values
    messages.txt      codec|count|seed|segment|sequence|rank|stage|first|checked|pattern|input seed|decoded values|bytes

count is that of the call; nodes is - for one node; a result is hex:BYTES or fnv:HASH (FNV-1a, 64 bits) of the values
in memory, all shards of a reduce-scatter one after another.  Inputs follow from pattern, input seed and rank
(tests/inputs.c).
"""
import importlib.util
import math
import os
import random
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import inputs  # noqa: E402
import message_maker  # noqa: E402

TYPES = ("fp32", "fp32", "bf16", "fp16")


def load_oracle(path=None):
    path = path or os.environ.get("QCCL_ORACLE") or os.path.join(HERE, "../../../shared/oracle/oracle.py")
    spec = importlib.util.spec_from_file_location("oracle", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- one case
def split_codecs(text):
    """'int4 gather=int8 intra=sr1' -> main, gather, intra as texts or None."""
    words = text.split()
    extra = dict(w.split("=", 1) for w in words[1:])
    return words[0], extra.get("gather"), extra.get("intra")


def run_collective(oracle, case):
    """The result of a case, as floats."""
    collective, ranks, nodes, op, kind, count, seed, sequence, pattern, input_seed, codecs = case
    main, gather, intra = (oracle.Spec(t) if t else None for t in split_codecs(codecs))
    n = count * ranks if collective == "reducescatter" else count
    if collective == "delta":
        replica = inputs.values(pattern, input_seed, 0, count * ranks, kind)
        masters = [inputs.values(pattern, input_seed, r + 1, count, "fp32") for r in range(ranks)]
        return oracle.delta(main, replica, masters, seed, sequence)
    given = [inputs.values(pattern, input_seed, r, n, kind) for r in range(ranks)]
    layout = [0] * ranks if nodes == "-" else [int(v) for v in nodes.split(",")]
    if collective == "allreduce":
        return oracle.allreduce(main, given, op, seed, sequence, gather, intra, layout)
    if collective == "reducescatter":
        return [v for shard in oracle.reducescatter(main, given, op, seed, sequence, intra, layout) for v in shard]
    return oracle.allgather(main, given, seed, sequence)


# ---------------------------------------------------------------- which cases
def pick_codec(rng, names=("int8", "int4", "int2", "sr1", "sign1"), hadamard=True, groups=(32, 64, 96, 128, 256, 2048)):
    name, group = rng.choice(names), rng.choice(groups)
    options = [f"group={group}"]
    order = rng.choice((0, 0, 32, 64, 128)) if hadamard else 0
    if order and group % order == 0:
        options.append(f"hadamard={order}")
    if name != "sign1" and rng.random() < 0.25:
        options.append("round=nearest")
    return name + ":" + ",".join(options)


def order_of(codec):
    return int(codec.split("hadamard=")[1].split(",")[0]) if "hadamard=" in codec else 0


def group_of(codec):
    return int(codec.split("group=")[1].split(",")[0]) if "group=" in codec else 128


def pick_codecs(rng, collective):
    main = pick_codec(rng) if rng.random() < 0.95 else "none"
    text = main
    if collective == "delta":
        return main if main != "none" else "int4:group=2048"
    if collective == "allreduce" and (main == "none" or rng.random() < 0.4):
        text += " gather=" + (pick_codec(rng) if main == "none" or rng.random() < 0.9 else "none")
    if collective in ("allreduce", "reducescatter") and (rng.random() < 0.4 or text == "none"):
        while True:
            intra = pick_codec(rng, hadamard=False)
            if not order_of(main) or group_of(intra) % order_of(main) == 0:
                break
        text += " intra=" + intra
    return text if text != "none" else "int4"


def pick_nodes(rng, ranks):
    layouts = [[0] * ranks, list(range(ranks)), [r // 2 for r in range(ranks)], [r % 2 for r in range(ranks)],
               [min(1, r) for r in range(ranks)], [r // 3 for r in range(ranks)],
               [rng.randrange(3) for _ in range(ranks)], [7 - r // 2 for r in range(ranks)]]
    return ",".join(map(str, rng.choice(layouts)))


def edges(ranks, group):
    """Counts around groups, tiles and shards."""
    shard = ranks * group
    return [1, 2, ranks, ranks + 1, 31, 32, 33, 127, 128, 129, group - 1, group, group + 1, shard - 1, shard, shard + 1,
            shard + group, 2 * shard + 17]


def collective_cases(rng):
    for ranks in range(1, 9):
        for collective in ("allreduce", "allreduce", "reducescatter", "allgather", "delta"):
            for _ in range(22):
                codecs = pick_codecs(rng, collective)
                count = min(rng.choice(edges(ranks, group_of(codecs.split()[0])) + [1000]), 5000)
                if collective != "allreduce":
                    count = max(1, count // ranks)
                nodes = pick_nodes(rng, ranks) if "intra=" in codecs else "-"
                op = rng.choice(("sum", "avg")) if collective in ("allreduce", "reducescatter") else "sum"
                pattern = rng.choice(inputs.PATTERNS + ("normal",) * 6 + ("special",) * 2)
                yield (collective, ranks, nodes, op, rng.choice(TYPES), count, rng.getrandbits(64),
                       rng.getrandbits(32), pattern, rng.getrandbits(16), codecs)
    for order in (0, 32, 64, 128):  # the default policy's own codecs, every number of ranks
        for ranks in range(2, 9):
            codecs = "int4:group=128" + (f",hadamard={order}" if order else "")
            yield ("allreduce", ranks, "-", "sum", "fp32", ranks * 300, 1, 0, "normal", 1, codecs)


def codec_cases(rng):
    for name in ("int8", "int4", "int2", "sr1", "sign1"):
        for pattern in inputs.PATTERNS:
            for _ in range(6):
                codec = pick_codec(rng, names=(name,), groups=(32, 64, 96, 128, 160, 384, 8192))
                count = rng.choice((1, 15, 16, 17, 31, 33, 127, 128, 129, 255, 500, 1025, group_of(codec) + 1))
                yield (codec, min(count, 3000), rng.getrandbits(64), rng.getrandbits(8), rng.getrandbits(32),
                       rng.getrandbits(24), rng.choice((0, 1, 2)), pattern, rng.getrandbits(16))


def message_cases(rng):
    for codec, count in (("none", 1), ("none", 130), ("bf16", 130), ("bf16:round=stochastic", 129),
                         ("int8", 1), ("int8", 300), ("int8:group=32,round=nearest", 200), ("int4", 128), ("int4", 300),
                         ("int4:group=64,hadamard=32", 203), ("int4:group=256,round=nearest", 259),
                         ("int2:group=96", 200), ("int2:group=128,hadamard=128", 140),
                         ("sr1:group=32", 333), ("sr1:hadamard=64,round=nearest", 129), ("sign1", 257),
                         ("sign1:group=64,hadamard=64", 97), ("int4:group=32", 0)):
        for pattern, first, checked in (("normal", 0, 0), ("special", 768, 1)):
            first = first // 128 * 128 * group_of(codec) // math.gcd(128, group_of(codec)) if first else 0
            yield (codec, count, rng.getrandbits(64), rng.getrandbits(16), rng.getrandbits(32), rng.getrandbits(24),
                   rng.choice((0, 1, 2)), first, checked, pattern, rng.getrandbits(16))


# ---------------------------------------------------------------- files
def decode_case(oracle, case):
    codec, count, seed, segment, sequence, rank, stage, pattern, input_seed = case
    spec = oracle.Spec(codec)
    y = oracle.forward(spec, inputs.values(pattern, input_seed, 0, count, "fp32"))
    return oracle.inverse(spec, oracle.roundtrip_transformed(spec, y, seed, segment, sequence, rank, stage))


def write(name, cases, finish):
    with open(os.path.join(HERE, name), "w") as out:
        out.write(f"# {name}: made by tests/golden/make.py, which describes the columns\n")
        for case in cases:
            out.write("|".join(map(str, case + finish(case))) + "\n")


def write_values(oracle, for_collectives, for_codecs):
    write("collectives.txt", collective_cases(for_collectives),
          lambda c: (inputs.expected(run_collective(oracle, c), c[4]),))
    write("codecs.txt", codec_cases(for_codecs), lambda c: (inputs.expected(decode_case(oracle, c), "fp32"),))


def main():
    oracle = load_oracle(sys.argv[1] if len(sys.argv) > 1 else None)
    write_values(oracle, random.Random(1), random.Random(2))

    def message(case):
        data, decoded = message_maker.make(oracle, case)
        return inputs.expected(decoded, "fp32"), data.hex()
    write("messages.txt", message_cases(random.Random(3)), message)


if __name__ == "__main__":
    main()
