/* CRC-32C (Castagnoli): polynomial 0x1EDC6F41, bits reflected, start and end inverted (RFC 3720, section 12.1). */

#ifndef SHARDMIX_CRC32C_H
#define SHARDMIX_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Fill the tables and choose the method of this CPU. Called once, before anything else, while nothing else runs. */
void crc32c_init(void);

/* Go on from `crc`, the value of the bytes before (0 for none). */
uint32_t crc32c(uint32_t crc, const uint8_t *data, size_t size);

/* The same by table, on any CPU. */
uint32_t crc32c_portable(uint32_t crc, const uint8_t *data, size_t size);

/* "sse4.2", "armv8" or "table". */
const char *crc32c_method(void);

/* As stored in a frame: rotated right by 15, plus a constant, so that a CRC of bytes that hold CRCs stays sound. */
static inline uint32_t crc32c_mask(uint32_t crc)
{
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

#endif
