"""The message definitions: those of the tfrecord package, and no trouble beside it or TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from shardmix.format.messages import load_messages

PAYLOAD = "b'\\n\\x0c\\n\\n\\n\\x01x\\x12\\x05\\x1a\\x03\\n\\x01\\x07'"  # an Example with x = 7
READ_OURS = f"""
from shardmix.format.messages import load_messages
assert list(load_messages().Example.FromString({PAYLOAD}).features.feature["x"].int64_list.value) == [7]
assert "torch" not in sys.modules or "tfrecord" in sys.modules
"""
READ_TFRECORD = f"""
import tfrecord
assert list(tfrecord.example_pb2.Example.FromString({PAYLOAD}).features.feature["x"].int64_list.value) == [7]
"""
# What `import tensorflow` does to protobuf's global pool: the same names, in files of other names.
REGISTER_TENSORFLOW = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="tensorflow/core/example/feature.proto", package="tensorflow")
file.message_type.add(name="BytesList")
file.message_type.add(name="Example")
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
"""

pytestmark = pytest.mark.once


def describe(descriptor: Any) -> Any:
    """A message's fields, and those of the messages in them, as plain data."""
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            field.is_packed,
            field.containing_oneof and field.containing_oneof.name,
            field.message_type and field.message_type.full_name,
            field.message_type and field.message_type.GetOptions().map_entry,
            field.message_type and describe(field.message_type),
        )
        for field in descriptor.fields
    }


@pytest.mark.parametrize("name", ["Example", "SequenceExample"])
def test_definitions_are_those_of_tfrecord(name: str) -> None:
    from tfrecord import example_pb2

    ours, theirs = getattr(load_messages(), name).DESCRIPTOR, getattr(example_pb2, name).DESCRIPTOR
    assert describe(ours) == describe(theirs)
    assert ours.full_name == theirs.full_name


@pytest.mark.parametrize(
    "steps",
    [(READ_OURS, READ_TFRECORD), (READ_TFRECORD, READ_OURS), (READ_OURS, REGISTER_TENSORFLOW), (REGISTER_TENSORFLOW, READ_OURS)],
    ids=["before_tfrecord", "after_tfrecord", "before_tensorflow", "after_tensorflow"],
)
def test_other_packages_may_come_in_any_order(steps: tuple[str, str]) -> None:
    program = "import sys\n" + "".join(steps)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
