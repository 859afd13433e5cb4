"""Imports run one way: errors ← format, order ← runtime ← tools. Read from the source, whatever happens to be imported."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "shardmix"

# layer → the layers of the package that it may import, beside itself
MAY_IMPORT = {
    "errors": set(),
    "format": {"errors"},
    "order": {"errors"},
    "runtime": {"errors", "format", "order"},
    "tools": {"errors", "format", "order", "runtime", ""},
}
# layer → the packages from outside that it may never import; what reads and writes is no business of the order
NEVER = {
    "errors": {"torch", "numpy", "tfrecord"},
    "format": {"torch", "random"},
    "order": {"torch", "tfrecord", "fsspec", "os", "io", "pathlib", "random", "multiprocessing", "threading", "tempfile", "mmap"},
    "runtime": set(),
    "tools": set(),
}


def _modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE or path.name == "errors.py")


def _layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything that a module imports, wherever in it."""
    package = ("shardmix", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            # `from .. import errors` names a module, `from ..errors import X` a thing in one: the layer is right for both
            yield from ((node.lineno, f"{stem}.{alias.name}") for alias in node.names)


def _is_foreign(path: Path, name: str) -> str | None:
    """Why an import is against the rules, or None."""
    layer, parts = _layer(path), name.split(".")
    if parts[0] != "shardmix":
        return f"{layer}/ may never import {parts[0]}" if parts[0] in NEVER[layer] else None
    target = parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else ""
    if target == layer or target in MAY_IMPORT[layer]:
        return None
    return f"{layer}/ may import only {sorted(MAY_IMPORT[layer])} of the package"


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_one_way(path: Path) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: imports {name}: {why}"
        for line, name in _imports(path)
        if (why := _is_foreign(path, name)) is not None
    ]
    assert found == []


@pytest.mark.parametrize(
    ("path", "line", "is_allowed"),
    [
        ("format/reader.py", "from ..errors import CorruptShardError", True),
        ("format/reader.py", "from ..order.plan import Plan", False),
        ("format/reader.py", "def f():\n    import torch", False),
        ("order/plan.py", "from ..format.records import IntArray", False),
        ("order/plan.py", "from .. import format", False),
        ("order/plan.py", "import numpy as np", True),
        ("order/plan.py", "import os", False),
        ("runtime/loader.py", "from ..tools import main", False),
        ("runtime/loader.py", "import shardmix", False),
        ("tools/main.py", "import shardmix", True),
        ("tools/main.py", "from ..runtime.loader import MixLoader", True),
    ],
)
def test_the_rules_tell_good_imports_from_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, line: str, is_allowed: bool
) -> None:
    module = tmp_path / path
    module.parent.mkdir()
    module.write_text(line + "\n", encoding="utf-8")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert [_is_foreign(module, name) is None for _, name in _imports(module)] == [is_allowed]


def test_importing_the_package_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, shardmix; print(sorted({'torch', 'numpy', 'tfrecord', 'google.protobuf'} & set(sys.modules)))"
    assert _run(code) == "[]"


def test_reading_records_and_the_order_load_no_torch() -> None:
    code = (
        "import sys, shardmix, shardmix.order.plan;"
        "shardmix.read_records, shardmix.ShardWriter, shardmix.build_index, shardmix.FixedLenFeature, shardmix.backend;"
        "print('torch' in sys.modules)"
    )
    assert _run(code) == "False"


def test_type_checkers_are_told_of_every_public_name() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    told |= {node.target.id: None for node in block.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    import shardmix

    assert set(told) == set(shardmix.__all__)
    assert {name: f".{module}" for name, module in told.items() if module} == shardmix._HOMES


def test_every_public_name_is_there_and_is_documented() -> None:
    import shardmix

    undocumented = [name for name in shardmix.__all__ if name != "backend" and not getattr(shardmix, name).__doc__]
    assert undocumented == []
    assert set(shardmix.__all__) <= set(dir(shardmix))
    assert shardmix.backend in ("c", "python")


def test_an_unknown_name_is_an_attribute_error() -> None:
    import shardmix

    with pytest.raises(AttributeError, match="'shardmix' has no attribute 'MixLoadr'"):
        shardmix.MixLoadr  # noqa: B018


def _run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
