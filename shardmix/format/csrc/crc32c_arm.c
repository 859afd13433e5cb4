/* CRC-32C by the instructions of ARMv8, streams joined by PMULL (see "three streams" in crc32c_methods.h). */

#include "crc32c_methods.h"
#include "words.h"

#if defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))

#include <arm_acle.h>
#include <arm_neon.h>

#if defined(__linux__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#ifndef HWCAP_PMULL
#define HWCAP_PMULL (1 << 4)
#endif
static int is_supported(void)
{
    unsigned long capabilities = getauxval(AT_HWCAP);
    return (capabilities & HWCAP_CRC32) && (capabilities & HWCAP_PMULL);
}
#else
static int is_supported(void) /* every Apple CPU of this architecture has both */
{
    return 1;
}
#endif

#if defined(__clang__) /* before version 16 arm_acle.h has them only where the whole file is compiled for them */
#define TARGET __attribute__((target("crc,aes")))
#define STEP64(crc, word) __builtin_arm_crc32cd((crc), (word))
#define STEP8(crc, byte) __builtin_arm_crc32cb((crc), (byte))
#else
#define TARGET __attribute__((target("+crc+crypto")))
#define STEP64(crc, word) __crc32cd((crc), (word))
#define STEP8(crc, byte) __crc32cb((crc), (byte))
#endif

#define MULTIPLY(a, b) vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64((poly64_t)(a), (poly64_t)(b))), 0)

static const uint32_t *shifts;

TARGET static uint32_t crc_of_arm(uint32_t crc, const uint8_t *p, size_t size)
{
    CRC32C_THREE_STREAMS(crc, p, size, shifts);
    return crc;
}

crc32c_register_fn crc32c_arm_method(const uint32_t *shift_by_words)
{
    shifts = shift_by_words;
    return is_supported() ? crc_of_arm : NULL;
}

#else

crc32c_register_fn crc32c_arm_method(const uint32_t *shift_by_words)
{
    (void)shift_by_words;
    return NULL;
}

#endif
