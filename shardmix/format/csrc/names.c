/* A hash table of the names in a schema.
 *
 * Rule 1: the hash takes the length and at most sixteen bytes, the first and the last eight: names are short, or differ there.
 * Rule 2: it is built once a call, over names that the schema's author chose; payloads only look up.
 */

#include "names.h"

#include <stdlib.h>

#include "words.h"

static uint64_t read_ends(const uint8_t *name, uint32_t bytes)
{
    if (bytes >= 8)
        return load_u64(name) * 0x9e3779b97f4a7c15u ^ load_u64(name + bytes - 8);
    uint64_t word = 0;
    for (uint32_t i = 0; i < bytes; i++)
        word = word << 8 | name[i];
    return word;
}

static uint32_t hash_name(const uint8_t *name, uint32_t bytes)
{
    uint64_t h = (read_ends(name, bytes) ^ bytes) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32);
}

static int is_name(const field *f, const uint8_t *name, uint32_t bytes)
{
    return f->name_bytes == bytes && memcmp(f->name, name, bytes) == 0;
}

int find_name(const name_table *names, const uint8_t *name, uint32_t bytes)
{
    for (uint32_t slot = hash_name(name, bytes) & names->mask;; slot = (slot + 1) & names->mask) {
        int found = names->slots[slot];
        if (found < 0 || is_name(&names->wanted->fields[found], name, bytes))
            return found;
    }
}

int build_names(name_table *names, const schema *wanted)
{
    uint32_t size = 2;
    while (size < 2 * (uint32_t)wanted->num_fields)
        size *= 2;
    names->wanted = wanted;
    names->mask = size - 1;
    names->slots = malloc(size * sizeof(int));
    if (!names->slots)
        return -1;
    for (uint32_t i = 0; i < size; i++)
        names->slots[i] = -1;
    for (int f = 0; f < wanted->num_fields; f++) {
        uint32_t slot = hash_name(wanted->fields[f].name, wanted->fields[f].name_bytes) & names->mask;
        while (names->slots[slot] >= 0)
            slot = (slot + 1) & names->mask;
        names->slots[slot] = f;
    }
    return 0;
}

void drop_names(name_table *names)
{
    free(names->slots);
    names->slots = NULL;
}
