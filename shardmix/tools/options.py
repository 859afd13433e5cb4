"""The options that several commands have."""

from __future__ import annotations

from typing import Any

import click

from .texts import parse_bytes


class Size(click.ParamType[int]):
    """A number of bytes: 256MB, 2GB, 64MiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


SIZE = Size()

patterns = click.argument("patterns", metavar="PATTERN...", nargs=-1, required=True)
as_json = click.option("--json", "as_json", is_flag=True, help="Print the data as JSON.")
index = click.option(
    "--index", default="auto", metavar="WHERE", help="Where the index is kept: auto, cache, memory, or a file *.shardmix. [auto]"
)
compression = click.option(
    "--compression", "compression_type", type=click.Choice(["auto", "none", "gzip", "zlib"]), default="auto",
    help="How the shards are compressed. [auto: told from their content]",
)  # fmt: skip
workers = click.option("--workers", type=click.IntRange(1), metavar="N", help="Processes to work in. [one a CPU]")
batch_size = click.option("--batch-size", type=click.IntRange(1), default=256, show_default=True, help="Rows of a batch.")
num_workers = click.option("--num-workers", type=click.IntRange(0), default=4, show_default=True, help="Workers of the loader.")
shuffle_buffer_size = click.option(
    "--shuffle-buffer-size", type=click.IntRange(0), metavar="N", help="Records, over all workers. [16384]"
)
lanes = click.option("--lanes", type=click.IntRange(1), metavar="N", help="Lanes of the order. [16, or 8 a rank]")
cycle_length = click.option("--cycle-length", type=click.IntRange(1), metavar="N", help="Open files a lane. [4]")
