"""URL patterns → the URLs of the shards, through fsspec.

Rule 1: one listing a glob or folder. A URL that is named (by a list, braces, `name@128`) is looked up by itself, many at a time.
Rule 2: the rules of names are those of local files (patterns.py).
Rule 3: of a chained URL, `simplecache::s3://bucket/*.tfrecord`, the last link is listed, and the others go before each shard.

Imported only when a pattern is a URL.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .patterns import describe_names, expand_pattern, has_wildcards, is_data_name, is_shard_name
from .remote import resolve_url

LOOKUPS_AT_A_TIME = 16


def find_remote(patterns: list[str]) -> list[str]:
    """The URLs of all shards that the patterns stand for.

    Raises FileNotFoundError where there is none, ImportError without fsspec or what it needs for the protocol, and whatever the
    file system raises.
    """
    urls = [url for pattern in patterns for url in expand_pattern(pattern)]
    named = [url for url in urls if not has_wildcards(url)]
    found = [shard for url in urls if has_wildcards(url) for shard in _match_remote(url)]
    with ThreadPoolExecutor(max(1, min(LOOKUPS_AT_A_TIME, len(named)))) as pool:
        for shards in pool.map(_take_url, named):
            found += shards
    return found


def _open_filesystem(url: str) -> tuple[Any, str, str]:
    """(file system, path in it, what goes before its own URLs) of a URL."""
    chain, _, link = url.rpartition("::")
    return *resolve_url(link), f"{chain}::" if chain else ""


def _match_remote(url: str) -> list[str]:
    filesystem, path, chain = _open_filesystem(url)
    matched = [
        name for name, facts in filesystem.glob(path, detail=True).items() if facts["type"] == "file" and _is_visible(name, path)
    ]
    if not matched:
        raise FileNotFoundError(f"{url!r}: no shard matches; {_describe_folder(filesystem, path)}")
    return [chain + filesystem.unstrip_protocol(name) for name in matched]


def _take_url(url: str) -> list[str]:
    """A URL that is named: a shard, or the shards of a folder."""
    filesystem, path, chain = _open_filesystem(url)
    try:
        facts = filesystem.info(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"{url!r}: no such shard; {_describe_folder(filesystem, path)}") from None
    if facts["type"] != "directory":
        return [chain + filesystem.unstrip_protocol(path)]
    names = [entry["name"] for entry in filesystem.ls(path, detail=True) if entry["type"] == "file"]
    shards = [chain + filesystem.unstrip_protocol(name) for name in names if is_shard_name(_last_part(name))]
    if not shards:
        raise FileNotFoundError(
            f"{url!r}: no visible file of this folder has .tfrecord, .tfrecords or .tfrec in its name; it holds "
            f"{describe_names(sorted(map(_last_part, names)), '')}; give a glob, such as {url.rstrip('/') + '/*'!r}"
        )
    return shards


def _is_visible(name: str, pattern: str) -> bool:
    """Whether a match is a shard by its name, and no folder that the wildcards crossed is hidden."""
    folders = name.split("/")[len(pattern.split("*")[0].split("/")) - 1 : -1]
    return is_data_name(_last_part(name)) and not any(folder.startswith(".") for folder in folders)


def _describe_folder(filesystem: Any, path: str) -> str:
    folder, _, wanted = path.rstrip("/").rpartition("/")
    try:
        names = sorted(_last_part(name) for name in filesystem.ls(folder, detail=False))
    except OSError:
        return f"folder {folder!r} does not exist or cannot be listed"
    return f"folder {folder!r} holds {describe_names([name for name in names if is_data_name(name)], wanted)}"


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]
