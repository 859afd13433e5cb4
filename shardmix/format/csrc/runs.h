/* Runs of frames, read and judged; see runs.c. */

#ifndef SHARDMIX_RUNS_H
#define SHARDMIX_RUNS_H

#include <stdint.h>

/* Run r is the bytes from offset[r] on of an open file, and goes to bounds[r] … bounds[r + 1] of the buffer; the frames
 * rows[r] … rows[r + 1] lie in it, each payload at start[i] of the buffer, in order. bounds and rows have one number more. */
typedef struct {
    int64_t count;
    int64_t num_rows;
    const int64_t *descriptor;
    const int64_t *offset;
    const int64_t *bounds;
    const int64_t *rows;
    const int64_t *start;
    const int64_t *length;
} frame_runs;

/* Where reading failed: count and 0 where it did not. */
typedef struct {
    int64_t run;
    int error;
} read_failure;

/* Whether every run lies within `size` bytes, and every frame within its run. */
int are_runs_sound(const frame_runs *runs, int64_t size);

/* Sound runs alone. `got` has a number for each run, `codes` one for each row. */
read_failure read_runs(const frame_runs *runs, uint8_t *buffer, int verify, int64_t *got, int64_t *codes);

#endif
