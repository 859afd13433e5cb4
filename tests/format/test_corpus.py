"""Shard patterns: every form, order, names, and errors that say what there is instead."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shardmix.format.corpus import Corpus, find_shards

ROOT = Path(__file__).parents[2]
FILES = (
    "train-00000.tfrecord",
    "train-00001.tfrecord",
    "train-00002.tfrecord",
    "valid-00000.tfrecord",
    "deep/a/x.tfrecord",
    "deep/b/x.tfrecord",
    "deep/.hidden/x.tfrecord",
    "sharded-00000-of-00002",
    "sharded-00001-of-00002",
    "notes.txt",
    "other.tfrecords.gz",
    "short.tfrec",
    ".train-00009.tfrecord",
    ".index-0123456789abcdef.shardmix",
    "train-00000.tfrecord.idx",
    "train-00001.tfindex",
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for name in FILES:
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "corpus"


def names(shards):
    corpus = find_shards(shards)
    return [corpus.name(shard) for shard in range(len(corpus))]


class TestPatterns:
    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("corpus/train-00001.tfrecord", ["train-00001.tfrecord"]),
            ("corpus/train-*", ["train-00000.tfrecord", "train-00001.tfrecord", "train-00002.tfrecord"]),
            ("corpus/train-0000[12].*", ["train-00001.tfrecord", "train-00002.tfrecord"]),
            ("corpus/?????-00000.tfrecord", ["train-00000.tfrecord", "valid-00000.tfrecord"]),
            ("corpus/train-{00001..00002}.tfrecord", ["train-00001.tfrecord", "train-00002.tfrecord"]),
            ("corpus/train-{00002..00000..2}.tfrecord", ["train-00000.tfrecord", "train-00002.tfrecord"]),
            ("corpus/{valid,train}-00000.tfrecord", ["train-00000.tfrecord", "valid-00000.tfrecord"]),
            ("corpus/{valid,train}-*0.tfrecord", ["train-00000.tfrecord", "valid-00000.tfrecord"]),
            ("corpus/{train-{00000,00002},v*}.*", ["train-00000.tfrecord", "train-00002.tfrecord", "valid-00000.tfrecord"]),
            ("corpus/sharded@2", ["sharded-00000-of-00002", "sharded-00001-of-00002"]),
            ("corpus/deep/*/x.tfrecord", ["a/x.tfrecord", "b/x.tfrecord"]),
            ("corpus/deep/**/*.tfrecord", ["a/x.tfrecord", "b/x.tfrecord"]),
            ("corpus/deep/**", ["a/x.tfrecord", "b/x.tfrecord"]),
            ("corpus/**/x.tfrecord", ["a/x.tfrecord", "b/x.tfrecord"]),
            ("corpus/deep/.hidden/*", ["x.tfrecord"]),
            (["corpus/valid-*", Path("corpus/train-00000.tfrecord")], ["train-00000.tfrecord", "valid-00000.tfrecord"]),
            (["corpus/deep/a", "corpus/deep/b"], ["a/x.tfrecord", "b/x.tfrecord"]),
        ],
    )
    def test_form(self, folder, pattern, found):
        assert names(pattern) == found

    @pytest.mark.parametrize("pattern", ["corpus", "corpus/", "./corpus/.", Path("corpus")])
    def test_folder_is_its_visible_tfrecord_files(self, folder, pattern):
        marked = ["other.tfrecords.gz", "short.tfrec", "train-00000.tfrecord", "train-00001.tfrecord"]
        assert names(pattern) == [*marked, "train-00002.tfrecord", "valid-00000.tfrecord"]

    def test_star_matches_no_folder_no_hidden_file_no_index(self, folder):
        assert names("corpus/*") == sorted(
            name for name in FILES if "/" not in name and not name.startswith(".") and not name.endswith(("idx", "tfindex"))
        )

    @pytest.mark.parametrize("pattern", ["corpus/.*", "corpus/.train*", "corpus/.index*"])
    def test_hidden_files_are_not_matched_even_when_the_glob_begins_with_a_dot(self, folder, pattern):
        with pytest.raises(FileNotFoundError, match="no shard matches"):
            find_shards(pattern)

    def test_hidden_file_that_is_named_is_taken(self, folder):
        assert names("corpus/.train-00009.tfrecord") == [".train-00009.tfrecord"]

    def test_own_index_that_is_named_is_refused(self, folder):
        with pytest.raises(ValueError, match="an index of shardmix, not a shard"):
            find_shards("corpus/.index-0123456789abcdef.shardmix")

    @pytest.mark.parametrize("name", ["odd[1].tfrecord", "a{0..3}", "name@128", "tab\tand\nline", "ü日.tfrecord", "b\udcff"])
    def test_existing_file_is_taken_under_its_very_name(self, folder, name):
        (folder / name).write_bytes(b"")
        corpus = find_shards(folder / name)
        assert [corpus.name(0), corpus.path(0)] == [name, str(folder / name)]

    def test_home_and_file_urls(self, folder, monkeypatch):
        monkeypatch.setenv("HOME", str(folder))
        assert names("~/train-00000.*") == ["train-00000.tfrecord"]
        assert names(f"file://{folder}/train-00000.*") == ["train-00000.tfrecord"]

    def test_dangling_link_is_listed_so_that_opening_it_fails(self, folder):
        (folder / "train-00003.tfrecord").symlink_to("nowhere")
        assert names("corpus/train-0000[23]*") == ["train-00002.tfrecord", "train-00003.tfrecord"]
        with pytest.raises(FileNotFoundError, match="No such file"):
            find_shards("corpus/train-00003.tfrecord")


class TestErrors:
    @pytest.mark.parametrize("shards", ["a\0b", ["corpus/*", "a\0b"], "\ud800", "s3://bucket/\0"])
    def test_text_that_is_no_path(self, folder, shards):
        with pytest.raises(ValueError, match="holds a character that no path has"):
            find_shards(shards)

    def test_no_match_names_what_is_near(self, folder):
        with pytest.raises(FileNotFoundError, match=r"'corpus/trian-\*': no shard matches; folder '.*corpus' holds 'train-"):
            find_shards("corpus/trian-*")

    def test_missing_file_names_what_is_near(self, folder):
        with pytest.raises(FileNotFoundError, match=r"'corpus/train-0003.tfrecord': no such shard; .* holds 'train-0000"):
            find_shards("corpus/train-0003.tfrecord")

    @pytest.mark.skipif(not hasattr(os, "setuid") or os.getuid() != 0, reason="needs root to become another user")
    def test_folder_that_may_not_be_entered_is_a_permission_error(self, folder):
        folder.chmod(0o700)
        code = f"from shardmix.format.corpus import find_shards; import os; os.setuid(65534); find_shards({str(folder / 'x')!r})"
        run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
        assert "PermissionError: [Errno 13] Permission denied" in run.stderr

    def test_missing_folder_names_the_one_above(self, folder):
        with pytest.raises(FileNotFoundError, match=rf"folder '{folder.parent}' holds 'corpus'"):
            find_shards("corpsu/deep/*.tfrecord")

    def test_missing_shards_of_a_range_are_counted(self, folder):
        with pytest.raises(FileNotFoundError, match="3 of its 6 shards are missing, the first is 'corpus/train-00003.tfrecord'"):
            find_shards("corpus/train-{00000..00005}.tfrecord")

    def test_each_alternative_must_match(self, folder):
        with pytest.raises(FileNotFoundError, match=r"'corpus/test-\*': no shard matches"):
            find_shards("corpus/{train,test}-*")

    def test_folder_without_shards_names_its_files(self, folder):
        (folder / "empty").mkdir()
        (folder / "empty" / "data.bin").write_bytes(b"")
        with pytest.raises(FileNotFoundError, match="holds 'data.bin'; give a glob, such as '.*empty/\\*'"):
            find_shards("corpus/empty")

    def test_folder_of_folders_is_told_the_glob_that_reaches_them(self, folder):
        with pytest.raises(FileNotFoundError, match="holds 'a', 'b'; give a glob, such as '.*deep/\\*\\*'"):
            find_shards("corpus/deep")
        assert names("corpus/deep/**") == ["a/x.tfrecord", "b/x.tfrecord"]

    @pytest.mark.parametrize(
        "shards",
        [
            ["corpus/train-*", "corpus/train-00000.tfrecord"],
            ["corpus/train-00000.tfrecord", "./corpus/../corpus/train-00000.tfrecord"],
            "corpus/train-0000{0,0}.tfrecord",
        ],
    )
    def test_duplicate_is_named(self, folder, shards):
        with pytest.raises(ValueError, match=r"shard '.*corpus/train-00000.tfrecord' is there twice"):
            find_shards(shards)

    @pytest.mark.parametrize("shards", [b"corpus", 3, None, [3], [b"corpus"]])
    def test_wrong_type(self, shards):
        with pytest.raises(TypeError, match="shards: .*got (bytes|int|NoneType)"):
            find_shards(shards)

    @pytest.mark.parametrize("shards", [[], "", [""]])
    def test_nothing_given(self, shards):
        with pytest.raises(ValueError, match="shards: .*empty"):
            find_shards(shards)

    def test_pipe_is_refused(self, folder):
        os.mkfifo(folder / "pipe.tfrecord")
        with pytest.raises(ValueError, match="neither a file nor a folder"):
            find_shards("corpus/pipe.tfrecord")


class TestCorpus:
    def test_listing_order_does_not_matter(self, folder, monkeypatch):
        expected = names("corpus/**")
        scandir = os.scandir

        class Shuffled:
            def __init__(self, path):
                with scandir(path) as entries:
                    self.entries = list(entries)
                random.Random(len(self.entries)).shuffle(self.entries)

            def __iter__(self):
                return iter(self.entries)

            def __enter__(self):
                return self

            def __exit__(self, *error):
                return None

        monkeypatch.setattr("shardmix.format.patterns.os.scandir", Shuffled)
        assert names("corpus/**") == expected
        assert names([folder / name for name in reversed(expected)]) == expected

    def test_sorted_by_full_path(self):
        corpus = Corpus.of_paths(["/d/b", "/d/a/z", "/d/a-b", "/d/B", "/d/ä"])
        assert list(corpus) == ["/d/B", "/d/a-b", "/d/a/z", "/d/b", "/d/ä"]

    @pytest.mark.parametrize(
        ("paths", "parent", "name"),
        [
            (["/data/x/a"], "/data/x", "a"),
            (["/data/x/a", "/data/x/ab"], "/data/x", "a"),
            (["/data/x/a", "/data/y/a"], "/data", "x/a"),
            (["/data/xa/a", "/data/xb/a"], "/data", "xa/a"),
            (["/a", "/b/c"], "/", "a"),
            (["s3://bucket/x/a", "s3://bucket/y/a"], "s3://bucket", "x/a"),
            (["s3://one/a", "s3://two/a"], "s3://", "one/a"),
            (["/data/a", "s3://two/a"], "", "/data/a"),
        ],
    )
    def test_names_lie_below_the_common_parent(self, paths, parent, name):
        corpus = Corpus.of_paths(paths)
        assert (corpus.parent, corpus.name(0), list(corpus)) == (parent, name, sorted(paths))

    def test_key_depends_on_names_alone(self):
        key = Corpus.of_paths(["/a/x", "/a/y"]).key()
        assert key == Corpus.of_paths(["/b/c/x", "/b/c/y"]).key()
        assert key != Corpus.of_paths(["/a/x", "/a/z"]).key()
        assert Corpus.of_paths(["/a/ab", "/a/c"]).key() != Corpus.of_paths(["/a/a", "/a/bc"]).key()

    def test_pickles_whole(self):
        corpus = Corpus.of_paths(["/a/x", "/a/y"])
        assert list(pickle.loads(pickle.dumps(corpus))) == list(corpus)

    def test_million_paths_pickle_as_two_buffers(self):
        ends = np.arange(1_000_001) * 3
        corpus = Corpus("/data/", np.full(3_000_000, ord("x"), np.uint8), ends)
        assert len(pickle.dumps(corpus)) < 3_000_000 + ends.nbytes + 1000
        assert corpus.path(999_999) == "/data/xxx"

    @pytest.mark.parametrize("shard", [-1, 2])
    def test_number_out_of_range(self, shard):
        with pytest.raises(IndexError, match=f"shard {shard}: the corpus has shards 0 to 1"):
            Corpus.of_paths(["/a/x", "/a/y"]).path(shard)


class TestRemote:
    @pytest.fixture
    def bucket(self):
        fsspec = pytest.importorskip("fsspec")
        filesystem = fsspec.filesystem("memory")
        for name in FILES:
            filesystem.pipe(f"/bucket/{name}", b"")
        yield filesystem
        filesystem.rm("/bucket", recursive=True)

    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("memory://bucket/train-*", ["train-00000.tfrecord", "train-00001.tfrecord", "train-00002.tfrecord"]),
            ("memory://bucket/sharded@2", ["sharded-00000-of-00002", "sharded-00001-of-00002"]),
            ("memory://bucket/{valid,train}-00000.tfrecord", ["train-00000.tfrecord", "valid-00000.tfrecord"]),
            ("memory://bucket/deep/**/*.tfrecord", ["a/x.tfrecord", "b/x.tfrecord"]),
            ("memory://bucket/valid-00000.tfrecord", ["valid-00000.tfrecord"]),
            (["memory://bucket/deep/a", "memory://bucket/deep/b/"], ["a/x.tfrecord", "b/x.tfrecord"]),
        ],
    )
    def test_form(self, bucket, pattern, found):
        corpus = find_shards(pattern)
        assert names(pattern) == found
        assert corpus.is_remote
        assert corpus.path(0).startswith("memory://")

    def test_folder(self, bucket):
        assert names("memory://bucket") == names("memory://bucket/{*.tfrecord,*.tfrecords.gz,*.tfrec}")

    def test_no_match_names_what_is_near(self, bucket):
        with pytest.raises(FileNotFoundError, match=r"'memory://bucket/trian-\*': no shard matches; folder .* holds 'train-"):
            find_shards("memory://bucket/trian-*")
        with pytest.raises(FileNotFoundError, match=r"'memory://bucket/valid-1': no such shard; folder .* holds 'valid-"):
            find_shards("memory://bucket/valid-1")

    def test_mixed_with_local(self, bucket, folder):
        corpus = find_shards(["memory://bucket/train-*", "corpus/valid-*"])
        assert (len(corpus), corpus.parent, corpus.is_remote) == (4, "", True)
