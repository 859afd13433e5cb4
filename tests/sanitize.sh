#!/bin/sh
# Run the tests of format/ with a C extension built under AddressSanitizer and UndefinedBehaviorSanitizer.
#
#     tests/sanitize.sh [pytest arguments]      the parity and native tests unless told
#
# Works on a copy in build/sanitize, so that the extension in the tree stays as it is. Memory comes from malloc, not from Python's
# own pools, so that each bytes object has its own guarded place. Leaks are another test's (tests/format/test_leaks.py): an
# interpreter never frees everything. Needs gcc with libasan and libubsan.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
case ${PYTHON:-.venv/bin/python} in
    */*) python=$(cd "$(dirname "${PYTHON:-.venv/bin/python}")" && pwd)/$(basename "${PYTHON:-.venv/bin/python}") ;;
    *) python=$PYTHON ;;
esac
copy=build/sanitize/tree

rm -rf build/sanitize
mkdir -p "$copy"
tar -cf - --exclude='*.so' --exclude=__pycache__ shardmix tests fuzz setup.py setup.cfg pyproject.toml README.md LICENSE \
    | tar -xf - -C "$copy"
if [ -d ../shared ]; then ln -s "$root/../shared" build/sanitize/shared; fi
cd "$copy"

CC=gcc SHARDMIX_BUILD_C=yes \
    CFLAGS="-g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
    LDFLAGS="-fsanitize=address,undefined" "$python" setup.py --quiet build_ext --inplace

[ $# -gt 0 ] || set -- tests/format/test_parity.py tests/format/test_native.py tests/format/test_framing.py \
    tests/format/test_crc32c.py tests/format/test_runs.py
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc SHARDMIX_BACKEND=c \
    ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
    exec "$python" -m pytest -p no:cacheprovider --capture=sys --quiet "$@"
