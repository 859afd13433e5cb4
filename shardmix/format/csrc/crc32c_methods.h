/* The methods that a CPU may offer. Each is asked for with the table of shifts and answers NULL where it cannot run.
 *
 * Note: three streams.
 * The instruction takes a word a cycle, but its result is ready only three cycles later. So a block is cut into three streams
 * of m words and one last word; the streams are run side by side, and joined by moving the first over the 2m + 1 words that
 * come after it, the second over its m + 1. To move a register over w words is to multiply it by x^(64w) mod P. A carry-less
 * product of two reflected 32-bit polynomials is one bit short, and the last word's own step multiplies by x^32, so the
 * constant is x^(64w - 33), and the product is added to the last word. (Gopal et al., Fast CRC Computation for iSCSI
 * Polynomial Using CRC32 Instruction, Intel 2011.)
 */

#ifndef SHARDMIX_CRC32C_METHODS_H
#define SHARDMIX_CRC32C_METHODS_H

#include <stddef.h>
#include <stdint.h>

#define CRC32C_STREAM_WORDS 128 /* the longest stream, in words: 3 KiB a block */
#define CRC32C_SHIFTS (2 * CRC32C_STREAM_WORDS + 2)

typedef uint32_t (*crc32c_register_fn)(uint32_t crc, const uint8_t *data, size_t size);

crc32c_register_fn crc32c_x86_method(const uint32_t *shift_by_words);
crc32c_register_fn crc32c_arm_method(const uint32_t *shift_by_words);

/* The body of a method: STEP64(crc, word), STEP8(crc, byte) and MULTIPLY(a, b) are its instructions. */
#define CRC32C_THREE_STREAMS(crc, p, size, shifts)                                             \
    while ((size) >= 16 * 8) {                                                                 \
        size_t m = ((size) / 8 - 1) / 3;                                                       \
        m = m < CRC32C_STREAM_WORDS ? m : CRC32C_STREAM_WORDS;                                 \
        const uint8_t *second = (p) + 8 * m, *third = (p) + 16 * m;                            \
        uint32_t crc2 = 0, crc3 = 0;                                                           \
        for (size_t i = 0; i < 8 * m; i += 8) {                                                \
            (crc) = STEP64((crc), load_u64((p) + i));                                          \
            crc2 = STEP64(crc2, load_u64(second + i));                                         \
            crc3 = STEP64(crc3, load_u64(third + i));                                          \
        }                                                                                      \
        uint64_t joined = MULTIPLY((crc), (shifts)[2 * m + 1]) ^ MULTIPLY(crc2, (shifts)[m + 1]); \
        (crc) = STEP64(crc3, load_u64((p) + 24 * m) ^ joined);                                 \
        (p) += 24 * m + 8;                                                                     \
        (size) -= 24 * m + 8;                                                                  \
    }                                                                                          \
    for (; (size) >= 8; (p) += 8, (size) -= 8)                                                 \
        (crc) = STEP64((crc), load_u64(p));                                                    \
    for (; (size); (p)++, (size)--)                                                            \
        (crc) = STEP8((crc), *(p))

#endif
