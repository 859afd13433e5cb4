"""A program that looks at what a package has no business to change, before and after it imports and uses shardmix.

    python -m tests.runtime.untouched PATTERN None|fork|spawn|forkserver

Prints what it saw each time, as JSON: run by test_life_methods.py.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import warnings
from itertools import islice
from multiprocessing import forkserver
from typing import Any

import numpy as np
import torch


def look() -> dict[str, Any]:
    """What is the program's, as texts and numbers."""
    legacy: Any = np.random.get_state()  # noqa: NPY002  (the global one is the one in question)
    return {
        "start method": multiprocessing.get_start_method(allow_none=True),
        "modules of the fork server": forkserver._forkserver._preload_modules,  # type: ignore[attr-defined]
        "sharing strategy": torch.multiprocessing.get_sharing_strategy(),
        "generators": [str(random.getstate()), legacy[1].tolist(), torch.get_rng_state().tolist(), torch.initial_seed()],
        "signals": {str(number): str(signal.getsignal(number)) for number in sorted(signal.valid_signals())},
        "blocked signals": str(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
        "environment": dict(os.environ),
        "folders": [os.getcwd(), *sys.path],
        "hooks": [str(threading.excepthook), str(sys.excepthook), len(warnings.filters)],
        "torch": [torch.get_num_threads(), torch.get_num_interop_threads(), str(torch.get_default_dtype())],
    }


def main() -> None:
    pattern, name = sys.argv[1:]
    seen = [look()]
    import shardmix
    from tests.runtime.loading import FEATURES, Squares

    settings: Any = {"batch_size": 4, "num_workers": 1, "multiprocessing_context": None if name == "None" else name}
    seen.append(look())
    dataset = shardmix.ShardDataset(pattern, features=FEATURES)
    for is_persistent in (False, True):
        loader = shardmix.MixLoader(dataset, persistent_workers=is_persistent, **settings)
        list(islice(loader, 2))
        seen.append(look())
    list(shardmix.MixLoader(Squares(4), shuffle=True, **settings))
    seen.append(look())
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
