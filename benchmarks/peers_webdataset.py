"""webdataset: the same records converted to tar files, one member an array, all scalars of a kind in one member.

That is the layout that costs it least: each member has a header of 512 bytes. The columns are made from a batch's bytes at once.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset

from benchmarks.workload import BATCH_SIZE, BUFFER_SIZE, Batch, Workload
from shardmix import read_examples

CHECKS = "headers of the tar"
DECODES = True
NUM_WORKERS = 2

Members = dict[str, list[str]]  # member of a sample → the features in it


def plan_members(workload: Workload) -> Members:
    """An array or bytes value has a member of its own, scalars share one for each dtype."""
    members: Members = {}
    for name, feature in sorted(workload.features.items()):
        is_scalar = feature.shape == () and feature.dtype != "bytes"
        members.setdefault(f"{feature.dtype}.bin" if is_scalar else f"{name}.bin", []).append(name)
    return members


def convert(workload: Workload) -> list[str]:
    """The tar files, written when they are not there yet."""
    members, folder = plan_members(workload), workload.folder / "tar"
    if not folder.exists():
        unfinished = workload.folder / "tar.unfinished"
        unfinished.mkdir(exist_ok=True)
        for path in workload.paths:
            with tarfile.open(unfinished / f"{Path(path).stem}.tar", "w") as tar:
                for number, example in enumerate(read_examples(path, workload.features)):
                    for member, names in members.items():
                        data = b"".join(bytes(memoryview(example[name])) for name in names)
                        info = tarfile.TarInfo(f"{number:08d}.{member}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
        unfinished.rename(folder)
    return sorted(map(str, folder.glob("*.tar")))


def collate(members: Members, features: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns of the samples."""
    batch: dict[str, Any] = {}
    for member, names in members.items():
        values = [sample[member] for sample in samples]
        feature = features[names[0]]
        if feature.dtype == "bytes":
            batch[names[0]] = values
            continue
        table = np.frombuffer(bytearray().join(values), feature.dtype).reshape(len(values), -1)
        if len(names) == 1:
            batch[names[0]] = torch.from_numpy(table.reshape(len(values), *feature.shape))
        else:
            batch |= {name: torch.from_numpy(column) for name, column in zip(names, table.T.copy(), strict=True)}
    return batch


class Peer:
    def __init__(self, workload: Workload) -> None:
        members, paths = plan_members(workload), convert(workload)
        dataset = webdataset.WebDataset(paths, shardshuffle=len(paths)).shuffle(BUFFER_SIZE // NUM_WORKERS)
        dataset = dataset.batched(BATCH_SIZE, collation_fn=partial(collate, members, workload.features))
        self.loader = webdataset.WebLoader(dataset, batch_size=None, num_workers=NUM_WORKERS, persistent_workers=True)

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def stats(self) -> dict[str, Any]:
        return {}


def describe() -> str:
    return f"webdataset {version('webdataset')}, torch {torch.__version__}"
