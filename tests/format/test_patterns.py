"""Patterns by themselves: what braces stand for, and which files a glob matches in folders of every kind."""

from __future__ import annotations

import os

import pytest

from shardmix.format.patterns import expand_pattern, match_files


class TestExpand:
    @pytest.mark.parametrize(
        ("pattern", "expanded"),
        [
            ("a", ["a"]),
            ("a{1}", ["a{1}"]),
            ("a{", ["a{"]),
            ("}a{b", ["}a{b"]),
            ("{a,}b", ["ab", "b"]),
            ("{x{1,2}}", ["{x1}", "{x2}"]),
            ("{1..3}{a,b}", ["1a", "1b", "2a", "2b", "3a", "3b"]),
            ("{08..10}", ["08", "09", "10"]),
            ("{8..10}", ["8", "9", "10"]),
            ("{3..1}", ["3", "2", "1"]),
            ("{0..10..5}", ["0", "5", "10"]),
            ("{a,b@2}@1", ["a-00000-of-00001", "b@2-00000-of-00001"]),
            ("user@host", ["user@host"]),
        ],
    )
    def test_stands_for(self, pattern, expanded):
        assert expand_pattern(pattern) == expanded

    @pytest.mark.parametrize(
        "pattern", ["{0..99999999}", "{0..9999}{0..9999}", "x@0", "x@99999999", "{0..9..0}", "{0..99999999999999999999}"]
    )
    def test_senseless_numbers_are_refused(self, pattern):
        with pytest.raises(ValueError, match=r"(?s)'.*': .*(at most|must)"):
            expand_pattern(pattern)

    @pytest.mark.parametrize("pattern", ["{a," * 2000 + "}" * 2000, "{" * 4000])
    def test_braces_that_nest_too_deeply_are_refused(self, pattern):
        with pytest.raises(ValueError, match=r"its braces nest \d+ deep, and at most 50 are taken"):
            expand_pattern(pattern)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Shards at three depths, of the names of their folders."""
    for name in ("a", "b/c", "b/d/e", ".hidden/f"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "x.tfrecord").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def matched(pattern):
    return sorted(os.path.relpath(path).removesuffix("/x.tfrecord") for path in match_files(pattern))


class TestMatch:
    @pytest.mark.parametrize(
        ("pattern", "found"),
        [
            ("**/x.tfrecord", ["a", "b/c", "b/d/e"]),
            ("**", ["a", "b/c", "b/d/e"]),
            ("**/**/x*", ["a", "b/c", "b/d/e"]),
            ("b/**/x*", ["b/c", "b/d/e"]),
            ("*/x*", ["a"]),
            ("*/*/x*", ["b/c"]),
            ("?/d/*/x*", ["b/d/e"]),
            ("b/[cd]/**/x*", ["b/c", "b/d/e"]),
            ("b/**/e/x*", ["b/d/e"]),
            ("./b/../b/**/e/x*", ["b/d/e"]),
            (".hidden/*/x*", [".hidden/f"]),
            (".hid*/*/x*", []),
            ("nowhere/**/x*", []),
            ("a/x.tfrecord/**", []),
        ],
    )
    def test_folders(self, folder, pattern, found):
        assert matched(pattern) == found
        assert matched(str(folder / pattern)) == found

    def test_links_to_folders_are_followed(self, folder):
        (folder / "a" / "link").symlink_to(folder / "b")
        assert matched("a/**/x*") == ["a", "a/link/c", "a/link/d/e"]

    def test_links_back_are_not(self, folder):
        """Two of them in one folder would make 2^40 paths before the operating system ends it."""
        for name in ("one", "two", "b/three"):
            (folder / name).symlink_to(folder)
        assert matched("b/**/x*") == ["b/c", "b/d/e", "b/three/a"]
        assert matched("**/x*") == ["a", "b/c", "b/d/e"]

    def test_a_folder_may_be_entered_by_a_link_back(self, folder):
        (folder / "a" / "up").symlink_to(folder)
        assert matched("a/up/**/x*") == ["a/up/a", "a/up/b/c", "a/up/b/d/e"]

    def test_a_link_to_itself_is_listed_so_that_opening_it_fails(self, folder):
        (folder / "a" / "self").symlink_to("self")
        assert matched("a/*") == ["a", "a/self"]
        assert matched("a/x*") == ["a"]
