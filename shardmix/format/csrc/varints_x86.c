/* Lists of varints by the instructions of AVX2 and BMI2: PEXT joins the groups of a varint, PDEP finds the n-th end, and sixteen
 * varints are decoded without any branch.
 */

#include "varints.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__)) && !defined(SHARDMIX_PORTABLE)

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#define AT_ONCE 16

/* The top bits of 64 bytes, that of the first byte lowest. */
TARGET static inline uint64_t top_bits(const uint8_t *p)
{
    uint64_t low = (uint32_t)_mm256_movemask_epi8(_mm256_loadu_si256((const __m256i *)p));
    uint64_t high = (uint32_t)_mm256_movemask_epi8(_mm256_loadu_si256((const __m256i *)(p + 32)));
    return low | high << 32;
}

TARGET static int64_t count_many(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *p = *at;
    open_varint open = {0, 0, 0};
    int64_t count = 0;

    for (; end - p >= BLOCK_BYTES; p += BLOCK_BYTES) {
        uint64_t before = open.more, more = top_bits(p);
        if (find_long_after(&open, more)) {
            open.more = before;
            break;
        }
        count += _mm_popcnt_u64(~more);
    }
    *at = p - _lzcnt_u64(~open.more); /* where the varint begins that is open */
    return count;
}

/* The groups of a varint of so many bytes. Others never count: where they are looked up, what is joined is thrown away. */
static const uint64_t groups[16] = {
    0,
    0x000000000000007f,
    0x0000000000007f7f,
    0x00000000007f7f7f,
    0x000000007f7f7f7f,
    0x0000007f7f7f7f7f,
    0x00007f7f7f7f7f7f,
    0x007f7f7f7f7f7f7f,
    0x7f7f7f7f7f7f7f7f,
};

TARGET static int64_t decode_many(const uint8_t **at, const uint8_t *end, uint8_t *out, int64_t room)
{
    const uint8_t *p = *at;
    int64_t count = 0;

    while (end - p >= BLOCK_BYTES + WORD_BYTES && room - count >= AT_ONCE) {
        uint64_t more = top_bits(p), ends = ~more;
        if (find_long(more))
            break;
        int have = (int)_mm_popcnt_u64(ends), many = have >= AT_ONCE ? AT_ONCE : have >= 8 ? 8 : 0;
        if (!many)
            break;
        uint64_t bytes = _tzcnt_u64(_pdep_u64((uint64_t)1 << (many - 1), ends)) + 1, start = 0;
        for (int i = 0; i < many; i += 8) {
            for (int j = 0; j < 8; j++) {
                uint64_t next = _tzcnt_u64(ends) + 1, value = _pext_u64(load_u64(p + start), groups[(next - start) & 15]);
                memcpy(out + 8 * count++, &value, 8);
                start = next;
                ends = _blsr_u64(ends);
            }
        }
        p += bytes;
    }
    *at = p;
    return count + varints_portable.decode(at, end, out + 8 * count, room - count);
}

/* Processors of AMD before Zen 3 take PEXT apart, bit by bit; VPCLMULQDQ came with Zen 3, and with Intel's Ice Lake. */
const varint_methods *varints_x86(void)
{
    static const varint_methods methods = {count_many, decode_many};
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("vpclmulqdq") ? &methods
                                                                                                                 : NULL;
}

#else

const varint_methods *varints_x86(void)
{
    return NULL;
}

#endif
