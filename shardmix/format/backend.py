"""The one place that chooses between the C twin and the Python twin.

    SHARDMIX_BACKEND=c | python    forces one; unset takes C where the extension was built.

Every layer above takes crc32c, scan_frames, check_frames, decode_examples and copy_spans from here. `name` is "c" or "python".
"""

from __future__ import annotations

from .example import decode_examples
from .framing import check_frames, scan_frames

__all__ = ["check_frames", "decode_examples", "name", "scan_frames"]

name = "python"
