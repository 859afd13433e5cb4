/* CRC-32C: the choice of a method, and the table for CPUs without the instruction.
 *
 * Rule 1: a method is chosen once, by asking the CPU, never by a compiler flag for the whole file: one binary runs everywhere.
 * Rule 2: methods work on the inverted register; only crc32c() and crc32c_portable() invert.
 */

#include "crc32c.h"
#include "crc32c_methods.h"
#include "words.h"

static uint32_t table[8][256]; /* table[k][b]: byte b, followed by k zero bytes */
static uint32_t shift_by_words[CRC32C_SHIFTS];
static crc32c_register_fn method;
static const char *method_name;

static uint32_t crc_of_table(uint32_t crc, const uint8_t *p, size_t size)
{
    for (; size >= 8; p += 8, size -= 8) {
        uint64_t w = load_u64(p) ^ crc;
        crc = table[7][w & 0xff] ^ table[6][(w >> 8) & 0xff] ^ table[5][(w >> 16) & 0xff] ^ table[4][(w >> 24) & 0xff]
            ^ table[3][(w >> 32) & 0xff] ^ table[2][(w >> 40) & 0xff] ^ table[1][(w >> 48) & 0xff] ^ table[0][w >> 56];
    }
    for (; size; p++, size--)
        crc = table[0][(crc ^ *p) & 0xff] ^ (crc >> 8);
    return crc;
}

static void fill_tables(void)
{
    static const uint8_t zeros[8];

    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0);
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            table[k][b] = table[0][table[k - 1][b] & 0xff] ^ (table[k - 1][b] >> 8);

    /* x^(64 w - 33) mod P, reflected: for w = 1 that is x^31, and each further word is a multiplication by x^64. */
    shift_by_words[0] = 0;
    shift_by_words[1] = 1;
    for (int w = 2; w < CRC32C_SHIFTS; w++)
        shift_by_words[w] = crc_of_table(shift_by_words[w - 1], zeros, 8);
}

void crc32c_init(void)
{
    if (method)
        return;
    fill_tables();
    method_name = "table";
    crc32c_register_fn chosen = crc32c_x86_method(shift_by_words);
    if (chosen)
        method_name = "sse4.2";
    else if ((chosen = crc32c_arm_method(shift_by_words)))
        method_name = "armv8";
    method = chosen ? chosen : crc_of_table;
}

uint32_t crc32c(uint32_t crc, const uint8_t *data, size_t size)
{
    return ~method(~crc, data, size);
}

uint32_t crc32c_portable(uint32_t crc, const uint8_t *data, size_t size)
{
    return ~crc_of_table(~crc, data, size);
}

const char *crc32c_method(void)
{
    return method_name;
}
