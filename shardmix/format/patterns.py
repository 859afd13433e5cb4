"""What a user writes for shards → the paths and globs that it stands for, and the local files that a glob matches.

    train-{00000..00127}.tfrecord   a range, filled with zeros to the width of its ends; {0..90..10} has a step
    {train,valid}-*.tfrecord        alternatives; braces nest; braces without a comma or a range stand for themselves
    train@128                       train-00000-of-00128 … train-00127-of-00128
    *  ?  [0-9]  **                 as in Python's glob; ** crosses folders, links to folders too, but goes round no circle

Rule 1: hidden files, and files in hidden folders, are never matched, so that no index and no half-written file ever is.
Rule 2: only files are matched, and never a text index (.idx, .tfindex) that lies beside its shard.
Rule 3: purely textual expansion is kept apart from looking at the disk.
"""

from __future__ import annotations

import difflib
import fnmatch
import itertools
import math
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePath

# What makes a file of a folder a shard when only the folder is given.
SHARD_MARKS = (".tfrecord", ".tfrecords", ".tfrec")
TEXT_INDEX_ENDINGS = (".idx", ".tfindex")
MAX_EXPANSION = 10_000_000
MAX_NESTING = 50

_SHARDED = re.compile(r"(.*)@([0-9]+)", re.DOTALL)
_RANGE = re.compile(r"([0-9]+)\.\.([0-9]+)(?:\.\.([0-9]+))?")
_NUMBERED = re.compile(r"[0-9]-of-[0-9]")
_WILDCARDS = re.compile(r"[*?[]")


def has_wildcards(pattern: str) -> bool:
    """Whether a pattern has to be matched against names."""
    return _WILDCARDS.search(pattern) is not None


def expand_pattern(pattern: str) -> list[str]:
    """The paths and globs that a pattern stands for.

    >>> expand_pattern("t-{8..10}")
    ['t-8', 't-9', 't-10']
    >>> expand_pattern("{a,b}@2")
    ['a-00000-of-00002', 'a-00001-of-00002', 'b-00000-of-00002', 'b-00001-of-00002']

    Raises ValueError for braces that nest too deeply, or stand for too many.
    """
    depth = max(itertools.accumulate((character == "{") - (character == "}") for character in pattern), default=0)
    if depth > MAX_NESTING:
        raise ValueError(f"{pattern[:60]!r}…: its braces nest {depth} deep, and at most {MAX_NESTING} are taken; list the shards")
    return [path for expanded in _expand_braces(pattern) for path in _expand_sharded(expanded)]


def _expand_sharded(pattern: str) -> list[str]:
    match = _SHARDED.fullmatch(pattern)
    if match is None:
        return [pattern]
    name, number = match[1], int(match[2])
    if not 0 < number <= MAX_EXPANSION:
        raise ValueError(f"{pattern!r}: the number of shards after @ must be 1 to {MAX_EXPANSION}, got {number}")
    return [f"{name}-{shard:05d}-of-{number:05d}" for shard in range(number)]


def _expand_braces(pattern: str) -> list[str]:
    pieces: list[list[str]] = []
    position = 0
    for start, stop, alternatives in _find_braces(pattern):
        pieces += [[pattern[position:start]], alternatives]
        position = stop
    pieces.append([pattern[position:]])
    _check_expansion(pattern, math.prod(map(len, pieces)))
    return ["".join(parts) for parts in itertools.product(*pieces)]


def _find_braces(pattern: str) -> Iterator[tuple[int, int, list[str]]]:
    """(start, stop, alternatives) of the outermost braces that are a range or a list."""
    position = 0
    while (start := pattern.find("{", position)) >= 0:
        parts, stop = _split_brace(pattern, start)
        alternatives = _alternatives(pattern, parts)
        if alternatives:
            yield start, stop, alternatives
        position = stop if alternatives else start + 1


def _split_brace(pattern: str, start: int) -> tuple[list[str], int]:
    """What stands between the commas of the brace that opens at `start`, and where it ends; no parts if it never closes."""
    depth, parts, begin = 0, [], start + 1
    for position in range(start, len(pattern)):
        character = pattern[position]
        depth += (character == "{") - (character == "}")
        if depth == 0 or (depth == 1 and character == ","):
            parts.append(pattern[begin:position])
            begin = position + 1
        if depth == 0:
            return parts, begin
    return [], start + 1


def _alternatives(pattern: str, parts: list[str]) -> list[str]:
    if len(parts) > 1:
        return [expanded for part in parts for expanded in _expand_braces(part)]
    match = _RANGE.fullmatch(parts[0]) if parts else None
    if match is None:
        return []
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0:
        raise ValueError(f"{pattern!r}: the step of {{{parts[0]}}} must not be 0")
    is_padded = any(len(end) > 1 and end.startswith("0") for end in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if is_padded else 1
    _check_expansion(pattern, abs(last - first) // step + 1)
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{number:0{width}d}" for number in numbers]


def _check_expansion(pattern: str, number: int) -> None:
    if number > MAX_EXPANSION:
        raise ValueError(f"{pattern!r}: stands for {number} shards, and at most {MAX_EXPANSION} are taken; narrow its ranges")


def match_files(pattern: str) -> list[str]:
    """The visible files that a local glob matches, in no particular order.

    Raises OSError for a folder that may not be listed: what it holds would be missing.
    """
    folder, name = os.path.split(pattern)
    if name == "**":
        folder, name = pattern, "*"
    matches = re.compile(fnmatch.translate(name)).match
    found: dict[str, None] = {}
    for one in _match_folders(folder) if has_wildcards(folder) else [folder]:
        found.update(dict.fromkeys(os.path.join(one, name) for name in _file_names(one) if matches(name)))
    return list(found)


def _match_folders(pattern: str) -> list[str]:
    """The folders that a glob matches; hidden ones only where their very name is given."""
    folders = [""]
    for part in PurePath(pattern).parts:
        if part == "**":
            folders = [inner for folder in folders for inner in _walk_folders(folder)]
        elif has_wildcards(part):
            matches = re.compile(fnmatch.translate(part)).match
            folders = [os.path.join(folder, name) for folder in folders for name in _folder_names(folder) if matches(name)]
        else:
            folders = [os.path.join(folder, part) for folder in folders]
    return folders


def _walk_folders(top: str) -> Iterator[str]:
    """A folder and the visible ones in it, at any depth, but for links back to a folder that they are in."""
    pending: list[tuple[str, tuple[tuple[int, int], ...]]] = [(top, ())]
    while pending:
        folder, above = pending.pop()
        with suppress(FileNotFoundError, NotADirectoryError):
            status = os.stat(folder or ".")
            identity = status.st_dev, status.st_ino
            if identity not in above:
                yield folder
                pending += [(os.path.join(folder, name), (*above, identity)) for name in _folder_names(folder)]


def folder_shards(folder: str) -> list[str]:
    """The files of a folder that are shards by their names; not those of the folders in it."""
    return [os.path.join(folder, name) for name in _file_names(folder) if is_shard_name(name)]


def left_out_names(folder: str) -> list[str]:
    """The visible files of a folder that only a glob takes, sorted; first those that have the number of a shard."""
    names = [name for name in _file_names(folder) if not is_shard_name(name)]
    return sorted(names, key=lambda name: (_NUMBERED.search(name) is None, name))


def is_shard_name(name: str) -> bool:
    """Whether a file of this name is a shard when only its folder is given."""
    return is_data_name(name) and any(mark in name for mark in SHARD_MARKS)


def is_data_name(name: str) -> bool:
    """Whether a glob may match a file of this name."""
    return not name.startswith(".") and not name.endswith(TEXT_INDEX_ENDINGS)


def _file_names(folder: str) -> list[str]:
    """The files of a folder that a glob may match. A link that leads nowhere is one: it is for the reader to fail on."""
    entries = _visible_entries(folder)
    return [entry.name for entry in entries if is_data_name(entry.name) and (_is_file(entry) or not os.path.exists(entry.path))]


def _folder_names(folder: str) -> list[str]:
    return [entry.name for entry in _visible_entries(folder) if os.path.isdir(entry.path)]


def _visible_entries(folder: str) -> list[os.DirEntry[str]]:
    """What is in a folder; nothing where there is none."""
    try:
        with os.scandir(folder or ".") as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link in a circle, or into a folder that may not be entered
        return False


def describe_near(path: str) -> str:
    """What exists near a local path or glob that leads nowhere: the end of an error's text.

    Raises PermissionError and the like where the operating system does not let us see whether it exists.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path)
    folder = os.path.dirname(os.path.abspath(path))
    wanted = os.path.basename(path)
    while not os.path.isdir(folder):
        folder, wanted = os.path.split(folder)
    try:
        names = sorted(itertools.islice((name for name in os.listdir(folder) if not name.startswith(".")), 10_000))
    except OSError as error:
        return f"folder {folder!r} cannot be listed ({error.strerror})"
    return f"folder {folder!r} holds {describe_names(names, wanted)}"


def suggest_glob(folder: str) -> str:
    """The end of a glob for a folder that has no shard by its name: what lies deeper is behind `**`."""
    return "**" if _folder_names(folder) else "*"


def describe_names(names: list[str], wanted: str) -> str:
    """A few of the names, those like `wanted` first."""
    if not names:
        return "no visible files"
    close = difflib.get_close_matches(wanted, names[:1000], n=3, cutoff=0.3) or names[:3]
    more = f" and {len(names) - len(close)} more" if len(names) > len(close) else ""
    return ", ".join(map(repr, close)) + more
