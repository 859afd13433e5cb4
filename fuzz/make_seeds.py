"""Write the seeds in fuzz/corpus from the payloads of the parity tests: python fuzz/make_seeds.py

What is called found_… there was found by a run of the fuzzer (libFuzzer's -merge=1), and reaches code that the seeds do not.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from shardmix.format.framing import frame_record
from tests.format.odd_payloads import PAYLOADS, USUAL

CORPUS = Path(__file__).parent / "corpus"


def pack(flags: int, *payloads: bytes) -> bytes:
    """An input of fuzz_examples.c."""
    return bytes([flags]) + b"".join(len(payload).to_bytes(2, "little") + payload for payload in payloads)


def make_inputs() -> dict[str, bytes]:
    """Path below the corpus → input. Flags: 1 is a SequenceExample, 2 with fields that may not be missing."""
    inputs = {f"examples/{name}": pack(1, payload) for name, payload in PAYLOADS.items()}
    for name in ("full", "strict", "negative", "sequence"):
        others = [payload for other, payload in USUAL.items() if other != name]
        inputs[f"examples/{name}_among_others"] = pack(3, USUAL[name], USUAL[name], *others[:3], USUAL[name])
        inputs[f"examples/{name}_thrice"] = pack(0, *[USUAL[name]] * 3)
    sound = b"".join(frame_record(bytes(size)) for size in (0, 3, 100, 700))
    return inputs | {
        "frames/sound": b"\x02" + sound,
        "frames/sound_lengths": b"\x01" + sound,
        "frames/unchecked": b"\x00" + sound,
        "frames/cut": b"\x02" + sound[:-5],
        "frames/goes_on": b"\x0e" + sound[:-5],
        "frames/one": b"\x02" + frame_record(b"payload"),
    }


def main() -> None:
    for name, data in make_inputs().items():
        path = CORPUS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
