"""`deputy-mcp pins show | diff | verify | accept`: the pin file, and what servers offer otherwise than it says.

`diff` and `verify` change nothing, not even for a server that the file does not know. `accept` accepts what a person
saw: its digest must be named, and the server must still offer that very definition; of a server that the file does not
know, all that it offers, under one digest.
"""

import argparse
import difflib
import json
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from deputy_mcp._core.config import RestartPolicy
from deputy_mcp._core.errors import ConfigError, RefusedError
from deputy_mcp._core.lifecycle import ServerState
from deputy_mcp._core.permissions import Permissions
from deputy_mcp._core.pin_book import ServerPins, pins_digest
from deputy_mcp._core.pinning import PinDifference, Pinned, definition_digest
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


@frozen(kw_only=True)
class _Look:
    """The servers as they are now, beside the file."""

    connection: McpConnection
    copy: PinBook
    """What it pins in."""
    known: Mapping[str, ServerPins]
    """What stands in the file."""
    differing: tuple[PinDifference, ...]
    new: Mapping[str, ServerPins]
    """What those servers offer that the file does not know."""
    down: Mapping[str, str]
    """The servers that could not be compared, and why."""


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
            action.add_argument(
                "tool",
                metavar="TOOL",
                nargs="?",
                help="a tool, #instructions, #prompts/NAME or #resources/URI; without it a server not pinned yet",
            )
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

    known = book.read()
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
    async with _looking(config, book) as seen:
        pass

    out = Printer()
    if options.json:
        out.json(
            {
                "differences": [_difference_facts(one) for one in seen.differing],
                "not_pinned": list(seen.new),
                "new_servers": {name: _offered_facts(pins) for name, pins in seen.new.items()},
                "not_ready": seen.down,
            }
        )
        return 1 if seen.differing or seen.new or seen.down else 0

    for name, why in seen.down.items():
        out.line(f"{name}: could not be compared: {why}", "bad")

    for name, pins in seen.new.items():
        digest = pins_digest(pins)[:SHOWN_DIGEST]
        then = "its first use is refused" if book.new_servers == "refuse" else "its first use pins it"
        out.line(f"{name}: not pinned yet; {then}  {digest}", "ask")
        if not brief:
            for item, pinned in _items(pins):
                out.line(f"  {clean_line(item, 120)}  {pinned.digest[:SHOWN_DIGEST]}")
                out.line("\n".join(_shown_whole(config, name, None, pinned.raw)))

            out.line(_accepting(options, ("--digest", digest), name), "dim")

    for one in seen.differing:
        out.line(f"{one.server}  {clean_line(one.name, 120)}  {one.code}  {one.digest[:SHOWN_DIGEST]}".rstrip(), "bad")
        if not brief:
            pinned_as = dict(_items(seen.known[one.server])).get(one.name)
            before = pinned_as.raw if pinned_as is not None else None
            out.line("\n".join(_shown_whole(config, one.server, before, one.definition)))
            how = ("--digest", one.digest[:SHOWN_DIGEST]) if one.digest else ("--gone",)
            out.line(_accepting(options, how, one.server, one.name), "dim")

    differing = {one.server for one in seen.differing}
    unchanged = [name for name in config if name not in (differing | {*seen.down, *seen.new})]
    if unchanged:
        out.line(f"unchanged: {', '.join(unchanged)}", "ok")

    return 1 if seen.differing or seen.new or seen.down else 0


def _accepting(options: argparse.Namespace, how: Sequence[str], *names: str) -> str:
    """The command that accepts what is shown, as it can be pasted."""
    places = [word for key in ("config", "pins") if (at := getattr(options, key)) for word in (f"--{key}", at)]
    dashed = ["--"] if any(name.startswith("-") for name in names) else []
    return "    " + shlex.join(["deputy-mcp", "pins", "accept", *how, *places, *dashed, *names])


def _shown_whole(
    config: Config, server: str, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None
) -> list[str]:
    """All of what would be accepted, and for a change what it replaces: nothing may hide behind a cut."""
    lines = list(difflib.unified_diff(_lines(before), _lines(now), lineterm="", n=1))[2:]
    secrets = known_secrets((*config[server].secrets, *config.secrets.get(server, ())))
    return [f"    {mask_secrets(line, secrets)}" for line in lines if not line.startswith("@@")]


def _lines(definition: Mapping[str, Any] | None) -> list[str]:
    # ASCII: what hides must not hide here.
    return (
        [] if definition is None else json.dumps(definition, indent=2, ensure_ascii=True, sort_keys=True).splitlines()
    )


async def _run_accept(options: argparse.Namespace) -> int:
    # A finding may come from laying servers side by side: then all of them are started.
    config, book = _configured(options, None if options.finding else [options.server])
    name, tool, prefix = options.server, options.tool, (options.digest or "").lower()
    if name not in config:
        raise ConfigError(f"there is no server {name!r} (known: {', '.join(config) or 'none'})", key="server")

    if not options.gone and (len(prefix) < SHORTEST_PREFIX or not set(prefix) <= set("0123456789abcdef")):
        raise ConfigError(f"--digest needs {SHORTEST_PREFIX} hex digits or more, as diff shows them", key="digest")

    if options.finding and (options.gone or tool is None or tool.startswith("#")):
        raise ConfigError(
            "--finding goes with the digest of a tool: nothing else has findings to accept", key="finding"
        )

    async with _looking(config, book) as look:
        if name in look.down:
            raise ConfigError(f"server {name!r} could not be compared: {look.down[name]}", server=name)

        if tool is None:
            seen = _accepted_server(options, look, prefix)
            if book.add(name, seen) != seen:
                raise RefusedError(
                    f"server {name!r} was pinned meanwhile as something else; see `deputy-mcp pins diff`"
                )
        else:
            definition, accepted = _accepted_definition(options, look, prefix)
            if options.finding:
                await _check_findings(options, look, definition)

            book.accept(name, tool, definition, accepted | frozenset(options.finding))

    what = name if tool is None else f"{name} {clean_line(tool, 120)}"
    Printer().line(f"accepted {what}: {'its absence' if options.gone else prefix[:SHOWN_DIGEST]}", "ok")
    return 0


def _accepted_server(options: argparse.Namespace, look: _Look, prefix: str) -> ServerPins:
    """All that a server offers which the file does not know."""
    pins = look.new.get(options.server)
    if pins is None or options.gone:
        said = f"server {options.server!r} is pinned already" if pins is None else "a server cannot be gone"
        raise ConfigError(f"{said}; name what to accept, as `deputy-mcp pins diff` does", key="tool")

    digest = pins_digest(pins)
    if not digest.startswith(prefix):
        raise _changed_since(f"server {options.server!r} is", digest, prefix)

    return pins


def _accepted_definition(
    options: argparse.Namespace, look: _Look, prefix: str
) -> tuple[Mapping[str, Any] | None, frozenset[str]]:
    """What is accepted, the new definition or the pinned one or None (it is gone), and the findings already on it."""
    if options.server in look.new:
        raise ConfigError(
            f"server {options.server!r} is not pinned yet; see `deputy-mcp pins diff`, and accept it as a whole with "
            f"`deputy-mcp pins accept {shlex.quote(options.server)} --digest PREFIX`",
            key="tool",
        )

    differing = {one.name: one for one in look.differing if one.server == options.server}.get(options.tool)
    if differing is None:
        pinned = dict(_items(look.known[options.server])).get(options.tool)
        if pinned is not None and options.finding and pinned.digest.startswith(prefix):
            return pinned.raw, pinned.accepted

        raise RefusedError(
            f"{options.tool!r} of server {options.server!r} does not differ from its pin, or has another digest; "
            "see `deputy-mcp pins diff`"
        )

    if options.gone != (differing.definition is None):
        now = "is no longer offered" if differing.definition is None else "is still offered, and changed"
        raise RefusedError(f"{options.tool!r} {now}; see `deputy-mcp pins diff`")

    if not options.gone and not differing.digest.startswith(prefix):
        raise _changed_since(f"{options.tool!r} is", differing.digest, prefix)

    return differing.definition, frozenset()


def _changed_since(what: str, digest: str, prefix: str) -> RefusedError:
    return RefusedError(
        f"{what} now {digest[:SHOWN_DIGEST]}, not {prefix}: it changed since you looked; see `deputy-mcp pins diff`"
    )


async def _check_findings(options: argparse.Namespace, look: _Look, definition: Mapping[str, Any] | None) -> None:
    """Raise unless the definition has them: who mistypes a code would believe that he had accepted it."""
    look.copy.accept(options.server, options.tool, definition)
    await look.connection.reload(options.server)
    handles = {handle.tool: handle for handle in look.connection.tools(options.server)}
    if options.tool not in handles:
        raise RefusedError(
            f"{options.tool!r} cannot be judged: it changed since you looked; see `deputy-mcp pins diff`"
        )

    present = sorted({finding.code for finding in handles[options.tool].findings})
    for code in options.finding:
        if code not in present:
            raise ConfigError(
                f"{options.tool!r} has no finding {code!r} (it has: {', '.join(present) or 'none'})", key="finding"
            )


def _configured(options: argparse.Namespace, servers: list[str] | None) -> tuple[Config, PinBook]:
    config = load_config(options.config, servers)
    book = PinBook(options.pins) if options.pins else config.pins
    if book is None or book.path is None:
        raise ConfigError('there is no pin file; pass --pins FILE, or set "pins" under "deputy" in the configuration')

    return config, book


@asynccontextmanager
async def _looking(config: Config, book: PinBook) -> AsyncIterator[_Look]:
    """Starts the servers on a copy of the file: nothing is pinned by looking."""
    assert book.path is not None
    with tempfile.TemporaryDirectory() as folder:
        copy = evolve(book, path=Path(folder) / "pins.json", verify="change", new_servers="pin")
        assert copy.path is not None
        known = book.read()
        if book.path.exists():
            shutil.copyfile(book.path, copy.path)

        # Looking is no call: it is not journalled, and a program that runs beside it keeps its journal. A server that
        # is down keeps nobody from seeing the others.
        looked_at = evolve(
            config, journal=None, servers={n: evolve(spec, required=False) for n, spec in config.items()}
        )
        async with McpConnection(
            looked_at, permissions=Permissions(), restart=_ONCE, pins=copy, shadowing=True
        ) as connection:
            down = {
                name: status.reason or status.last_error or str(status.state)
                for name, status in connection.status().items()
                if status.state is not ServerState.READY
            }
            yield _Look(
                connection=connection,
                copy=copy,
                known=known,
                differing=connection.differences(),
                new={name: pins for name, pins in copy.read().items() if name not in known and name not in down},
                down=down,
            )


def _items(pins: ServerPins) -> list[tuple[str, Pinned]]:
    items = [*pins.tools.items()]
    if pins.instructions is not None:
        said = {"instructions": pins.instructions}
        items.append(("#instructions", Pinned(digest=definition_digest(said), raw=said)))

    items += [(f"#prompts/{name}", pinned) for name, pinned in pins.prompts.items()]
    return items + [(f"#resources/{uri}", pinned) for uri, pinned in pins.resources.items()]


def _facts(pins: ServerPins) -> dict[str, Any]:
    items = {name: {"digest": pin.digest, "accepted": sorted(pin.accepted)} for name, pin in _items(pins)}
    return {"pins": items, "instructions": pins.instructions is not None}


def _offered_facts(pins: ServerPins) -> dict[str, Any]:
    return {"digest": pins_digest(pins), "definitions": {name: pin.raw for name, pin in _items(pins)}}


def _difference_facts(one: PinDifference) -> dict[str, Any]:
    return {
        "server": one.server,
        "name": one.name,
        "code": one.code,
        "digest": one.digest,
        "difference": one.difference,
        "definition": one.definition,
    }
