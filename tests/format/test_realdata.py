"""Real files of public projects: compression, counts and the digest of the records, as the manifest says."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest

from shardmix import read_records
from shardmix.format.scan import scan_shard

MANIFEST = Path(__file__).parents[3] / "shared" / "realdata" / "manifest.json"
FILES = [entry["file"] for entry in json.loads(MANIFEST.read_text(encoding="utf-8"))] if MANIFEST.is_file() else []


@pytest.fixture
def entry(manifest, request):
    return next(entry for entry in manifest if entry["file"] == request.param)


@pytest.mark.parametrize("entry", FILES, indirect=True)
class TestRealFiles:
    def test_records(self, entry, realdata_dir):
        digest, count = hashlib.sha256(), 0
        for payload in read_records(realdata_dir / entry["file"]):
            digest.update(struct.pack("<Q", len(payload)) + payload)
            count += 1
        assert (count, digest.hexdigest()) == (entry["records"], entry["records_digest"])

    def test_scan(self, entry, realdata_dir):
        scan = scan_shard(str(realdata_dir / entry["file"]))
        assert (len(scan.lengths), scan.compression) == (entry["records"], entry["compression"])
        assert scan.size == (realdata_dir / entry["file"]).stat().st_size
