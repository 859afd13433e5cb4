/* The two loops over lists of varints that processors have instructions for; see varints.c and varints_x86.c. */

#ifndef SHARDMIX_VARINTS_H
#define SHARDMIX_VARINTS_H

#include "wire.h"

#define BLOCK_BYTES 64
#define WORD_BYTES 8

typedef struct {
    /* Count the varints of whole blocks, up to a block with a long one. Moves `p` behind them. */
    int64_t (*count)(const uint8_t **p, const uint8_t *end);
    /* Decode varints up to a long one, or to where the end or that of the room is near: at most `room`. Moves `p` behind them. */
    int64_t (*decode)(const uint8_t **p, const uint8_t *end, uint8_t *out, int64_t room);
} varint_methods;

/* What every processor can do. */
extern const varint_methods varints_portable;

/* What this one can do better, or NULL. */
const varint_methods *varints_x86(void);

/* Which of 64 bytes are the last of eight in a row with their top bits set: those varints are long. `more`: the top bits. */
static inline uint64_t find_long(uint64_t more)
{
    uint64_t two = more & more >> 1, four = two & two >> 2;
    return four & four >> 4;
}

/* The same for one block after another: what a row of them takes along. */
typedef struct {
    uint64_t more, two, four;
} open_varint;

static inline uint64_t find_long_after(open_varint *open, uint64_t more)
{
    uint64_t two = more & (more << 1 | open->more >> 63);
    uint64_t four = two & (two << 2 | open->two >> 62);
    uint64_t eight = four & (four << 4 | open->four >> 60);
    open->more = more;
    open->two = two;
    open->four = four;
    return eight;
}

#endif
