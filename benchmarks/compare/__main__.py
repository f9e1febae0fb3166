"""`python -m benchmarks.compare [SITUATION …] [--client NAME] [--write]`: run them and print the table."""

import argparse
import sys
import time

import anyio

from benchmarks.compare import page, table
from benchmarks.compare.environments import CLIENTS, ROOT, Missing, Ready, prepared
from benchmarks.compare.judging import Verdict
from benchmarks.compare.runner import Job, run
from benchmarks.compare.situations import SITUATIONS

PAGE = ROOT / "docs" / "explanation" / "compared.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SITUATION", help="names of situations; none: all")
    parser.add_argument("--client", action="append", choices=list(CLIENTS), help="only this client; may be repeated")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)} as well")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in SITUATIONS]
    if unknown:
        parser.error(f"no such situation: {', '.join(unknown)}; there are {', '.join(SITUATIONS)}")

    if options.write and (options.names or options.client):
        parser.error("--write is for the whole table")

    clients: dict[str, Ready | Missing] = {name: prepared(name) for name in options.client or CLIENTS}
    for name, client in clients.items():
        print(f"{name}: {client.versions if isinstance(client, Ready) else client.reason}")

    situations = [SITUATIONS[name] for name in options.names or SITUATIONS]
    ready = {name: client for name, client in clients.items() if isinstance(client, Ready)}
    begun = time.monotonic()
    verdicts = anyio.run(run, situations, ready, _told)
    print()
    for line in table.lines(clients, verdicts):
        print(line)

    print(f"{time.monotonic() - begun:.0f} s, {table.machine()}")
    if options.write:
        PAGE.write_text(page.page(clients, verdicts), encoding="utf-8")

    return 0


def _told(job: Job, verdict: Verdict) -> None:
    if verdict.remark:
        print(table.line(job, verdict), flush=True)


if __name__ == "__main__":
    sys.exit(main())
