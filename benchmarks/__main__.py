"""`python -m benchmarks [NAME …] [--write]`: run them and print tables; exit 1 when a wanted figure is missed."""

import argparse
import importlib
import platform
import sys
from collections.abc import Sequence

import anyio

from benchmarks.speed.figures import Row
from benchmarks.speed.page import draw
from benchmarks.speed.report import Measured, measure
from benchmarks.speed.results import FILE, load, results, save

NAMES = ("speed", "isolation", "verdicts", "scanning", "floods", "journal")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"none: all of {', '.join(NAMES)}")
    parser.add_argument(
        "--write", action="store_true", help=f"of all: write {FILE.name} and the page about speed as well"
    )
    options = parser.parse_args()
    if options.write and options.names:
        parser.error("--write is for all of them")

    print(f"{platform.platform()}, Python {platform.python_version()}")
    rows: dict[str, Sequence[Row]] = {}
    speed: Measured | None = None
    for name in options.names or NAMES:
        if name == "speed":
            speed = anyio.run(measure)
            rows[name] = speed.rows
        else:
            rows[name] = anyio.run(importlib.import_module(f"benchmarks.{name}").run)

        for what, figure, holds in rows[name]:
            print(f"{'ok  ' if holds else 'MISS'}  {what:45s}  {figure}", flush=True)

    if options.write and speed is not None:
        save(results(speed.versions, speed.left_out, speed.figures, rows))
        # What was kept, so that the page says no more than the file.
        draw(load())

    return 0 if all(holds for part in rows.values() for _, _, holds in part) else 1


if __name__ == "__main__":
    sys.exit(main())
