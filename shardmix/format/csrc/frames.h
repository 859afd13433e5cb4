/* TFRecord frames; see frames.c. */

#ifndef SHARDMIX_FRAMES_H
#define SHARDMIX_FRAMES_H

#include <stdint.h>

#define HEADER_BYTES 12
#define FOOTER_BYTES 4
#define FRAME_BYTES 16

/* The codes of framing.Damage. */
enum damage {
    DAMAGE_NONE = 0,
    DAMAGE_LENGTH_CRC = 1,
    DAMAGE_PAYLOAD_CRC = 2,
    DAMAGE_CUT_HEADER = 3,
    DAMAGE_CUT_PAYLOAD = 4,
    DAMAGE_LENGTH_DIFFERS = 5,
};

enum verify { VERIFY_OFF = 0, VERIFY_LENGTH = 1, VERIFY_FULL = 2 };

typedef struct {
    int64_t count;
    int64_t consumed;
    int damage;
} frame_scan;

/* `lengths` has room for size / FRAME_BYTES numbers; remaining >= size. */
frame_scan scan_frames(const uint8_t *data, int64_t size, int64_t remaining, int verify, int64_t *lengths);

/* start[i] >= HEADER_BYTES, length[i] >= 0; any may lie beyond the buffer. */
void check_frames(const uint8_t *data, int64_t size, const int64_t *start, const int64_t *length, int64_t count, int verify,
                  int64_t *codes);

#endif
