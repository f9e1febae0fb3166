"""`python -m benchmarks [NAME …]`: run them and print a table; exit 1 when a wanted figure is missed."""

import importlib
import platform
import sys

import anyio

NAMES = ("speed", "isolation", "verdicts", "scanning", "floods", "journal")


def main() -> int:
    names = sys.argv[1:] or NAMES
    missed = 0
    print(f"{platform.platform()}, Python {platform.python_version()}")
    for name in names:
        for what, figure, holds in anyio.run(importlib.import_module(f"benchmarks.{name}").run):
            missed += not holds
            print(f"{'ok  ' if holds else 'MISS'}  {what:45s}  {figure}", flush=True)

    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
