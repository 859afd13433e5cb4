"""What bench.py measured, as tables and as a chart. Every figure is the median of the rounds; ratios are ratios of medians."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

OURS = "shardmix-2"
# issue "Fast": how many times as fast as a peer, at least; of the bound, the share
TARGETS: dict[str, dict[str, float]] = {
    "tf.data": {"small": 5, "ctr": 5, "emb": 4, "tokens": 3, "image": 1.5},
    "tfrecord-2": {"small": 50, "ctr": 100, "emb": 20, "tokens": 10, "image": 7},
    "dali-2": {"small": 6, "ctr": 30, "emb": 3, "tokens": 2, "image": 0.6},
    "bound": {"small": 0.15, "ctr": 0.06, "emb": 0.40, "tokens": 0.25, "image": 0.35},
}
LABEL_WIDTH, CELL_WIDTH = 24, 17
Result = dict[str, Any]


def rate(one: Result) -> float:
    """Records a second."""
    return median(turn["rows"] / turn["seconds"] for turn in one["rounds"])


def cpu_per_million(one: Result) -> float:
    """CPU seconds of all processes for a million records."""
    return median(1e6 * turn["cpu_seconds"] / turn["rows"] for turn in one["rounds"])


def is_measured(one: Result | None) -> bool:
    return bool(one and one.get("rounds")) and all("rows" in turn for turn in one["rounds"])


def contenders_of(result: Result) -> list[str]:
    """The keys, in the order of the run."""
    return list(dict.fromkeys(key for corpus in result["corpora"].values() for key in corpus["contenders"]))


def print_report(result: Result) -> None:
    """All tables."""
    machine, settings = result["machine"], result["settings"]
    print(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}")
    print(f"batch {settings['batch_size']}, buffer {settings['buffer_size']}; medians of {settings['rounds']} rounds in turn")
    print_peers(result)
    print_table(result, "records/s", lambda one: f"{rate(one):,.0f}")
    print_ratios(result)
    print_table(result, "CPU s per million records", lambda one: f"{cpu_per_million(one):,.2f}")
    print_cpu_ratios(result)
    print_table(result, "first batch, ms", lambda one: f"{1e3 * one['first_batch_seconds']:,.0f}")
    print_table(result, "peak memory, MB (PSS)", lambda one: f"{one['memory']['peak_bytes'] / 1e6:,.0f}")
    print_table(result, "peak open descriptors", lambda one: f"{one['memory']['peak_files']}")
    print_handoff(result)
    print_own_code(result)


def print_peers(result: Result) -> None:
    """Who takes part, what each checks, and whether all delivered the same."""
    print()
    for key in contenders_of(result):
        found = [corpus["contenders"][key] for corpus in result["corpora"].values() if key in corpus["contenders"]]
        one = found[0]
        if "absent" in one:
            print(f"{key:{LABEL_WIDTH}}not measured: {one['absent']}")
        else:
            print(f"{key:{LABEL_WIDTH}}{one['describe']}; CRCs checked: {one['checks']}")
    for name, corpus in result["corpora"].items():
        digests = {key: one.get("digest") for key, one in corpus["contenders"].items()}
        expected = digests.get(OURS)
        differ = [key for key, text in digests.items() if text and text != expected and not key.startswith(f"{OURS}-")]
        differ = [key for key in differ if not key.startswith("shardmix-0-")]  # these deliver something else on purpose
        same = "all delivered the same rows" if not differ else f"NOT the rows of {OURS}: {', '.join(differ)}"
        print(f"{name}: {corpus['records']:,} records, {corpus['bytes'] / 1e6:,.0f} MB; {same}")


def print_table(result: Result, title: str, show: Any) -> None:
    """One figure of every contender on every corpus."""
    corpora = result["corpora"]
    print(f"\n{title:{LABEL_WIDTH}}{''.join(f'{name:>{CELL_WIDTH}}' for name in corpora)}")
    for key in contenders_of(result):
        ones = [corpus["contenders"].get(key) for corpus in corpora.values()]
        if any(map(is_measured, ones)):
            cells = [show(one) if is_measured(one) else "-" for one in ones]
            print(f"{key:{LABEL_WIDTH}}{''.join(f'{cell:>{CELL_WIDTH}}' for cell in cells)}")


def ratios(result: Result) -> dict[str, dict[str, float]]:
    """How many times as fast as each peer shardmix with two workers is."""
    found: dict[str, dict[str, float]] = {}
    for name, corpus in result["corpora"].items():
        ours = corpus["contenders"].get(OURS)
        for key, one in corpus["contenders"].items():
            if key != OURS and is_measured(ours) and is_measured(one):
                found.setdefault(key, {})[name] = rate(ours) / rate(one)
    return found


def print_ratios(result: Result) -> None:
    """The ratios, with the targets in brackets."""
    corpora = list(result["corpora"])
    print(f"\n{OURS + ' / peer (target)':{LABEL_WIDTH}}{''.join(f'{name:>{CELL_WIDTH}}' for name in corpora)}")
    for key, row in ratios(result).items():
        cells = []
        for name in corpora:
            target = TARGETS.get(key, {}).get(name)
            cell = "-" if name not in row else f"{row[name]:.0%}" if key == "bound" else f"{row[name]:.3g}x"
            if name in row and target is not None:
                cell += f" ({target:.0%})" if key == "bound" else f" ({target:g})"
            cells.append(f"{cell:>{CELL_WIDTH}}")
        print(f"{key:{LABEL_WIDTH}}{''.join(cells)}")


def print_cpu_ratios(result: Result) -> None:
    """How many times our CPU time each peer takes: the same on a machine that does other things as well."""
    for corpus in result["corpora"].values():
        ours = corpus["contenders"].get(OURS)
        for one in corpus["contenders"].values():
            # a round of next to nothing takes no time that the system's clock of CPU time can tell
            if is_measured(ours) and is_measured(one) and cpu_per_million(ours) > 0:
                one["cpu_ratio"] = cpu_per_million(one) / cpu_per_million(ours)
    print_table(result, f"CPU time / {OURS}'s", lambda one: f"{one['cpu_ratio']:.3g}x" if "cpu_ratio" in one else "-")


def print_handoff(result: Result) -> None:
    """What crosses between processes for a batch, as shardmix itself counts it."""
    print()
    for name, corpus in result["corpora"].items():
        stats = corpus["contenders"].get(OURS, {}).get("stats")
        if stats:
            batches = max(1, stats["batches"])
            messages, descriptors = stats["messages"] / batches, stats["slabs_attached"] / batches
            print(f"{name}: {OURS} sent {messages:.2f} messages and {descriptors:.4f} descriptors a batch")


def print_own_code(result: Result) -> None:
    """The overhead of Python code run on each record."""
    small = result["corpora"].get("small", {}).get("contenders", {})
    one = small.get("shardmix-0-transform")
    if is_measured(one):
        own, all_in = 1e6 * one["stats"]["own_seconds_per_sample"], cpu_per_million(one)
        print(f"\ntransform of a 28 x 28 image, no workers: {all_in:.1f} us of CPU a sample, {own:.1f} of it the user's own work")
        print(f"overhead a sample, reading and batching included: {all_in - own:.1f} us (target: under 15)")


def draw_chart(result: Result, path: Path) -> Path | None:
    """Records a second of every contender, one panel a corpus, as a PNG; None without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("agg")
    from matplotlib import pyplot

    corpora = result["corpora"]
    figure, panels = pyplot.subplots(len(corpora), 1, figsize=(8, 1.0 + 1.7 * len(corpora)), squeeze=False, layout="constrained")
    for panel, (name, corpus) in zip(panels[:, 0], corpora.items(), strict=True):
        shown = {key: one for key, one in corpus["contenders"].items() if is_measured(one) and key.count("-") < 2}
        turns = [[turn["rows"] / turn["seconds"] for turn in one["rounds"]] for one in shown.values()]
        rates = [median(turn) for turn in turns]
        spread = [[middle - min(turn) for middle, turn in zip(rates, turns, strict=True)]]
        spread += [[max(turn) - middle for middle, turn in zip(rates, turns, strict=True)]]
        colours = ["tab:blue" if key.startswith("shardmix") else "tab:gray" if key == "bound" else "tab:orange" for key in shown]
        bars = panel.barh(list(shown), rates, xerr=spread, color=colours, error_kw={"lw": 0.8})
        panel.bar_label(bars, [f" {value:,.0f}" for value in rates], fontsize=7, padding=6)
        panel.set(xscale="log", title=f"{name}: records/s ({corpus['bytes'] / corpus['records']:,.0f} bytes each)")
        panel.set_xlim(min(rates) / 2, max(rates) * 3)
        panel.invert_yaxis()
        panel.tick_params(labelsize=8)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
