#!/bin/sh
# Fuzz the C core with libFuzzer, AddressSanitizer and UndefinedBehaviorSanitizer: fuzz/run.sh [seconds, 600 unless told]
#
# Each target gets half the time. What it finds new goes to build/fuzz; the committed seeds in fuzz/corpus are only read.
# Afterwards the Python twin is asked about everything that was found (law 3). Needs clang (Debian, Ubuntu: apt-get install clang).
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-600}
sources=shardmix/format/csrc
flags="-g -O1 -std=c11 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -I$sources"
mkdir -p build/fuzz/frames build/fuzz/examples

# shellcheck disable=SC2086
${CLANG:-clang} $flags fuzz/fuzz_frames.c $sources/frames.c $sources/spans.c $sources/crc32c*.c -o build/fuzz/fuzz_frames
# shellcheck disable=SC2086
${CLANG:-clang} $flags fuzz/fuzz_examples.c $sources/locate.c $sources/decode.c $sources/names.c \
    $sources/varints*.c $sources/utf8.c -o build/fuzz/fuzz_examples

for target in frames examples; do
    "build/fuzz/fuzz_$target" -max_total_time=$((seconds / 2)) -max_len=4096 -print_final_stats=1 -verbosity="${VERBOSITY:-1}" \
        -artifact_prefix="build/fuzz/$target-" "build/fuzz/$target" "fuzz/corpus/$target"
done
"${PYTHON:-.venv/bin/python}" fuzz/compare.py build/fuzz/examples fuzz/corpus/examples
