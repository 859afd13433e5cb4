"""tf.train.Example and SequenceExample to columns: the Python twin, through the protobuf classes of the tfrecord package.

Its values and error texts define what the C twin must give.
"""

from __future__ import annotations

from .columns import Allocate, Column, allocate_arrays
from .features import Schema
from .records import RecordBlock


def decode_examples(block: RecordBlock, schema: Schema, allocate: Allocate = allocate_arrays) -> list[Column]:
    """Decode every row of the block, one column a field of the schema. `allocate` is called once.

    Raises ParseError for the first row (and in it the first field of the schema) that cannot be decoded.
    """
    raise NotImplementedError
