"""The shards that patterns name, and what of them can be used: nothing stops at the first bad file.

Rule 1: a file that cannot be read, is no shard or is cut off is a finding; the rest is indexed and used.
Rule 2: an empty file is a shard of no records, and no finding.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from ..format.corpus import Corpus, find_shards
from ..format.index import Index, open_index
from ..format.progress import ProgressLike
from ..format.storage import is_remote
from .findings import Finding


class Survey(NamedTuple):
    """The index of the shards that can be read, and what is wrong with the others (or with parts of them)."""

    opened: Index
    findings: tuple[Finding, ...]


def survey_shards(
    shards: str | Sequence[str] | Corpus,
    *,
    index: str = "auto",
    compression_type: str = "auto",
    executor: Executor | None = None,
    progress: ProgressLike = None,
) -> Survey:
    """Find and index shards.

        survey = survey_shards("corpus/*")
        survey.opened.num_records, survey.findings

    Raises FileNotFoundError where nothing matches, OSError when no shard at all can be read.
    """
    corpus, unreadable = split_readable(find_shards(shards))
    opened = open_index(
        corpus, on_corrupt="skip", index=index, compression_type=compression_type, executor=executor, progress=progress
    )
    return Survey(opened, tuple(sorted((*unreadable, *map(Finding.of_damage, opened.damages)))))


def split_readable(corpus: Corpus) -> tuple[Corpus, tuple[Finding, ...]]:
    """The shards that can be opened, and a finding for each other. Raises OSError, that of the first, when none can."""
    readable: list[str] = []
    findings: list[Finding] = []
    first_error: OSError | None = None
    for path in corpus:
        try:
            if not is_remote(path):
                with open(path, "rb", buffering=0):
                    pass
        except OSError as error:
            findings.append(Finding.of_os_error(path, error))
            first_error = first_error or error
        else:
            readable.append(path)
    if first_error is not None and not readable:
        raise first_error
    return (Corpus.of_paths(readable) if findings else corpus), tuple(findings)


def size_of(path: str) -> int:
    """Bytes of a local file on disk; 0 where that cannot be asked."""
    return os.path.getsize(path) if not is_remote(path) and os.path.isfile(path) else 0
