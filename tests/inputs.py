"""The inputs of inputs.c once more, and element types: what make.py and oracle_random.py feed the oracle with."""
import struct

MASK64 = (1 << 64) - 1
SPECIAL = (0x7FC00000, 0x7F800000, 0xFF800000, 0x80000000, 0x00000001, 0x7F7FFFFF, 0x00000000, 0x807FFFFF)
PATTERNS = ("normal", "wide", "spike", "negative", "equal", "denormal", "tiny", "huge", "special", "blocks", "levels")


def mix(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def float_of(u):
    return struct.unpack("<f", struct.pack("<I", u))[0]


def bits_of(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def bell(h):
    return (h & 0xFFFF) + (h >> 16 & 0xFFFF) + (h >> 32 & 0xFFFF) + (h >> 48) - 131070


def value(pattern, seed, rank, i):
    h = mix((mix((seed + rank) & MASK64) + i) & MASK64)
    sign, mantissa = (h >> 63) << 31, h & 0x7FFFFF
    if pattern == "wide":
        u = h & 0xFFFFFFFF
        return float_of(u & ~0x40000000 if u >> 23 & 255 == 255 else u)
    if pattern == "spike":
        return bell(h) * (2.0 ** -25 if h % 97 else 2.0 ** 10)
    if pattern == "negative":
        return -((h & 0xFFFF) + 1) * 2.0 ** -8
    if pattern == "equal":
        return (mix((seed + rank) & MASK64) % 1000 - 500) * 2.0 ** -3
    if pattern == "denormal":
        return float_of(sign | mantissa)
    if pattern == "tiny":
        return float_of(sign | (25 + (h >> 32 & 0xFFFFFFFF) % 5) << 23 | mantissa)
    if pattern == "huge":
        return float_of(sign | (250 + (h >> 32 & 0xFFFFFFFF) % 5) << 23 | mantissa)
    if pattern == "special" and (h >> 40) % 61 == 0:
        return float_of(SPECIAL[h >> 32 & 7])
    if pattern == "blocks" and i // 32 % 2:
        return 0.0
    if pattern == "levels":
        return float(h % 15 - 7)
    return bell(h) * 2.0 ** -15


# ---------------------------------------------------------------- element types
def narrow(x, kind):
    """The bits of a float32 in a type, nearest even, NaN canonical."""
    u = bits_of(x)
    if kind == "fp32":
        return u if x == x else 0x7FC00000
    if kind == "bf16":
        return (u + 0x7FFF + (u >> 16 & 1)) >> 16 if x == x else 0x7FC0
    if x != x:
        return 0x7E00
    try:
        return struct.unpack("<H", struct.pack("<e", x))[0]
    except OverflowError:
        return 0x7C00 | (u >> 16 & 0x8000)


def widen(u, kind):
    if kind == "fp32":
        return float_of(u)
    if kind == "bf16":
        return float_of(u << 16)
    return struct.unpack("<e", struct.pack("<H", u))[0]


def values(pattern, seed, rank, n, kind):
    """What a rank's buffer of a type holds, widened to float32."""
    return [widen(narrow(value(pattern, seed, rank, i), kind), kind) for i in range(n)]


def fnv(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & MASK64
    return h


def packed(result, kind):
    """A result as the bytes a C program would have."""
    return b"".join(struct.pack("<I" if kind == "fp32" else "<H", narrow(x, kind)) for x in result)


def expected(result, kind):
    """How a golden file names a result: the bytes of a small one, the hash of a larger one."""
    data = packed(result, kind)
    return "hex:" + data.hex() if len(data) <= 32 else "fnv:%016x" % fnv(data)
