/* Walk and judge TFRecord frames. Python twin: scan_frames and check_frames in shardmix/format/framing.py.
 *
 * Rule 1: a length is untrusted until it was compared, by subtraction from what is left, never by a sum.
 * Rule 2: what a length is compared with is signed, the length itself unsigned: both fit after the first comparison.
 */

#include "frames.h"
#include "crc32c.h"
#include "words.h"

static int length_holds(const uint8_t *header)
{
    return crc32c_mask(crc32c(0, header, 8)) == load_u32(header + 8);
}

static int payload_holds(const uint8_t *payload, int64_t length)
{
    return crc32c_mask(crc32c(0, payload, (size_t)length)) == load_u32(payload + length);
}

/* Whether `length` is more than fits in `room` bytes, which may be negative. */
static int exceeds(uint64_t length, int64_t room)
{
    return room < 0 || length > (uint64_t)room;
}

frame_scan scan_frames(const uint8_t *data, int64_t size, int64_t remaining, int verify, int64_t *lengths)
{
    frame_scan scan = {0, 0, DAMAGE_NONE};
    int64_t offset = 0;

    for (;;) {
        if (size - offset < HEADER_BYTES) {
            if (remaining > offset && remaining - offset < HEADER_BYTES)
                scan.damage = DAMAGE_CUT_HEADER;
            break;
        }
        const uint8_t *header = data + offset;
        uint64_t length = load_u64(header);
        if (verify != VERIFY_OFF && !length_holds(header)) {
            scan.damage = DAMAGE_LENGTH_CRC;
            break;
        }
        if (exceeds(length, remaining - offset - FRAME_BYTES)) {
            scan.damage = DAMAGE_CUT_PAYLOAD;
            break;
        }
        if (exceeds(length, size - offset - FRAME_BYTES))
            break;
        if (verify == VERIFY_FULL && !payload_holds(header + HEADER_BYTES, (int64_t)length)) {
            scan.damage = DAMAGE_PAYLOAD_CRC;
            break;
        }
        lengths[scan.count++] = (int64_t)length;
        offset += (int64_t)length + FRAME_BYTES;
    }
    scan.consumed = offset;
    return scan;
}

static int judge(const uint8_t *data, int64_t size, int64_t start, int64_t length, int verify)
{
    if (start > size)
        return DAMAGE_CUT_HEADER;
    const uint8_t *payload = data + start;
    if (verify != VERIFY_OFF && !length_holds(payload - HEADER_BYTES))
        return DAMAGE_LENGTH_CRC;
    if (load_u64(payload - HEADER_BYTES) != (uint64_t)length)
        return DAMAGE_LENGTH_DIFFERS;
    if (exceeds((uint64_t)length, size - start - FOOTER_BYTES))
        return DAMAGE_CUT_PAYLOAD;
    if (verify == VERIFY_FULL && !payload_holds(payload, length))
        return DAMAGE_PAYLOAD_CRC;
    return DAMAGE_NONE;
}

void check_frames(const uint8_t *data, int64_t size, const int64_t *start, const int64_t *length, int64_t count, int verify,
                  int64_t *codes)
{
    for (int64_t i = 0; i < count; i++)
        codes[i] = judge(data, size, start[i], length[i], verify);
}
