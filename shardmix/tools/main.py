"""The command `shardmix`: which commands there are, and what becomes of what they raise.

Rule 1: exit codes are for scripts: 0 well, 1 found something (damage, a disk that is full), 2 called wrongly, 130 interrupted.
Rule 2: output is on stdout; findings, progress and errors are on stderr. A bar appears on a terminal only.
Rule 3: a command's module is imported when the command runs, and torch where a command trains or measures.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import sys
import warnings
from importlib import import_module
from typing import Any, TextIO

import click

from .. import __version__
from ..errors import CorruptShardError, ShardMixError

COMMANDS = {
    "info": "Shards, records, bytes, index; what a run would need.",
    "schema": "The features of the records, and the dict to paste.",
    "head": "Some records as readable text.",
    "verify": "Every checksum of every shard; repair.",
    "index": "Build, refresh or export the index.",
    "reshard": "Other shards of the same records; shuffled, if you like.",
    "mix": "Measure how batches mix files, lanes and labels.",
    "bench": "Your own corpus stage by stage, and what limits.",
}
INTERRUPTED = 130  # 128 + SIGINT, as shells count


class Commands(click.Group):
    """The commands, imported when they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name}", __package__).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the help, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "--version")
def cli() -> None:
    """Look at, check and rewrite folders of TFRecord files.

    PATTERN is a path, a folder, a glob, a range {00000..00127}, name@128, or a URL; several may be given.

    \b
    shardmix info 'corpus/train-*.tfrecord'
    shardmix schema 'corpus/train-*.tfrecord'
    shardmix verify corpus --repair sound
    shardmix mix corpus --batch-size 256 --key label --plot mixing.png

    Exit codes: 0 well, 1 found something, 2 called wrongly. `shardmix COMMAND --help` has examples of each.
    """


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit."""
    _show_log()
    code = run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _close_stdout()
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        return int(cli.main(arguments, prog_name="shardmix", standalone_mode=False) or 0)
    except click.Abort:
        return _interrupted()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except SystemExit:  # how click says that the reader of a pipe has seen enough
        _close_stdout()
        return 0
    except (ShardMixError, OSError, ImportError) as error:
        _tell(error)
        return 2 if isinstance(error, FileNotFoundError | FileExistsError) else 1
    except (ValueError, TypeError) as error:
        _tell(error)
        return 2


def _interrupted() -> int:
    """What was under way is given up; the commands have removed what they had begun to write."""
    for child in multiprocessing.active_children():
        child.terminate()
    click.echo("shardmix: interrupted; no half file is left", err=True)
    return INTERRUPTED


def _tell(error: Exception) -> None:
    text = str(error)
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    click.echo(f"shardmix: {text}", err=True)


def _close_stdout() -> None:
    """Keep Python from complaining about the pipe as it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Told(logging.Filter):
    """Drops what the commands tell themselves, as findings: damages."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments: Any = record.args
        return not (isinstance(arguments, tuple) and any(isinstance(value, CorruptShardError) for value in arguments))


def _show_log() -> None:
    """The library's warnings, as lines on stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("shardmix: %(message)s"))
    handler.addFilter(_Told())
    logger = logging.getLogger("shardmix")
    logger.addHandler(handler)
    logger.propagate = False
    if not sys.warnoptions:
        warnings.showwarning = _show_warning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """In place of `warnings.showwarning`: the line of source says nothing to who calls a command."""
    click.echo(f"shardmix: warning: {message}", err=True)
