"""`python -m benchmarks.speed [WORK …]`: run these and print tables and verdicts; exit 1 when a figure is missed."""

import argparse
import sys

import anyio

from benchmarks.speed.page import draw
from benchmarks.speed.report import NAMES, measure
from benchmarks.speed.results import load


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="WORK", help=f"none: all of {', '.join(NAMES)}")
    parser.add_argument("--draw", action="store_true", help="only draw the page anew from the kept results")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        parser.error(f"no such work: {', '.join(unknown)}; there are {', '.join(NAMES)}")

    if options.draw:
        draw(load())
        return 0

    rows = anyio.run(measure, options.names or NAMES).rows
    for what, figure, holds in rows:
        print(f"{'ok  ' if holds else 'MISS'}  {what:45s}  {figure}")

    return 0 if all(holds for _, _, holds in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
