"""How `make docs` builds the site: MyST for the pages, autodoc for the reference. Needs no network.

Docstrings are written to be read in an editor, and are turned into reStructuredText here:

    an indented block               is code
    `name: what it is`, a line each is a list of arguments
    `name`                          is literal
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import shardmix

project = "shardmix"
version = release = shardmix.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 3
default_role = "literal"
smartquotes = False
maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries = False
highlight_language = "text"

html_theme = "alabaster"
html_theme_options = {
    "description": "TFRecord corpora in PyTorch: batches that mix files and workers, in one order on any machine",
    "fixed_sidebar": True,
    "page_width": "1080px",
}
html_sidebars = {"**": ["about.html", "navigation.html", "searchbox.html"]}
html_show_sourcelink = False
html_copy_source = False

NAME = r"[a-z]\w*(?: \([^)]*\))?"
ARGUMENT = re.compile(rf"({NAME}(?:, {NAME})*): (.*)", re.DOTALL)


def setup(app: Any) -> None:
    """Called by sphinx."""
    app.connect("autodoc-process-docstring", lambda app, what, name, thing, options, lines: rewrite(lines))
    app.connect("source-read", unlink_files)


def rewrite(lines: list[str]) -> None:
    """A docstring of this project → reStructuredText, in place."""
    parts = [list(part) for is_text, part in groupby(lines, key=lambda line: bool(line.strip())) if is_text]
    lines[:] = [new for part in parts for new in (*paragraph(part), "")]


def paragraph(lines: list[str]) -> Iterator[str]:
    """One paragraph of a docstring."""
    if all(line.startswith("    ") for line in lines):
        yield from [".. code-block:: python", "", *lines]
        return
    if lines[0].startswith(">>> "):
        yield from lines
        return
    items = re.sub(r"\n +", " ", "\n".join(lines)).split("\n")
    if not ARGUMENT.match(items[0]):
        yield from map(escape, lines)
        return
    for item in items:
        found = ARGUMENT.match(item)
        yield f"- **{found[1]}**: {escape(found[2])}" if found else f"- {escape(item)}"


def escape(text: str) -> str:
    """Stars mean stars, outside of what is literal anyway."""
    return "".join(part if i % 2 else part.replace("*", "\\*") for i, part in enumerate(re.split(r"(`[^`]*`)", text)))


def unlink_files(app: Any, document: str, source: list[str]) -> None:
    """Links out of docs/ name files of the repository, which are no pages of the site: their names are left."""
    source[0] = re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", source[0])
