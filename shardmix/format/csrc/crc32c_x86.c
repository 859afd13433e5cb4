/* CRC-32C by the instructions of SSE4.2, streams joined by PCLMULQDQ (see "three streams" in crc32c_methods.h). */

#include "crc32c_methods.h"
#include "words.h"

#if defined(__x86_64__) || defined(_M_X64)

#include <nmmintrin.h>
#include <wmmintrin.h>

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#define TARGET
static int is_supported(void)
{
    int words[4];
    __cpuid(words, 1);
    return (words[2] >> 20 & 1) && (words[2] >> 1 & 1);
}
#else
#define TARGET __attribute__((target("sse4.2,pclmul")))
static int is_supported(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}
#endif

#define STEP64(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define STEP8(crc, byte) _mm_crc32_u8((crc), (byte))
#define MULTIPLY(a, b)                                                                                             \
    ((uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi32_si128((int)(a)), _mm_cvtsi32_si128((int)(b)), 0)))

static const uint32_t *shifts;

TARGET static uint32_t crc_of_x86(uint32_t crc, const uint8_t *p, size_t size)
{
    CRC32C_THREE_STREAMS(crc, p, size, shifts);
    return crc;
}

crc32c_register_fn crc32c_x86_method(const uint32_t *shift_by_words)
{
    shifts = shift_by_words;
    return is_supported() ? crc_of_x86 : NULL;
}

#else

crc32c_register_fn crc32c_x86_method(const uint32_t *shift_by_words)
{
    (void)shift_by_words;
    return NULL;
}

#endif
