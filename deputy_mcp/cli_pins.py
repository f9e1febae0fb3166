"""`deputy-mcp pins show | diff | verify | accept`: the pin file, and what servers offer otherwise than it says.

`diff` and `verify` change nothing, not even for a server that the file does not know. `accept` accepts what a person
saw: its digest must be named, and the server must still offer that very definition.
"""

import argparse
import difflib
import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import evolve

from deputy_mcp._core.config import RestartPolicy
from deputy_mcp._core.errors import ConfigError, RefusedError
from deputy_mcp._core.lifecycle import ServerState
from deputy_mcp._core.permissions import Permissions
from deputy_mcp._core.pin_book import PinFileError, ServerPins
from deputy_mcp._core.pinning import PinDifference, Pinned
from deputy_mcp._core.sanitizing import clean_line, known_secrets, mask_secrets
from deputy_mcp._runtime.configfile import Config, load_config
from deputy_mcp._runtime.connection import McpConnection
from deputy_mcp._runtime.pin_book import PinBook
from deputy_mcp.terminal import Printer

SHOWN_DIGEST = 12
"""Hex digits of a digest as tables show it."""
SHORTEST_PREFIX = 8
"""Hex digits by which a person must name what he saw."""

_ONCE = RestartPolicy(when="never")


def add_parser(commands: Any) -> None:
    """Add the command to the program's."""
    pins = commands.add_parser("pins", help="show, compare and accept what servers were pinned as")
    actions = pins.add_subparsers(required=True, metavar="ACTION")
    for name, run, text in (
        ("show", _run_show, "print the pin file; no server is started"),
        ("diff", _run_diff, "start servers and print what differs from the pins, as a person reads it"),
        ("verify", _run_verify, "start servers and exit with 1 when anything differs"),
        ("accept", _run_accept, "accept what a server offers now, as shown by diff"),
    ):
        action = actions.add_parser(name, help=text)
        if name == "accept":
            action.add_argument("server", metavar="SERVER")
            action.add_argument("tool", metavar="TOOL", help="a tool, #instructions, #prompts/NAME or #resources/URI")
            what = action.add_mutually_exclusive_group(required=True)
            what.add_argument("--digest", metavar="PREFIX", help="the digest that diff showed, eight digits or more")
            what.add_argument("--gone", action="store_true", help="accept that it is no longer offered")
            action.add_argument(
                "--finding", action="append", default=[], metavar="CODE", help="accept this finding too"
            )
        else:
            action.add_argument("servers", nargs="*", metavar="SERVER", help="exact names; all by default")

        action.add_argument("--config", metavar="FILE", help="the configuration file; the default one otherwise")
        action.add_argument("--pins", metavar="FILE", help='the pin file; the configuration\'s "pins" otherwise')
        if name != "accept":
            action.add_argument("--json", action="store_true", help="print JSON")

        action.set_defaults(run=run)


async def _run_show(options: argparse.Namespace) -> int:
    if options.pins:
        book = PinBook(options.pins)
    else:
        _, book = _configured(options, None)

    known = _read(book)
    unknown = set(options.servers) - set(known)
    if unknown:
        raise ConfigError(f"the pin file has no server {min(unknown)!r} (known: {', '.join(known) or 'none'})")

    chosen = {name: pins for name, pins in known.items() if not options.servers or name in options.servers}
    out = Printer()
    if options.json:
        out.json({name: _facts(pins) for name, pins in chosen.items()})
        return 0

    rows = [
        (name, clean_line(item, 120), pinned.digest[:SHOWN_DIGEST], ", ".join(sorted(pinned.accepted)) or "-")
        for name, pins in chosen.items()
        for item, pinned in _items(pins)
    ]
    out.line(f"{book.path}", "dim")
    if rows:
        out.table(("server", "what", "digest", "accepted findings"), rows)
    else:
        out.line("nothing is pinned yet")

    return 0


async def _run_diff(options: argparse.Namespace) -> int:
    return await _compare(options, brief=False)


async def _run_verify(options: argparse.Namespace) -> int:
    return await _compare(options, brief=True)


async def _compare(options: argparse.Namespace, *, brief: bool) -> int:
    config, book = _configured(options, options.servers or None)
    new = [name for name in config if name not in _read(book)]
    found, down = await _differences(config, book)
    out = Printer()
    if options.json:
        out.json({"differences": [_difference_facts(one) for one in found], "not_pinned": new, "not_ready": down})
    else:
        _print_differences(out, config, found, new, down, _read(book), brief=brief)

    return 1 if found or new or down else 0


def _print_differences(
    out: Printer,
    config: Config,
    found: tuple[PinDifference, ...],
    new: list[str],
    down: Mapping[str, str],
    known: Mapping[str, ServerPins],
    *,
    brief: bool,
) -> None:
    for name, why in down.items():
        out.line(f"{name}: could not be compared: {why}", "bad")

    for name in new:
        out.line(f"{name}: not pinned yet; its first use pins it", "ask")

    for one in found:
        out.line(f"{one.server}  {clean_line(one.name, 120)}  {one.code}  {one.digest[:SHOWN_DIGEST]}".rstrip(), "bad")
        if not brief:
            out.line("\n".join(f"    {line}" for line in _shown_whole(one, config, known.get(one.server))))

        if not brief:
            how = f"--digest {one.digest[:SHOWN_DIGEST]}" if one.digest else "--gone"
            out.line(f"    deputy-mcp pins accept {one.server} '{clean_line(one.name, 120)}' {how}", "dim")

    same = [name for name in config if name not in down and name not in new]
    unchanged = [name for name in same if not any(one.server == name for one in found)]
    if unchanged:
        out.line(f"unchanged: {', '.join(unchanged)}", "ok")


def _shown_whole(one: PinDifference, config: Config, pins: ServerPins | None) -> list[str]:
    """All of what would be accepted, and for a change what it replaces: nothing may hide behind a cut."""
    before = dict(_items(pins)).get(one.name) if pins is not None else None
    old = before.raw if before is not None else None
    if one.name == "#instructions" and pins is not None and pins.instructions is not None:
        old = {"instructions": pins.instructions}

    lines = list(difflib.unified_diff(_lines(old), _lines(one.definition), lineterm="", n=1))[2:]
    secrets = known_secrets((*config[one.server].secrets, *config.secrets.get(one.server, ())))
    return [mask_secrets(line, secrets) for line in lines if not line.startswith("@@")]


def _lines(definition: Mapping[str, Any] | None) -> list[str]:
    # ASCII: what hides must not hide here.
    return (
        [] if definition is None else json.dumps(definition, indent=2, ensure_ascii=True, sort_keys=True).splitlines()
    )


async def _run_accept(options: argparse.Namespace) -> int:
    config, book = _configured(options, [options.server])
    prefix = (options.digest or "").lower()
    if not options.gone and (len(prefix) < SHORTEST_PREFIX or not set(prefix) <= set("0123456789abcdef")):
        raise ConfigError(f"--digest needs {SHORTEST_PREFIX} hex digits or more, as diff shows them", key="digest")

    found, down = await _differences(config, book)
    if down:
        raise ConfigError(f"server {options.server!r} could not be compared: {down[options.server]}")

    definition = _accepted_definition(options, found, _read(book).get(options.server), prefix)
    book.accept(options.server, options.tool, definition, frozenset(options.finding))
    said = "its absence" if definition is None else f"{prefix[:SHOWN_DIGEST]}"
    Printer().line(f"accepted {options.server} {clean_line(options.tool, 120)}: {said}", "ok")
    return 0


def _accepted_definition(
    options: argparse.Namespace, found: tuple[PinDifference, ...], pins: ServerPins | None, prefix: str
) -> Mapping[str, Any] | None:
    """What is accepted: the new definition, the pinned one (with findings on it), or None: it is gone."""
    differing = next((one for one in found if one.name == options.tool), None)
    if differing is None:
        pinned: Pinned | None = dict(_items(pins)).get(options.tool) if pins is not None else None
        if pinned is not None and options.finding and pinned.digest.startswith(prefix or "-"):
            options.finding = sorted({*options.finding, *pinned.accepted})
            return pinned.raw

        raise RefusedError(
            f"{options.tool!r} of server {options.server!r} does not differ from its pin, or has another digest; "
            "see `deputy-mcp pins diff`"
        )

    if options.gone != (differing.definition is None):
        now = "is no longer offered" if differing.definition is None else "is still offered, and changed"
        raise RefusedError(f"{options.tool!r} {now}; see `deputy-mcp pins diff`")

    if not options.gone and not differing.digest.startswith(prefix):
        raise RefusedError(
            f"{options.tool!r} is now {differing.digest[:SHOWN_DIGEST]}, not {prefix}: it changed since you looked; "
            "see `deputy-mcp pins diff`"
        )

    return differing.definition


def _configured(options: argparse.Namespace, servers: list[str] | None) -> tuple[Config, PinBook]:
    config = load_config(options.config, servers)
    book = PinBook(options.pins) if options.pins else config.pins
    if book is None or book.path is None:
        raise ConfigError('there is no pin file; pass --pins FILE, or set "pins" under "deputy" in the configuration')

    return config, book


def _read(book: PinBook) -> Mapping[str, ServerPins]:
    try:
        return book.read()
    except PinFileError as error:
        raise ConfigError(str(error), path=str(book.path)) from None


async def _differences(config: Config, book: PinBook) -> tuple[tuple[PinDifference, ...], dict[str, str]]:
    """What differs, and which servers could not be compared, with why. On a copy: nothing is pinned by looking."""
    assert book.path is not None
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "pins.json"
        if book.path.exists():
            shutil.copyfile(book.path, copy)

        pins = evolve(book, path=copy, verify="change", new_servers="pin")
        # Looking is no call: it is not journalled, and a program that runs beside it keeps its journal.
        looked_at = evolve(config, journal=None)
        async with McpConnection(looked_at, permissions=Permissions(), restart=_ONCE, pins=pins) as connection:
            down = {
                name: status.reason or status.last_error or str(status.state)
                for name, status in connection.status().items()
                if status.state is not ServerState.READY
            }
            return connection.differences(), down


def _items(pins: ServerPins) -> list[tuple[str, Pinned]]:
    items = [*pins.tools.items()]
    items += [(f"#prompts/{name}", pinned) for name, pinned in pins.prompts.items()]
    return items + [(f"#resources/{uri}", pinned) for uri, pinned in pins.resources.items()]


def _facts(pins: ServerPins) -> dict[str, Any]:
    items = {name: {"digest": pin.digest, "accepted": sorted(pin.accepted)} for name, pin in _items(pins)}
    return {"pins": items, "instructions": pins.instructions is not None}


def _difference_facts(one: PinDifference) -> dict[str, Any]:
    return {
        "server": one.server,
        "name": one.name,
        "code": one.code,
        "digest": one.digest,
        "difference": one.difference,
        "definition": one.definition,
    }
