"""Numbers and tables for people."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import click

from ..runtime.needs import format_bytes as format_bytes
from .findings import Finding

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGTP]?)(i?)B?", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """The bytes that a text names.

    >>> parse_bytes("2GB"), parse_bytes("256MiB"), parse_bytes("1000")
    (2000000000, 268435456, 1000)

    Raises ValueError for anything else.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no size; write it like 256MB, 2GB or 64MiB")
    power = "kmgtp".index(match[2].lower()) + 1 if match[2] else 0
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


def format_count(number: int, noun: str) -> str:
    """
    >>> format_count(1, "record"), format_count(12_000, "record")
    ('1 record', '12,000 records')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_table(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> list[str]:
    """Lines of columns; those whose number is in `right` are set flush right.

    >>> format_table([["a", "10"], ["bcd", "5"]], right=[1])
    ['a    10', 'bcd   5']
    """
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def show(data: dict[str, Any], lines: Sequence[str], findings: Sequence[Finding], *, as_json: bool) -> int:
    """Put the output of a command on stdout, its findings on stderr (in JSON: among the output); returns the exit code."""
    if as_json:
        found = [finding._asdict() for finding in findings]
        click.echo(json.dumps({**data, "findings": found}, ensure_ascii=False, allow_nan=False, indent=2))
    else:
        for line in lines:
            click.echo(line)
        for finding in findings:
            click.echo(f"shardmix: {finding}", err=True)
    return 1 if findings else 0
