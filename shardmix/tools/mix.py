"""`shardmix mix`: run the real loader over a corpus, and measure how its batches mix.

Rule 1: nothing is decoded but the key; records need not be Examples where no key is asked for.
Rule 2: settings that are given stand; with --recommend those that are not are proposed for the memory, and then measured.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from ..format.corpus import Corpus
from ..runtime.needs import RunSettings
from . import options
from .findings import Finding
from .plot import check_plot, plot_mixing
from .recommend import Recommendation, format_recommendation, recommend_settings
from .survey import survey_shards
from .texts import show

if TYPE_CHECKING:
    from ..runtime.measure import MixingReport

DEFAULT_MEMORY = 2_000_000_000
NEARLY_PERFECT = 0.95
_REMEDY = (
    "a larger cycle_length helps most, then a larger shuffle_buffer_size; to shuffle the files themselves, once: "
    "shardmix reshard PATTERN OUT --shuffle"
)


class MixRun(NamedTuple):
    """What `measure_shards` did."""

    report: MixingReport
    settings: RunSettings  # as they were measured
    recommendation: Recommendation | None
    findings: tuple[Finding, ...]


def measure_shards(
    shards: str | Sequence[str] | Corpus,
    settings: RunSettings,
    *,
    key: str | None = None,
    seed: int = 0,
    max_batches: int | None = None,
    memory_bytes: int | None = None,
    index: str = "auto",
) -> MixRun:
    """Measure the mixing of a corpus under some settings; `memory_bytes`: propose those that are None, for so much on a rank.

        measure_shards("corpus/*.tfrecord", RunSettings(batch_size=256), key="label").report

    Raises ValueError where there are no records, or the key is not one value a record.
    """
    survey = survey_shards(shards, index=index)
    recommendation = None
    if memory_bytes is not None:
        recommendation = recommend_settings(survey.opened, memory_bytes, settings)
        buffer = settings.shuffle_buffer_size
        settings = settings._replace(
            lanes=recommendation.lanes,
            cycle_length=recommendation.cycle_length,
            shuffle_buffer_size=recommendation.shuffle_buffer_size if buffer is None else buffer,
        )
    report = _measure(survey.opened.corpus, settings, key, seed, max_batches, index)
    return MixRun(report, settings, recommendation, survey.findings)


def _measure(
    corpus: Corpus, settings: RunSettings, key: str | None, seed: int, max_batches: int | None, index: str
) -> MixingReport:
    from ..runtime.loader import MixLoader
    from ..runtime.measure import measure_mixing
    from .payloads import PayloadSizes, ShardDataset

    chosen = {
        name: getattr(settings, name)
        for name in ("shuffle_buffer_size", "lanes", "cycle_length")
        if getattr(settings, name) is not None
    }
    common: dict[str, Any] = {"seed": seed, "index": index, "on_corrupt": "skip", "with_source": True, **chosen}
    if settings.world_size > 1:
        common |= {"rank": 0, "world_size": settings.world_size}
    shards: Any = corpus
    dataset = PayloadSizes(shards, **common) if key is None else ShardDataset(shards, features=[key], **common)
    with warnings.catch_warnings():  # the number of workers is the user's to choose, and is part of what is measured
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        loader = MixLoader(dataset, settings.batch_size, num_workers=settings.num_workers)
        return measure_mixing(loader, key, max_batches=max_batches)


@click.command()
@options.patterns
@options.batch_size
@options.num_workers
@options.shuffle_buffer_size
@options.lanes
@options.cycle_length
@click.option("--world-size", type=click.IntRange(1), default=1, show_default=True, help="Ranks; the first is measured.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--key", metavar="FEATURE", help="Count the values of this feature; is the corpus sorted by it?")
@click.option("--batches", "max_batches", type=click.IntRange(1), metavar="N", help="Stop after so many. [a whole epoch]")
@click.option("--plot", metavar="FILE.png", help="Draw what each batch is made of (needs matplotlib).")
@click.option("--recommend", is_flag=True, help="Propose the settings that are not given, and measure those.")
@click.option("--memory", type=options.SIZE, metavar="SIZE", help="For --recommend: memory of each rank. [2GB]")
@options.index
@options.as_json
def command(
    patterns: tuple[str, ...],
    seed: int,
    key: str | None,
    max_batches: int | None,
    plot: str | None,
    recommend: bool,
    memory: int | None,
    index: str,
    as_json: bool,
    **settings: Any,
) -> int:
    """Run the loader and measure how its batches mix files, lanes, workers, labels; beside a perfect shuffle and a plain loader.

    \b
    shardmix mix 'corpus/train-*.tfrecord' --batch-size 256 --key label
    shardmix mix corpus --key label --plot mixing.png
    shardmix mix corpus --recommend --memory 2GB --batch-size 512
    """
    if memory is not None and not recommend:
        raise click.UsageError("--memory is for --recommend")
    if plot is not None:
        check_plot(plot)
    memory_bytes = (memory or DEFAULT_MEMORY) if recommend else None
    run = measure_shards(
        patterns,
        RunSettings(**settings),
        key=key,
        seed=seed,
        max_batches=max_batches,
        memory_bytes=memory_bytes,
        index=index,
    )
    if plot is not None:
        plot_mixing(run.report, plot)
    return show(as_data(run), format_run(run, memory_bytes), run.findings, as_json=as_json)


def format_run(run: MixRun, memory_bytes: int | None) -> list[str]:
    """The same for people."""
    lines = str(run.report).splitlines()
    if run.recommendation is not None and memory_bytes is not None:
        lines += ["", *format_recommendation(run.recommendation, run.settings, memory_bytes)]
    order = run.report.key_order
    if order is not None and order.is_sorted:
        lines += ["", *format_advice(run)]
    return lines


def format_advice(run: MixRun) -> list[str]:
    """What helps where the corpus is sorted by the key."""
    labels, perfect = run.report.loader.labels, run.report.perfect.labels
    if labels is None:
        return []
    sorted_by = f"warning: the corpus looks sorted by {run.report.key!r}"
    if perfect is None:
        return [f"{sorted_by}; {_REMEDY}"]
    held = f"a batch holds {labels.mean:.1f} values of it, {perfect.mean:.1f} in a perfect shuffle"
    if labels.mean >= NEARLY_PERFECT * perfect.mean:
        return [f"{sorted_by}; these settings make up for it: {held}"]
    return [f"{sorted_by}; {held}", _REMEDY]


def as_data(run: MixRun) -> dict[str, Any]:
    """The same for JSON."""
    found = run.recommendation
    recommended = None if found is None else {**found._asdict(), "needs": found.needs._asdict(), "warnings": list(found.warnings)}
    return {**run.report.as_dict(), "settings": run.settings._asdict(), "recommendation": recommended}
