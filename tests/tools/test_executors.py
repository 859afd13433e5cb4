"""The heavy functions on executors of other processes and machines: processes of Python's own, and dask.distributed."""

from __future__ import annotations

import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from shardmix import build_index, read_records
from shardmix.tools.index import index_shards
from shardmix.tools.reshard import reshard
from shardmix.tools.verify import verify_shards


@pytest.fixture(scope="module")
def process_executor():
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture(scope="module")
def dask_executor():
    """Two worker processes of a real cluster on this machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distributed = pytest.importorskip("distributed")
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client.get_executor()


@pytest.fixture(params=["process_executor", "dask_executor"])
def executor(request):
    return request.getfixturevalue(request.param)


@pytest.mark.once
class TestExecutors:
    def test_index(self, make_corpus, executor):
        pattern = make_corpus([3, 0, 4])
        assert build_index(pattern, index="memory", executor=executor).counts.tolist() == [3, 0, 4]
        assert index_shards(pattern, index="auto", executor=executor).opened.num_records == 7

    def test_verify_and_repair(self, make_corpus, tmp_path, executor):
        pattern = make_corpus([3, 0, 4])
        with open(pattern.replace("*", "00002-0"), "r+b") as file:
            file.seek(12)
            file.write(b"\xff")
        report = verify_shards(pattern, repair=str(tmp_path / "sound"), executor=executor)
        assert [shard.records for shard in report.shards] == [3, 0, 3]
        assert [finding.kind for finding in report.findings] == ["payload"]
        assert sum(len(list(read_records(path))) for path in report.repaired) == 6

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_reshard(self, make_corpus, tmp_path, executor, shuffle):
        pattern = make_corpus([30, 0, 40])
        report = reshard(pattern, tmp_path / "out" / "{}", num_shards=4, shuffle=shuffle, executor=executor, num_workers=2)
        assert sum(report.records) == sum(len(list(read_records(path))) for path in report.paths) == 70

    def test_a_failure_there_is_raised_here(self, make_corpus, tmp_path, executor):
        pattern = make_corpus([3])
        (tmp_path / "file").touch()
        with pytest.raises(OSError, match="file"):
            verify_shards(pattern, repair=str(tmp_path / "file"), executor=executor)
