/* From the name of a feature to the field of the schema; see names.c. */

#ifndef SHARDMIX_NAMES_H
#define SHARDMIX_NAMES_H

#include "example.h"

typedef struct {
    const schema *wanted;
    int *slots; /* a power of two of them, at most half full; -1 is empty */
    uint32_t mask;
} name_table;

/* -1 when there is no memory. */
int build_names(name_table *names, const schema *wanted);

/* The number of the field of this name, or -1. */
int find_name(const name_table *names, const uint8_t *name, uint32_t bytes);

void drop_names(name_table *names);

#endif
