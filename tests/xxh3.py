"""XXH3, 64 bits, seed 0, in plain Python, from its specification (xxHash, doc/xxhash_spec.md): the checksums of a
message."""
import struct

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def u32(data, at):
    return struct.unpack_from("<I", data, at)[0]


def u64(data, at):
    return struct.unpack_from("<Q", data, at)[0]


def fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def avalanche(h):
    h = ((h ^ (h >> 37)) * MX1) & M64
    return h ^ (h >> 32)


def avalanche64(h):
    h = ((h ^ (h >> 33)) * P64[1]) & M64
    h = ((h ^ (h >> 29)) * P64[2]) & M64
    return h ^ (h >> 32)


def swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def short(data):
    """0 to 16 bytes."""
    n = len(data)
    if n > 8:
        low = u64(data, 0) ^ (u64(SECRET, 24) ^ u64(SECRET, 32))
        high = u64(data, n - 8) ^ (u64(SECRET, 40) ^ u64(SECRET, 48))
        return avalanche((n + swap64(low) + high + fold(low, high)) & M64)
    if n > 3:
        x = ((u32(data, 0) << 32) + u32(data, n - 4)) ^ (u64(SECRET, 8) ^ u64(SECRET, 16))
        x ^= ((x << 49 | x >> 15) ^ (x << 24 | x >> 40)) & M64
        x = (x * MX2) & M64
        x ^= (x >> 35) + n
        x = (x * MX2) & M64
        return x ^ (x >> 28)
    if n:
        x = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche64(x ^ (u32(SECRET, 0) ^ u32(SECRET, 4)))
    return avalanche64(u64(SECRET, 56) ^ u64(SECRET, 64))


def mix16(data, at, secret):
    return fold(u64(data, at) ^ u64(SECRET, secret), u64(data, at + 8) ^ u64(SECRET, secret + 8))


def medium(data):
    """17 to 240 bytes."""
    n = len(data)
    h = n * P64[0]
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(h & M64)
    for i in range(8):
        h += mix16(data, 16 * i, 16 * i)
    h = avalanche(h & M64)
    for i in range(8, n // 16):
        h += mix16(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche((h + mix16(data, n - 16, 136 - 17)) & M64)


def stripe(acc, data, at, secret):
    for i in range(8):
        word = u64(data, at + 8 * i)
        key = word ^ u64(SECRET, secret + 8 * i)
        acc[i ^ 1] = (acc[i ^ 1] + word) & M64
        acc[i] = (acc[i] + (key & M32) * (key >> 32)) & M64


def long(data):
    """More than 240 bytes: blocks of 16 stripes of 64 bytes."""
    n, stripes = len(data), (len(SECRET) - 64) // 8
    acc = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    for s in range((n - 1) // 64):
        stripe(acc, data, 64 * s, 8 * (s % stripes))
        if s % stripes == stripes - 1:
            for i in range(8):
                x = acc[i] ^ (acc[i] >> 47) ^ u64(SECRET, len(SECRET) - 64 + 8 * i)
                acc[i] = (x * P32[0]) & M64
    stripe(acc, data, n - 64, len(SECRET) - 64 - 7)
    h = n * P64[0]
    for i in range(4):
        h += fold(acc[2 * i] ^ u64(SECRET, 11 + 16 * i), acc[2 * i + 1] ^ u64(SECRET, 19 + 16 * i))
    return avalanche(h & M64)


def xxh3(data):
    return short(data) if len(data) <= 16 else medium(data) if len(data) <= 240 else long(data)
