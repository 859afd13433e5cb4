"""Parts, their permutation, the cut into tracks: equal to the model, with bounds that hold for any counts."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

from shardmix.order.tracks import Tracks, cut_tracks

pytestmark = pytest.mark.once


Piece = tuple[int, int, int]


def pieces_of_all(tracks: Tracks) -> list[list[Piece]]:
    starts = tracks.starts(np.arange(tracks.num_tracks + 1)).tolist()
    filled = [track for track, (start, stop) in enumerate(pairwise(starts)) if start < stop]
    pieces: list[list[Piece]] = [[] for _ in range(tracks.num_tracks)]
    stretch, *columns = tracks.pieces(np.array(starts)[filled], np.array(starts)[1:][filled])
    for track, *piece in zip(np.array(filled)[stretch].tolist(), *(column.tolist() for column in columns), strict=True):
        pieces[track].append(tuple(piece))
    return pieces


def pieces_of(tracks: Tracks, start: int, stop: int) -> list[Piece]:
    """The pieces of one stretch."""
    _, shard, first, last = tracks.pieces(np.array([start]), np.array([stop]))
    return list(zip(shard.tolist(), first.tolist(), last.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(8))
def test_tracks_equal_the_model(order_model: Any, seed: int) -> None:
    random = Random(seed)
    for _ in range(150):
        counts = [random.choice([0, 1, 2, random.randrange(60)]) for _ in range(random.randrange(1, 9))]
        num_tracks, epoch, shuffle = random.randrange(1, 12), random.randrange(4), random.random() < 0.8
        whole = [random.random() < 0.3 for _ in counts]
        tracks = cut_tracks(np.array(counts), num_tracks, seed, epoch, shuffle, np.array(whole))
        undivided = {shard for shard, is_whole in enumerate(whole) if is_whole}
        case = (counts, num_tracks, epoch, shuffle, whole)
        assert pieces_of_all(tracks) == order_model.tracks(counts, num_tracks, seed, epoch, shuffle, undivided), case


def test_without_shuffle_shards_lie_in_listing_order() -> None:
    tracks = cut_tracks(np.array([3, 0, 4]), num_tracks=2, seed=0, epoch=5, shuffle=False)
    assert pieces_of_all(tracks) == [[(0, 0, 3), (2, 0, 1)], [(2, 1, 4)]]


def test_a_plain_shard_is_divided_and_a_whole_one_is_not() -> None:
    tracks = cut_tracks(np.array([32, 32]), num_tracks=1, seed=0, epoch=0, whole=np.array([False, True]))
    pieces = pieces_of(tracks, 0, 64)
    assert (1, 0, 32) in pieces
    assert sorted(piece for piece in pieces if piece[0] == 0) == [(0, 8 * part, 8 * part + 8) for part in range(4)]


def test_addresses_are_the_records_of_the_pieces() -> None:
    tracks = cut_tracks(np.array([5, 0, 9, 1]), num_tracks=3, seed=1, epoch=0)
    listed = [(shard, record) for shard, first, stop in pieces_of(tracks, 0, 15) for record in range(first, stop)]
    shard, record = tracks.addresses(np.arange(15))
    assert list(zip(shard.tolist(), record.tolist(), strict=True)) == listed


def test_stretches_are_looked_up_together_as_well_as_alone() -> None:
    tracks = cut_tracks(np.array([9, 4, 0, 7]), num_tracks=3, seed=2, epoch=1)
    bounds = [(0, 1), (0, 20), (3, 11), (10, 11), (19, 20)]
    stretch, shard, first, stop = tracks.pieces(*np.array(bounds).T)
    for number, (start, end) in enumerate(bounds):
        mine = stretch == number
        together = list(zip(shard[mine].tolist(), first[mine].tolist(), stop[mine].tolist(), strict=True))
        assert together == pieces_of(tracks, start, end)


def test_track_lengths_differ_by_at_most_one_the_longer_first() -> None:
    tracks = cut_tracks(np.array([10, 1]), num_tracks=4, seed=0, epoch=0)
    assert np.diff(tracks.starts(np.arange(5))).tolist() == [3, 3, 3, 2]


def test_bounds_of_parts_are_exact_where_the_product_exceeds_64_bits() -> None:
    count = 2**62 + 12345
    tracks = cut_tracks(np.array([count]), num_tracks=4, seed=0, epoch=0)
    parts = sorted(pieces_of(tracks, 0, count))
    assert parts == [(0, count * j // 32, count * (j + 1) // 32) for j in range(32)]


def test_a_million_shards_cost_no_list_of_records() -> None:
    tracks = cut_tracks(np.full(1_000_000, 1000), num_tracks=64, seed=0, epoch=0)
    assert (len(tracks.shard), tracks.num_records) == (1_000_000, 1_000_000_000)
    assert tracks.shard.nbytes + tracks.shift.nbytes + tracks.bounds.nbytes < 21_000_000
