/* UTF-8 (RFC 3629): protobuf refuses a message whose keys are anything else, so a key that nobody asked for is checked, too. */

#include "wire.h"

static inline int is_tail(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

int is_utf8(const uint8_t *p, const uint8_t *end)
{
    while (p != end) {
        ptrdiff_t left = end - p;
        if (left >= 8 && !(load_u64(p) & VARINT_TOPS)) {
            p += 8;
        } else if (p[0] < 0x80) {
            p += 1;
        } else if (p[0] < 0xe0) {
            if (left < 2 || p[0] < 0xc2 || !is_tail(p[1]))
                return 0;
            p += 2;
        } else if (p[0] < 0xf0) {
            if (left < 3 || !is_tail(p[1]) || !is_tail(p[2]))
                return 0;
            if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] >= 0xa0))
                return 0;
            p += 3;
        } else {
            if (left < 4 || p[0] > 0xf4 || !is_tail(p[1]) || !is_tail(p[2]) || !is_tail(p[3]))
                return 0;
            if ((p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] >= 0x90))
                return 0;
            p += 4;
        }
    }
    return 1;
}
