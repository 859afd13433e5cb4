"""Which rank this is: arguments, then the process group, then the environment, then one rank alone."""

from __future__ import annotations

import pytest
import torch.distributed

from shardmix.runtime.ranks import World, resolve_world


@pytest.fixture(autouse=True)
def _no_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a process group said: rank 2 of 3."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)


def set_environment(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def test_alone_it_is_rank_0_of_1() -> None:
    assert resolve_world() == World(0, 1)


def test_the_environment_tells_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, RANK="1", WORLD_SIZE="4")
    assert resolve_world() == World(1, 4)


@pytest.mark.usefixtures("group")
def test_the_process_group_tells_the_rank() -> None:
    assert resolve_world() == World(2, 3)


@pytest.mark.usefixtures("group")
def test_arguments_come_before_group_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, RANK="1", WORLD_SIZE="4")
    assert resolve_world(0, 2) == World(0, 2)


@pytest.mark.usefixtures("group")
def test_group_and_environment_that_agree_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, RANK="2", WORLD_SIZE="3")
    assert resolve_world() == World(2, 3)


@pytest.mark.usefixtures("group")
def test_group_against_environment_names_both(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, RANK="1", WORLD_SIZE="4")
    with pytest.raises(ValueError, match="rank 2 of 3.*RANK=1, WORLD_SIZE=4"):
        resolve_world()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize(("name", "agreeing", "other"), [("RANK", "2", "0"), ("WORLD_SIZE", "3", "2")])
def test_beside_a_group_the_environment_may_know_half(
    name: str, agreeing: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_environment(monkeypatch, **{name: agreeing})
    assert resolve_world() == World(2, 3)
    set_environment(monkeypatch, **{name: other})
    with pytest.raises(ValueError, match=f"rank 2 of 3, the environment says {name}={other};"):
        resolve_world()


@pytest.mark.parametrize(("rank", "world_size"), [(1, None), (None, 4)])
def test_half_of_the_arguments_names_both(rank: int | None, world_size: int | None) -> None:
    with pytest.raises(ValueError, match=f"rank={rank}, world_size={world_size}"):
        resolve_world(rank, world_size)


@pytest.mark.parametrize(("name", "missing"), [("RANK", "world_size"), ("WORLD_SIZE", "rank")])
def test_half_of_the_environment_says_what_is_missing(name: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, **{name: "1"})
    with pytest.raises(ValueError, match=f"RANK and WORLD_SIZE.*{missing} is missing"):
        resolve_world()


@pytest.mark.parametrize(("rank", "world_size"), [(-1, 4), (4, 4), (0, 0), (1, -1)])
def test_a_rank_out_of_range_names_both(rank: int, world_size: int) -> None:
    with pytest.raises(ValueError, match=f"rank={rank}, world_size={world_size}"):
        resolve_world(rank, world_size)


@pytest.mark.parametrize("value", [True, 1.0, "1"])
def test_ranks_are_integers(value: object) -> None:
    with pytest.raises(TypeError, match="expected an int"):
        resolve_world(value, 4)  # type: ignore[arg-type]


def test_an_environment_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, RANK="first", WORLD_SIZE="4")
    with pytest.raises(ValueError, match="RANK='first'"):
        resolve_world()
