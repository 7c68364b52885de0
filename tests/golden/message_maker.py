"""Lays out a message from the oracle's scales and codes, for make.py: the encoder's side of docs/wire-format.md."""
import os
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import inputs  # noqa: E402
from xxh3 import xxh3  # noqa: E402

FORMATS = ("none", "bf16", "int8", "int4", "int2", "sr1", "sign1")
TILE_BYTES = (512, 256, 128, 64, 32, 16, 16)


def parse(codec):
    """-> format number, group, order, rounds to nearest"""
    name, _, text = codec.partition(":")
    options = dict(o.split("=") for o in text.split(",") if o)
    nearest = options.get("round", "nearest" if name == "bf16" else "stochastic") == "nearest"
    return FORMATS.index(name), int(options.get("group", 128)), int(options.get("hadamard", 0)), nearest


def bf16_code(x, nearest, random):
    u = inputs.bits_of(x)
    if x != x:
        return 0x7FC0
    if nearest or u & 0x7F800000 == 0x7F800000:
        return inputs.narrow(x, "bf16")
    return (u >> 16 & 0x8000) | min((u & 0x7FFFFFFF) + random >> 16, 0x7F7F)


def put_code(codes, name, i, code):
    t, r, j = i // 128, i % 128 // 16, i % 16
    if name == "int8":
        codes[128 * t + 64 * (r // 4) + 4 * j + r % 4] = code & 255
    elif name == "int4":
        codes[64 * t + 4 * j + r // 2] |= (code & 15) << 4 * (r % 2)
    elif name == "int2":
        codes[32 * t + 2 * j + r // 4] |= (code & 3) << 2 * (r % 4)
    else:
        codes[16 * t + j] |= code << r


def payload(oracle, codec, x, k):
    """-> scales with padding, codes, decoded values in the transform domain"""
    kind, group, _, nearest = parse(codec)
    name, codes = FORMATS[kind], bytearray(TILE_BYTES[kind] * -(-len(x) // 128))
    if name == "none":
        codes[:4 * len(x)] = b"".join(struct.pack("<f", v) for v in x)
        return b"", bytes(codes), list(x)
    if name == "bf16":
        halves = [bf16_code(v, nearest, r) for v, r in zip(x, k)]
        codes[:2 * len(x)] = b"".join(struct.pack("<H", h) for h in halves)
        return b"", bytes(codes), [inputs.widen(h, "bf16") for h in halves]
    scales, decoded, spec = b"", [], oracle.Spec(codec)
    for a in range(0, len(x), group):
        s, q = oracle.quantize_group(spec, x[a:a + group], k[a:a + group])
        scales += struct.pack("<H", inputs.bits_of(s) >> 16)
        special = s == 0 or s != s
        for i, code in enumerate(q):
            put_code(codes, name, a + i, 0 if special else code)
        decoded += oracle.dequantize_group(spec, s, q)
    return scales + bytes(-len(scales) % 64), bytes(codes), decoded


def make(oracle, case):
    """-> the bytes of a message of messages.txt and the values that it decodes to"""
    codec, count, seed, segment, sequence, rank, stage, first, checked, pattern, input_seed = case
    kind, group, order, nearest = parse(codec)
    x = inputs.values(pattern, input_seed, 0, count, "fp32")
    spec = oracle.Spec("none" if codec.startswith("bf16") else codec)
    k = [32768] * count if nearest else oracle.random16(first + count, seed, segment, sequence, rank, stage)[first:]
    scales, codes, decoded = payload(oracle, codec, oracle.forward(spec, x), k)
    log_order = order.bit_length() - 1 if order else 0
    header = b"QCCL" + struct.pack("<BBBBIHHQQIIQQ", 1, kind, log_order, nearest | checked << 1, rank << 8 | stage,
                                   group, 0, count, first, segment, sequence, seed,
                                   xxh3(scales + codes) if checked else 0)
    return header + struct.pack("<Q", xxh3(header)) + scales + codes, oracle.inverse(spec, decoded)
