"""`python -m benchmarks.speed [WORK …]`: run them and print the tables; exit 1 when a wanted figure is missed."""

import argparse
import sys

import anyio

from benchmarks.speed.report import WORKS, measure


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="WORK", help=f"none: all of {', '.join(WORKS)}")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in WORKS]
    if unknown:
        parser.error(f"no such work: {', '.join(unknown)}; there are {', '.join(WORKS)}")

    rows = anyio.run(measure, options.names).rows
    for what, figure, holds in rows:
        print(f"{'ok  ' if holds else 'MISS'}  {what:45s}  {figure}")

    return 0 if all(holds for _, _, holds in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
