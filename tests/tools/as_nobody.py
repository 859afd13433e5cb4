"""Run the command line without root's right to read every file: `python -m tests.tools.as_nobody info 'corpus/*'`.

Another user would do, but the interpreter may lie where only root can go. For a user without that right nothing changes.
"""

from __future__ import annotations

import ctypes
import sys

CAPABILITIES = (1, 2)  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
PR_CAPBSET_DROP = 24
VERSION_3 = 0x20080522


def drop_rights() -> None:
    """Give up the rights, for this process and all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()  # twice (effective, permitted, inheritable)
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    for capability in CAPABILITIES:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails where there was nothing to drop
        for place in range(3):
            sets[place] &= ~(1 << capability)
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    drop_rights()
    from shardmix.tools.main import main

    main(sys.argv[1:])
