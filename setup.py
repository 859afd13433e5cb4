"""Build the optional C extension; what else there is to say about the package is in setup.cfg.

    SHARDMIX_BUILD_C    unset: build it, and go on without it, with a warning, where that fails
                        yes:   a failure is an error
                        no:    leave it out; the wheel is then the same for every platform
"""

import os
import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup

SOURCES = "shardmix/format/csrc"


def read_switch():
    """The value of SHARDMIX_BUILD_C: "" (unset), "yes" or "no"."""
    value = os.environ.get("SHARDMIX_BUILD_C", "")
    if value not in ("", "yes", "no"):
        raise SystemExit(f"SHARDMIX_BUILD_C is {value!r}; it is yes, no, or not set")
    return value


def describe_extension(switch):
    """The extension, for the stable ABI where there is one (free-threaded builds of Python have none)."""
    has_stable_abi = not sysconfig.get_config_var("Py_GIL_DISABLED")
    return Extension(
        "shardmix.format._core",
        sources=sorted(glob(f"{SOURCES}/*.c")),
        depends=sorted(glob(f"{SOURCES}/*.h")),
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if has_stable_abi else [],
        py_limited_api=has_stable_abi,
        extra_compile_args=["/O2", "/std:c11"] if sys.platform == "win32" else ["-O3", "-std=c11", "-fvisibility=hidden"],
        optional=switch != "yes",
    )


def build():
    """Hand over to setuptools."""
    switch = read_switch()
    extensions = [] if switch == "no" else [describe_extension(switch)]
    stable = any(extension.py_limited_api for extension in extensions)
    setup(ext_modules=extensions, options={"bdist_wheel": {"py_limited_api": "cp311"}} if stable else {})


build()
