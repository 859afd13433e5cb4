/* Fuzz the walk over frames, the check of known frames, and the CRC.
 *
 * Holds for every input: what the scan calls sound lies in the buffer and is found sound again frame by frame; both ways to
 * compute a CRC agree; copying the payloads as spans gives their bytes.
 *
 * Input: one byte of flags (verify, how much the file goes on after the buffer), then the buffer.
 */

#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "frames.h"
#include "spans.h"

#define CHECK(condition) \
    do {                 \
        if (!(condition)) \
            abort();     \
    } while (0)

static void copy_payloads(const uint8_t *data, int64_t size, const int64_t *start, const int64_t *length, int64_t count)
{
    int64_t total = 0;
    int64_t *out_start = malloc((size_t)count * sizeof(int64_t) + 1);
    for (int64_t i = 0; i < count; i++) {
        out_start[i] = total;
        total += length[i];
    }
    uint8_t *out = malloc((size_t)total + 1);
    CHECK(find_bad_span(start, length, out_start, count, size, total) == -1);
    copy_spans(data, start, length, out, out_start, count, 1);
    for (int64_t i = 0; i < count; i++)
        CHECK(memcmp(out + out_start[i], data + start[i], (size_t)length[i]) == 0);
    free(out);
    free(out_start);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t bytes)
{
    if (!bytes)
        return 0;
    crc32c_init();
    int verify = input[0] % 3;
    int64_t size = (int64_t)bytes - 1, beyond = input[0] / 3 % 4 * 10;
    uint8_t *data = malloc((size_t)size); /* a copy of its own size: a read beyond it is seen */
    memcpy(data, input + 1, (size_t)size);

    int64_t room = size / FRAME_BYTES;
    int64_t *lengths = malloc((size_t)room * sizeof(int64_t) + 1), *start = malloc((size_t)room * sizeof(int64_t) + 1);
    int64_t *codes = malloc((size_t)room * sizeof(int64_t) + 1);
    frame_scan scan = scan_frames(data, size, size + beyond, verify, lengths);

    int64_t offset = 0;
    CHECK(scan.count >= 0 && scan.count <= room);
    for (int64_t i = 0; i < scan.count; i++) {
        CHECK(lengths[i] >= 0 && lengths[i] <= size - offset - FRAME_BYTES);
        start[i] = offset + HEADER_BYTES;
        offset += lengths[i] + FRAME_BYTES;
    }
    CHECK(offset == scan.consumed);
    check_frames(data, size, start, lengths, scan.count, verify, codes);
    for (int64_t i = 0; i < scan.count; i++)
        CHECK(codes[i] == DAMAGE_NONE);
    copy_payloads(data, size, start, lengths, scan.count);

    /* A frame of any claimed place and length. */
    int64_t place[2] = {HEADER_BYTES, 0}, code;
    memcpy(place, data, size < 16 ? (size_t)size : 16);
    if (place[0] >= HEADER_BYTES && place[1] >= 0)
        check_frames(data, size, place, place + 1, 1, verify, &code);
    CHECK(crc32c(input[0], data, (size_t)size) == crc32c_portable(input[0], data, (size_t)size));

    free(codes);
    free(start);
    free(lengths);
    free(data);
    return 0;
}
