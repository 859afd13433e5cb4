"""Law 1: read(write(x)) == x, however it is stored and cut. (The golden bytes: tests/format/test_golden_records.py.)"""

from __future__ import annotations

from itertools import zip_longest
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix import ShardWriter, read_records
from shardmix.format.scan import scan_shard

PAYLOADS = st.lists(st.binary(max_size=40) | st.integers(0, 300_000).map(bytes), max_size=30)
LIMITS = st.one_of(
    st.fixed_dictionaries({"num_shards": st.integers(1, 5)}),
    st.fixed_dictionaries({"max_shard_records": st.integers(1, 9)}),
    st.fixed_dictionaries({"max_shard_bytes": st.integers(1, 500_000)}),
)


@settings(max_examples=40, deadline=None)
@given(payloads=PAYLOADS, limit=LIMITS, compression=st.sampled_from([None, "gzip", "zlib"]))
def test_what_is_written_is_read(payloads, limit, compression):
    with TemporaryDirectory() as folder:
        with ShardWriter(f"{folder}/shard", compression_type=compression, **limit) as writer:
            for payload in payloads:
                writer.write(payload)
        shards = [[bytes(payload) for payload in read_records(path)] for path in writer.paths]
        lengths = [scan_shard(path).lengths.tolist() for path in writer.paths]
    assert lengths == [[len(payload) for payload in shard] for shard in shards]
    if "num_shards" in limit:  # dealt round robin: one of each in turn
        turns = [payload for turn in zip_longest(*shards) for payload in turn if payload is not None]
        assert turns == payloads
    else:
        assert sum(shards, []) == payloads
