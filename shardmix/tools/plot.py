"""The picture of the mixing: batches across, source files up, colour is the share of the batch that is from the file.

Rule 1: three panels on one colour scale: a plain DataLoader, MixLoader, a perfect shuffle.
Rule 2: single batches are drawn, evenly chosen where there are many: an average over batches would hide that each is a clump.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..runtime.measure import MixingReport
    from ..runtime.mixing import Mixing

SIZE_INCHES = (13.0, 4.8)
DOTS_PER_INCH = 110
TICKS = {0.001: "0.1 %", 0.003: "0.3 %", 0.01: "1 %", 0.03: "3 %", 0.1: "10 %", 0.3: "30 %", 1.0: "100 %"}
MOST_NUMBERED = 12  # files up to which each line of the picture has its number


def plot_mixing(report: MixingReport, path: str) -> None:
    """Draw a report to a file, PNG or what the name says.

        plot_mixing(measure_mixing(loader), "mixing.png")

    Raises what `check_plot` does.
    """
    check_plot(path)
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    axes: Any = figure.subplots(1, 3, sharey=True)
    least = max(min(1 / report.batch_size, 0.5), min(TICKS))  # one row; what is nothing at all is white
    norm = LogNorm(least, 1.0, clip=True)
    panels = (("plain DataLoader", report.plain), ("MixLoader", report.loader), ("perfect shuffle", report.perfect))
    image: Any = None
    for axis, (name, mixing) in zip(axes, panels, strict=True):
        image = _draw_panel(axis, mixing, norm)
        axis.set_title(f"{name}\n{_describe(mixing, report)}", fontsize=10)
    axes[0].set_ylabel(_label_of_files(report))
    if report.num_files <= MOST_NUMBERED:
        axes[0].set_yticks(np.arange(report.num_files) + 0.5, [str(number) for number in range(report.num_files)])
    shown = [tick for tick in TICKS if tick >= least]
    bar = figure.colorbar(image, ax=axes, pad=0.01, ticks=shown)
    bar.ax.set_yticklabels([TICKS[tick] for tick in shown])
    bar.ax.minorticks_off()
    bar.set_label("share of the batch that is from the file (white: nothing)")
    rows = f"{report.num_rows:,} rows in {report.num_batches:,} batches of {report.batch_size:,}, {report.num_files:,} files"
    figure.suptitle(f"What each batch is made of: {rows}", fontsize=12)
    figure.text(0.005, 0.005, f"plain: {report.plain_loader}", fontsize=7, color="dimgray")
    engine: Any = figure.get_layout_engine()
    engine.set(rect=(0, 0.04, 1, 0.96))
    figure.savefig(path)


def check_plot(path: str) -> None:
    """Tell before the work that a picture cannot be drawn to a file of this name.

    Raises ImportError without matplotlib, ValueError for an ending that it does not know.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise ImportError(f"{path}: drawing needs matplotlib; pip install 'shardmix[plot]'") from error
    known = sorted(FigureCanvasBase.get_supported_filetypes())
    ending = os.path.splitext(path)[1].removeprefix(".").lower()
    if ending and ending not in known:
        raise ValueError(f"{path}: no kind of picture is called {ending!r}, expected one of {', '.join(known)}")


def _draw_panel(axis: Any, mixing: Mixing, norm: Any) -> Any:
    """One order. Each batch is drawn as wide as those around it that are not shown."""
    picture = mixing.picture
    columns = np.append(picture.batches, 2 * picture.batches[-1] - picture.batches[-2] if len(picture.batches) > 1 else 1)
    shares = np.ma.masked_equal(picture.shares, 0)
    lines = np.append(picture.first_file, picture.first_file[-1] + 1)
    is_whole = len(picture.batches) == picture.batches[-1] + 1
    axis.set_xlabel("batch" if is_whole else f"batch ({len(picture.batches)} of them shown)")
    axis.set_xlim(columns[0], columns[-1])
    return axis.pcolormesh(columns, lines, shares, norm=norm, cmap="viridis_r", rasterized=True)


def _describe(mixing: Mixing, report: MixingReport) -> str:
    """The numbers that the picture shows."""
    labels = "" if mixing.labels is None else f", {mixing.labels.mean:.1f} values of {report.key!r}"
    return f"mean of a batch: {mixing.files.mean:.1f} files{labels}"


def _label_of_files(report: MixingReport) -> str:
    shown = len(report.loader.picture.first_file)
    grouped = "" if shown == report.num_files else f", {report.num_files / shown:.1f} to a line"
    return f"source file, in listing order{grouped}"
