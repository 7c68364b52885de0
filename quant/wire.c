/* Headers: written byte by byte in little-endian order, checked field by field.
 *
 * The header's own checksum catches damage; the other checks catch what a correct checksum over
 * wrong fields could still do. */
#include "quant/wire.h"

#include <string.h>
#include <xxhash.h>

#include "base/status.h"
#include "quant/codec.h"

/* Byte offsets of the header's fields; docs/wire-format.md has the table. */
enum header_field {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_FORMAT = 5,
    AT_HADAMARD = 6, /* log2 of the order, 0 for none */
    AT_FLAGS = 7,
    AT_RANK_STAGE = 8,
    AT_GROUP = 12,
    AT_REPLICA = 14,
    AT_COUNT = 16,
    AT_FIRST = 24,
    AT_SEGMENT = 32,
    AT_SEQUENCE = 36,
    AT_SEED = 40,
    AT_PAYLOAD_SUM = 48,
    AT_HEADER_SUM = 56,
};
enum header_flag { FLAG_NEAREST = 1, FLAG_PAYLOAD_SUM = 2, FLAGS_KNOWN = 3 };
static const uint8_t magic[4] = {'Q', 'C', 'C', 'L'};

/* A count beyond this is no message: sizes stay far from overflow. */
#define COUNT_MAX ((uint64_t)1 << 48)

static void put(uint8_t *header, int at, int bytes, uint64_t value)
{
    for (int i = 0; i < bytes; i++)
        header[at + i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *header, int at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i--;)
        value = value << 8 | header[at + i];
    return value;
}

size_t qccl_tile_bytes(qcclFormat_t format)
{
    static const uint16_t bytes[qcclNumFormats] = {
        [qcclFormatNone] = 512, [qcclFormatBf16] = 256, [qcclFormatInt8] = 128,
        [qcclFormatInt4] = 64,  [qcclFormatInt2] = 32,  [qcclFormatSr1] = 16,
        [qcclFormatSign1] = 16,
    };
    return bytes[format];
}

size_t qccl_wire_scale_bytes(const qcclCodec_t *codec, size_t count)
{
    if (!qccl_format_has_groups(codec->format))
        return 0;
    size_t groups = count / codec->group + (count % codec->group != 0);
    return (2 * groups + 63) / 64 * 64;
}

size_t qccl_wire_bytes(const qcclCodec_t *codec, size_t count)
{
    size_t tiles = count / TILE_ELEMS + (count % TILE_ELEMS != 0);
    return WIRE_HEADER_BYTES + qccl_wire_scale_bytes(codec, count) +
           tiles * qccl_tile_bytes(codec->format);
}

/* The byte of a Hadamard order: its logarithm, 0 for none. */
static unsigned log2_of(unsigned order)
{
    unsigned log = 0;
    while (order >> (log + 1))
        log++;
    return log;
}

/* The order of a byte; an order that no codec has where the byte is none of 0, 5, 6, 7. */
static uint16_t order_of(uint64_t log)
{
    return log == 0 ? 0 : log < 16 ? (uint16_t)(1u << log) : 1;
}

void qccl_wire_seal(void *message, const qcclCodec_t *codec, const qcclPosition_t *position,
                    uint16_t replica, size_t count, bool checked)
{
    uint8_t *header = message;
    memcpy(header, magic, sizeof magic);
    put(header, AT_VERSION, 1, WIRE_VERSION);
    put(header, AT_FORMAT, 1, codec->format);
    put(header, AT_HADAMARD, 1, log2_of(codec->hadamard));
    put(header, AT_FLAGS, 1,
        (codec->nearest ? FLAG_NEAREST : 0) | (checked ? FLAG_PAYLOAD_SUM : 0));
    put(header, AT_RANK_STAGE, 4, position->rank << 8 | position->stage);
    put(header, AT_GROUP, 2, codec->group);
    put(header, AT_REPLICA, 2, replica);
    put(header, AT_COUNT, 8, count);
    put(header, AT_FIRST, 8, position->first);
    put(header, AT_SEGMENT, 4, position->segment);
    put(header, AT_SEQUENCE, 4, position->sequence);
    put(header, AT_SEED, 8, position->seed);
    size_t payload = qccl_wire_bytes(codec, count) - WIRE_HEADER_BYTES;
    put(header, AT_PAYLOAD_SUM, 8, checked ? XXH3_64bits(header + WIRE_HEADER_BYTES, payload) : 0);
    put(header, AT_HEADER_SUM, 8, XXH3_64bits(header, AT_HEADER_SUM));
}

static void read_fields(const uint8_t *header, struct message *m)
{
    uint64_t flags = get(header, AT_FLAGS, 1);
    m->codec = (qcclCodec_t){
        .format = (uint8_t)get(header, AT_FORMAT, 1),
        .nearest = flags & FLAG_NEAREST,
        .hadamard = order_of(get(header, AT_HADAMARD, 1)),
        .group = (uint16_t)get(header, AT_GROUP, 2),
    };
    m->position = (qcclPosition_t){
        .seed = get(header, AT_SEED, 8),
        .segment = (uint32_t)get(header, AT_SEGMENT, 4),
        .sequence = (uint32_t)get(header, AT_SEQUENCE, 4),
        .rank = (uint32_t)get(header, AT_RANK_STAGE + 1, 3),
        .stage = (uint32_t)get(header, AT_RANK_STAGE, 1),
        .first = get(header, AT_FIRST, 8),
    };
    m->count = get(header, AT_COUNT, 8);
    m->replica = (uint16_t)get(header, AT_REPLICA, 2);
}

qcclResult_t qccl_wire_open(const void *bytes_of_message, size_t bytes, struct message *m)
{
    const uint8_t *header = bytes_of_message;
    if (bytes < WIRE_HEADER_BYTES)
        return qccl_fail(qcclCorruptMessage,
                         "message of %zu bytes is shorter than its header of %d", bytes,
                         WIRE_HEADER_BYTES);
    if (memcmp(header, magic, sizeof magic) != 0)
        return qccl_fail(qcclCorruptMessage,
                         "message begins with %02x %02x %02x %02x, not with QCCL", header[0],
                         header[1], header[2], header[3]);
    if (header[AT_VERSION] != WIRE_VERSION)
        return qccl_fail(qcclCorruptMessage,
                         "message has wire format version %d, this library reads %d",
                         header[AT_VERSION], WIRE_VERSION);
    if (get(header, AT_HEADER_SUM, 8) != XXH3_64bits(header, AT_HEADER_SUM))
        return qccl_fail(qcclCorruptMessage, "message header does not match its checksum");
    read_fields(header, m);
    if (header[AT_FLAGS] & ~FLAGS_KNOWN || m->count > COUNT_MAX)
        return qccl_fail(qcclCorruptMessage, "message has flags 0x%02x, count %llu",
                         header[AT_FLAGS], (unsigned long long)m->count);
    if (qccl_codec_check(&m->codec) != qcclSuccess)
        return qccl_fail_prefix(qcclCorruptMessage, "message header");
    if (m->position.first % TILE_ELEMS || m->position.first % m->codec.group ||
        m->position.stage > WIRE_STAGE_MAX)
        return qccl_fail(qcclCorruptMessage,
                         "message begins at element %llu, stage %u: no multiple of 128 and of "
                         "group %d, or no stage",
                         (unsigned long long)m->position.first, (unsigned)m->position.stage,
                         m->codec.group);
    if (bytes != qccl_wire_bytes(&m->codec, m->count))
        return qccl_fail(qcclCorruptMessage, "message of %zu values has %zu bytes instead of %zu",
                         m->count, bytes, qccl_wire_bytes(&m->codec, m->count));
    bool checked = header[AT_FLAGS] & FLAG_PAYLOAD_SUM;
    if (get(header, AT_PAYLOAD_SUM, 8) !=
        (checked ? XXH3_64bits(header + WIRE_HEADER_BYTES, bytes - WIRE_HEADER_BYTES) : 0))
        return qccl_fail(qcclCorruptMessage, "scales and codes do not match their checksum");
    m->scales = (const uint16_t *)(const void *)(header + WIRE_HEADER_BYTES);
    m->codes = header + WIRE_HEADER_BYTES + qccl_wire_scale_bytes(&m->codec, m->count);
    return qcclSuccess;
}

struct draw qccl_draw_at(const qcclPosition_t *position, bool nearest)
{
    return (struct draw){
        .key = {(uint32_t)position->seed, (uint32_t)(position->seed >> 32)},
        .counter = {position->segment, position->sequence, position->rank << 8 | position->stage},
        .first_tile = (uint32_t)(position->first / TILE_ELEMS),
        .nearest = nearest,
    };
}
