"""Ask both twins about every input of some corpora: python fuzz/compare.py build/fuzz/examples …

Prints the inputs on which they differ, and how many were compared; ends with status 1 when there are any.
"""

# ruff: noqa: T201  (its output is what it is for)

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from shardmix.format import example, native_examples
from tests.format.odd_payloads import SCHEMAS
from tests.format.test_parity import outcome, split_input


def find_differences(path: Path) -> list[str]:
    """The schemas under which the twins differ, for the rows of one input together and for each alone."""
    rows = split_input(path.read_bytes())
    return [
        name
        for name, schema in SCHEMAS.items()
        for payloads in (rows, *([row] for row in rows))
        if outcome(example.decode_examples, payloads, schema) != outcome(native_examples.decode_examples, payloads, schema)
    ]


def main(folders: list[str]) -> int:
    paths = sorted(path for folder in folders for path in Path(folder).iterdir())
    differing = 0
    for path in paths:
        if schemas := find_differences(path):
            differing += 1
            print(f"{path}: the twins differ under {', '.join(sorted(set(schemas)))}")
    print(f"{len(paths)} inputs compared, {differing} with a difference")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
