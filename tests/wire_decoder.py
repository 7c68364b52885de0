#!/usr/bin/env python3
"""A decoder of messages written from docs/wire-format.md alone, section by section; it shares nothing with the library.

    wire_decoder.py golden tests/golden/messages.txt        decodes every golden message, and damaged copies of it
    wire_decoder.py document docs/wire-format.md [PROGRAM]  decodes the vectors that the document prints, and checks
                                                            that PROGRAM, golden_vectors, prints the same
Prints TAP.
"""
import os
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import inputs  # noqa: E402
from xxh3 import xxh3  # noqa: E402

NONE, BF16, INT8, INT4, INT2, SR1, SIGN1 = range(7)
TILE_BYTES = (512, 256, 128, 64, 32, 16, 16)
NAN = struct.unpack("<f", struct.pack("<I", 0x7FC00000))[0]


class Rejected(Exception):
    pass


def f32(x):
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return float("inf") if x > 0 else float("-inf")


def reject(condition, reason):
    if condition:
        raise Rejected(reason)


def ceil_div(a, b):
    return -(-a // b)


# ---------------------------------------------------------------- header
def read_header(m):
    """-> format, order, group, count, scale bytes; the checks in the order of the document."""
    reject(len(m) < 64, "shorter than a header")
    reject(m[0:4] != b"QCCL", "magic")
    reject(m[4] != 1, "version")
    kind, log_order, flags = m[5], m[6], m[7]
    group, replica, count = struct.unpack_from("<HHQ", m, 12)
    payload_sum, header_sum = struct.unpack_from("<QQ", m, 48)
    reject(header_sum != xxh3(m[:56]), "header sum")
    reject(flags & ~3 or count > 1 << 48, "flags or count")
    reject(kind > SIGN1, "format")
    reject(log_order not in (0, 5, 6, 7), "hadamard")
    reject(group % 32 or not 32 <= group <= 8192, "group")
    order = 1 << log_order if log_order else 0
    reject(kind in (NONE, BF16) and group != 128, "group of a format without groups")
    reject(order and group % order, "group and hadamard")
    reject(flags & 1 and kind in (NONE, SIGN1), "rounding of a format that does not round")
    scale_bytes = 0 if kind in (NONE, BF16) else ceil_div(2 * ceil_div(count, group), 64) * 64
    reject(len(m) != 64 + scale_bytes + TILE_BYTES[kind] * ceil_div(count, 128), "size")
    reject(flags & 2 and payload_sum != xxh3(m[64:]), "payload sum")
    return kind, order, group, count, scale_bytes


# ---------------------------------------------------------------- codes
def code_of(kind, codes, i):
    """The code of value i: a signed number, or 0 and 1."""
    t, r, j = i // 128, i % 128 // 16, i % 16
    if kind == INT8:
        q = codes[128 * t + 64 * (r // 4) + 4 * j + r % 4]
        return q - 256 if q > 127 else q
    if kind == INT4:
        q = struct.unpack_from("<I", codes, 64 * t + 4 * j)[0] >> (4 * r) & 15
        return q - 16 if q > 7 else q
    if kind == INT2:
        q = struct.unpack_from("<H", codes, 32 * t + 2 * j)[0] >> (2 * r) & 3
        return q - 4 if q > 1 else q
    return codes[16 * t + j] >> r & 1


def value_of(kind, codes, scales, group, i):
    if kind == NONE:
        return struct.unpack_from("<f", codes, 4 * i)[0]
    if kind == BF16:
        x = struct.unpack("<f", b"\0\0" + codes[2 * i:2 * i + 2])[0]
        return x if x == x else NAN
    b = struct.unpack_from("<H", scales, 2 * (i // group))[0]
    if b & 0x7F80 == 0x7F80:
        return NAN
    if b & 0x7FFF == 0:
        return 0.0
    s = struct.unpack("<f", struct.pack("<I", b << 16))[0]
    code = code_of(kind, codes, i)
    if kind in (SR1, SIGN1):
        return s if code else -s
    return f32(code * s)


# ---------------------------------------------------------------- inverse transform
def block_sizes(n, order):
    sizes = [order] * (n // order)
    rest, size = n % order, order // 2
    while size:
        if rest & size:
            sizes.append(size)
        size //= 2
    return sizes


def inverse(x, order):
    out, start = [], 0
    for k in block_sizes(len(x), order):
        block, span = x[start:start + k], 1
        while span < k:
            for low in range(0, k, 2 * span):
                for i in range(low, low + span):
                    a, b = block[i], block[i + span]
                    block[i], block[i + span] = f32(a + b), f32(a - b)
            span *= 2
        out += [f32(v * (1.0 / k)) for v in block]
        start += k
    return [v if v == v else NAN for v in out]


def decode(message):
    kind, order, group, count, scale_bytes = read_header(message)
    scales, codes = message[64:64 + scale_bytes], message[64 + scale_bytes:]
    x = [value_of(kind, codes, scales, group, i) for i in range(count)]
    return inverse(x, order) if order else x


# ---------------------------------------------------------------- tests
class Tap:
    def __init__(self):
        self.count = self.failed = 0

    def ok(self, condition, sentence):
        self.count += 1
        self.failed += not condition
        print(f"{'ok' if condition else 'not ok'} {self.count} - {sentence}")

    def end(self):
        print(f"1..{self.count}")
        return 1 if self.failed else 0


def is_rejected(message):
    try:
        decode(message)
    except Rejected:
        return True
    return False


def check_golden(path):
    tap = Tap()
    for line in open(path):
        if line.startswith("#"):
            continue
        columns = line.rstrip("\n").split("|")
        name, checked = f"{columns[0]}, {columns[1]} values", columns[8] == "1"
        expected, message = columns[11], bytes.fromhex(columns[12])
        tap.ok(inputs.expected(decode(message), "fp32") == expected, f"{name}: the bytes decode to the golden values")
        damaged = [message[:at] + bytes([message[at] ^ 0x10]) + message[at + 1:] for at in range(64)]
        tap.ok(all(map(is_rejected, damaged)), f"{name}: no byte of the header can change")
        tap.ok(is_rejected(message[:-1]), f"{name}: no byte can be missing")
        tap.ok(is_rejected(message + b"\0"), f"{name}: no byte can be too many")
        if checked and len(message) > 64:
            damaged = [message[:at] + bytes([message[at] ^ 1]) + message[at + 1:] for at in range(64, len(message))]
            tap.ok(all(map(is_rejected, damaged)), f"{name}: no byte of a payload with a sum can change")
    tap.ok(tap.count > 20, "there are golden messages")
    return tap.end()


def document_vectors(text):
    """(title, bytes, printed values) of every vector in the last section."""
    for block in re.split(r"\n(?=\S[^\n]* values?[^\n]*: \d+ bytes\n)", text)[1:]:
        title, *lines = block.split("```")[0].rstrip().split("\n")
        message, values = bytearray(int(re.search(r"(\d+) bytes", title).group(1))), []
        for line in lines:
            dump = re.match(r"    ([0-9a-f]{4})  ((?:[0-9a-f]{2} ?)+)$", line)
            if dump:
                part = bytes.fromhex(dump.group(2))
                message[int(dump.group(1), 16):int(dump.group(1), 16) + len(part)] = part
            else:
                values += [float(word) for word in line.split()]
        yield title, bytes(message), values


def check_document(path, program=None):
    tap, text = Tap(), open(path).read()
    for title, message, values in document_vectors(text):
        decoded = decode(message)
        same = [inputs.narrow(f32(a), "fp32") == inputs.narrow(b, "fp32") for a, b in zip(values, decoded)]
        tap.ok(values and len(values) == len(decoded) and all(same), f"the document's vector decodes: {title}")
    tap.ok(tap.count > 6, "the document has vectors of every format")
    if program:
        printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        tap.ok(len(printed) > 1000 and printed.strip() in text, "golden_vectors prints what the document shows")
    return tap.end()


if __name__ == "__main__":
    sys.exit({"golden": check_golden, "document": check_document}[sys.argv[1]](*sys.argv[2:]))
