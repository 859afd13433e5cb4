/* Read runs of frames from files, and judge each while it is in the cache. Python twin: shardmix/format/runs.py.
 *
 * Rule 1: a file is read, never mapped: one that is cut meanwhile gives fewer bytes, not a signal.
 * Rule 2: a long run is read in pieces of whole frames, PIECE_BYTES at most or one frame: what was just read is judged before
 * the next bytes push it out of the cache.
 * Rule 3: what was not read is judged as cut; nothing is ever judged by what the buffer held before.
 */

#ifndef _WIN32 /* which has no pread: the Python twin reads there */

#define _POSIX_C_SOURCE 200809L
#define _FILE_OFFSET_BITS 64

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

#include "frames.h"
#include "runs.h"

#define PIECE_BYTES (256 << 10)
#define LARGEST_READ (1 << 30) /* some systems refuse, or cut, what does not fit in an int */

static int are_frames_sound(const frame_runs *runs, int64_t run)
{
    int64_t free = runs->bounds[run], end = runs->bounds[run + 1];

    for (int64_t i = runs->rows[run]; i < runs->rows[run + 1]; i++) {
        int64_t start = runs->start[i], length = runs->length[i];
        if (start < HEADER_BYTES || start - HEADER_BYTES < free || start > end)
            return 0;
        if (length < 0 || end - start < FOOTER_BYTES || length > end - start - FOOTER_BYTES)
            return 0;
        free = start + length + FOOTER_BYTES;
    }
    return 1;
}

int are_runs_sound(const frame_runs *runs, int64_t size)
{
    int64_t count = runs->count;

    if (runs->bounds[0] < 0 || runs->bounds[count] > size || runs->rows[0] != 0 || runs->rows[count] != runs->num_rows)
        return 0;
    for (int64_t r = 0; r < count; r++)
        if (runs->bounds[r] > runs->bounds[r + 1] || runs->rows[r] > runs->rows[r + 1])
            return 0;
    for (int64_t r = 0; r < count; r++) {
        int64_t bytes = runs->bounds[r + 1] - runs->bounds[r];
        if (runs->descriptor[r] < 0 || runs->descriptor[r] > INT32_MAX)
            return 0;
        if (runs->offset[r] < 0 || runs->offset[r] > INT64_MAX - bytes || !are_frames_sound(runs, r))
            return 0;
    }
    return 1;
}

/* The bytes read: fewer than asked for at the end of the file, or where `error` is set. */
static int64_t fill(int descriptor, uint8_t *out, int64_t size, int64_t offset, int *error)
{
    int64_t done = 0;

    while (done < size) {
        int64_t wanted = size - done < LARGEST_READ ? size - done : LARGEST_READ;
        ssize_t got = pread(descriptor, out + done, (size_t)wanted, (off_t)(offset + done));
        if (got > 0)
            done += got;
        else if (got == 0)
            break;
        else if (errno != EINTR) {
            *error = errno;
            break;
        }
    }
    return done;
}

/* The row behind the last frame of the piece that begins at `begin` of the buffer, and with `row`; and where the piece ends. */
static int64_t find_piece(const frame_runs *runs, int64_t row, int64_t last, int64_t begin, int64_t *end)
{
    int64_t run_end = *end;

    for (int64_t first = row; row < last; row++) {
        int64_t frame_end = runs->start[row] + runs->length[row] + FOOTER_BYTES;
        if (row > first && frame_end - begin > PIECE_BYTES)
            return row;
        *end = frame_end;
    }
    *end = run_end;
    return last;
}

static void judge(const frame_runs *runs, const uint8_t *buffer, int64_t size, int64_t row, int64_t stop, int verify,
                  int64_t *codes)
{
    check_frames(buffer, size, runs->start + row, runs->length + row, stop - row, verify, codes + row);
}

/* Returns the bytes read. */
static int64_t read_run(const frame_runs *runs, int64_t run, uint8_t *buffer, int verify, int64_t *codes, int *error)
{
    int64_t begin = runs->bounds[run], done = begin, end = begin;
    int64_t row = runs->rows[run], last = runs->rows[run + 1];

    while (done == end && done < runs->bounds[run + 1]) {
        end = runs->bounds[run + 1];
        int64_t stop = find_piece(runs, row, last, done, &end);
        done += fill((int)runs->descriptor[run], buffer + done, end - done, runs->offset[run] + (done - begin), error);
        judge(runs, buffer, done, row, stop, verify, codes);
        row = stop;
    }
    judge(runs, buffer, done, row, last, verify, codes);
    return done - begin;
}

read_failure read_runs(const frame_runs *runs, uint8_t *buffer, int verify, int64_t *got, int64_t *codes)
{
    read_failure failure = {runs->count, 0};

    for (int64_t r = 0; r < runs->count; r++) {
        got[r] = 0;
        if (failure.error) {
            judge(runs, buffer, runs->bounds[r], runs->rows[r], runs->rows[r + 1], verify, codes);
            continue;
        }
        got[r] = read_run(runs, r, buffer, verify, codes, &failure.error);
        if (failure.error)
            failure.run = r;
    }
    return failure;
}

#endif
