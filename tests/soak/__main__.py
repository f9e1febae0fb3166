"""`python -m tests.soak [--seconds 600] [--seed N] [--folder DIR]`; exit 1 when the books disagree."""

import argparse
import logging
import secrets
import sys
import tempfile
from pathlib import Path

import anyio

from .plan import make_plan
from .run import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long to make calls (600)")
    parser.add_argument("--seed", type=int, default=None, help="repeats the servers and choices of an earlier run")
    parser.add_argument("--folder", type=Path, default=None, help="an empty folder for ledgers and book, kept")
    parser.add_argument("--uvloop", action="store_true", help="on uvloop instead of asyncio's own loop")
    parser.add_argument("--log", action="store_true", help="the library's log, as log.txt beside them")
    options = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    if options.log:
        logging.basicConfig(filename=folder / "log.txt", level=logging.INFO, format="%(created).3f %(message)s")

    for server in make_plan(seed, folder):
        print(server)

    report = anyio.run(
        lambda: soak(seed, options.seconds, folder, tell=lambda line: print(line, flush=True)),
        backend_options={"use_uvloop": options.uvloop},
    )
    print("\n".join(report.lines()))
    if report.differences:
        print(f"repeat with --seed {seed}; ledgers and book are in {folder}")
        return 1

    if options.folder is None:
        for file in folder.iterdir():
            file.unlink()

        folder.rmdir()

    return 0


if __name__ == "__main__":
    sys.exit(main())
