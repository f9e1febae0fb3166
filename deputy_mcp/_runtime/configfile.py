"""The only reader of files and of the environment for configuration: finds a file, reads it bounded, parses its JSON.

Not a judge: what an entry means says `_core.entries`, what a value may be says `_core.config`. The laws:

- An entry is judged only when it is asked for; a broken one that nobody named blocks nothing.
- A file in the current folder is never picked up by itself: a cloned repository must not start commands.
- A file that cannot be read is an error and never an empty one.
- Whatever the bytes, the outcome is a `Config`, or a `ConfigError` that names file, place and mend and holds no value.
"""

import json
import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from attrs import frozen

from deputy_mcp._core.config import MIB, Server
from deputy_mcp._core.entries import (
    OWN_KEY,
    Entry,
    JsonObject,
    kind_of,
    listed,
    nearest,
    placed,
    read_entry,
    shown,
)
from deputy_mcp._core.errors import ConfigError, DeputyWarning
from deputy_mcp._core.frozen import FrozenMapping, check_texts, wrong_type
from deputy_mcp._core.permissions import Permissions
from deputy_mcp._runtime.journal import Journal
from deputy_mcp._runtime.pin_book import PinBook
from deputy_mcp._runtime.top_settings import read_top

PATH_VARIABLE = "DEPUTY_MCP_CONFIG"
"""The variable that names the file when no path is given."""
MAX_CONFIG_BYTES = 4 * MIB
"""The largest file that is read; a larger one is refused unread. Real ones hold kilobytes; this bounds memory and time
when a path turns out to name a log, a device or a pipe."""
MAX_CONFIG_DEPTH = 64
"""How deep objects and lists may nest; deeper is refused before parsing, so that the interpreter's own limit, which
depends on the caller's stack, never decides. No form of configuration goes past ten."""
MAX_NUMBER_DIGITS = 300
"""Longer whole numbers are read as floats (infinity), which every field refuses: int() is quadratic in the digits."""
WRAPPER_KEYS = ("mcpServers", "servers")
"""The key that holds the entries: Claude Desktop's and Claude Code's, VS Code's. Without either it is a bare map."""

_LEXEME = re.compile(
    r"""(?P<string>"(?:[^"\\]++|\\.)*+"?)
    | (?P<comment>//[^\r\n]*+ | /\*(?:[^*]++|\*(?!/))*+(?:\*/)?)
    | (?P<open>[\[{]) | (?P<close>[\]}]) | (?P<comma>,) | (?P<other>[^\s"/,\[\]{}]++|/)""",
    re.DOTALL | re.VERBOSE,
)
"""Every quantifier is possessive, so the scan is linear whatever the bytes."""
_ALL_BUT_LINE_ENDS = re.compile(r"[^\r\n]")


@frozen(kw_only=True, eq=False, repr=False)
class Config(Mapping[str, Server]):
    """A configuration file, read: a read-only mapping of name to server spec, and what the file says beside them.

    Its servers are those that were asked for, in the order asked for, or all that are not disabled.
    """

    servers: Mapping[str, Server]
    permissions: Permissions | None
    """`"deputy"."permissions"` at the top of the file; None: it says nothing about them."""
    pins: PinBook | None
    """`"deputy"."pins"`; None: it says nothing about them."""
    journal: Journal | None
    """`"deputy"."journal"`; None: it says nothing about one."""
    path: Path
    """The file, absolute. Relative paths in it are relative to its folder."""
    secrets: Mapping[str, tuple[str, ...]]
    """Per server, the values that variables put in: longest first, each once, none empty. They can stand in its
    command, arguments and URL, so whoever shows those masks them."""

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.servers)

    def __len__(self) -> int:
        return len(self.servers)

    def __repr__(self) -> str:
        return f"<Config {str(self.path)!r}: {listed(self.servers)}>"


def load_config(
    path: str | os.PathLike[str] | None = None,
    servers: Iterable[str] | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> Config:
    """Read a configuration file; raises `ConfigError`.

    `path`: the file; None: `$DEPUTY_MCP_CONFIG`, else `deputy-mcp/config.json` in the user's configuration folder, else
    `~/.config/mcptools/config.json`. `servers`: exact names, each of which must be there and not disabled; None: all
    that are not disabled. Only these are judged. `env`: the variables for `${VAR}`; None: the process's own. Where it
    holds `$HOME` or `$DEPUTY_MCP_CONFIG`, they go before the process's.

    Warns (`DeputyWarning`, once a server) of keys that other programs would grant or restrict something by.
    """
    return read_config(path, servers, env=env, broken=None)


def read_config(
    path: str | os.PathLike[str] | None,
    servers: Iterable[str] | None,
    *,
    env: Mapping[str, str] | None,
    broken: dict[str, ConfigError] | None,
) -> Config:
    """`load_config`, but with `broken` given a server that cannot be read is put there and the others are read."""
    variables = os.environ if env is None else env
    home = _home(variables)
    file = _find(path, variables, home)
    with placed(str(file), path=str(file)):
        document, found = _find_entries(parse_jsonc(_read_text(file)))
        names = _wanted_names(found, servers)
        top = read_top(document, folder=file.parent, home=home, variables=variables)

    entries = {}
    for name in names:
        try:
            with placed(str(file), server=name, path=str(file)):
                raw = _choose(found, name)
                entries[name] = read_entry(name, raw, folder=str(file.parent), home=home, variables=variables)
        except ConfigError as error:
            if broken is None:
                raise

            broken[name] = error

    for name, entry in entries.items():
        _warn(file, name, entry)

    return Config(
        servers=FrozenMapping({name: entry.server for name, entry in entries.items()}),
        permissions=top.permissions,
        pins=top.pins,
        journal=top.journal,
        path=file,
        secrets=FrozenMapping({name: entry.secrets for name, entry in entries.items()}),
    )


def _warn(file: Path, name: str, entry: Entry) -> None:
    said = []
    if entry.ungranted:
        said.append(f"{listed(entry.ungranted)} grants nothing here; what may be called is for permissions to say")

    if entry.unheeded:
        said.append(f'{listed(entry.unheeded)} has no effect here; restrict the server inside "deputy"')

    if said:
        # 4: the caller of load_config, who can mend the file.
        warnings.warn(f"{file}: server {shown(name)}: {'; '.join(said)}", DeputyWarning, stacklevel=4)


def _home(variables: Mapping[str, str]) -> str | None:
    home = variables.get("HOME") or os.path.expanduser("~")
    return home if os.path.isabs(home) else None


def _find(path: object, variables: Mapping[str, str], home: str | None) -> Path:
    """The file to read, absolute. A file that was named is not looked for anywhere else."""
    if path is not None:
        # bytes come out of a PathLike as well as in by themselves.
        text = os.fspath(path) if isinstance(path, str | os.PathLike) else path
        if not isinstance(text, str):
            wrong_type("path", path, "a string or a path")

        return _absolute("path", text, home)

    named = variables.get(PATH_VARIABLE) or os.environ.get(PATH_VARIABLE)
    if named:
        return _absolute(f"${PATH_VARIABLE}", named, home)

    import platformdirs  # here: only this search needs it, and an import of the library stays fast

    places = [Path(platformdirs.user_config_dir("deputy-mcp", appauthor=False), "config.json")]
    if home is not None:
        places.append(Path(home, ".config", "mcptools", "config.json"))

    for place in places:
        # lexists: a dangling link or an unreadable file was meant to be the configuration, and reading it says so.
        if os.path.lexists(place):
            return place

    looked = ", ".join((f"${PATH_VARIABLE} (not set)", *map(str, places)))
    raise ConfigError(f"there is no configuration file; name one or put it in one of the places looked at: {looked}")


def _absolute(key: str, path: str, home: str | None) -> Path:
    if not path or "\0" in path:
        raise ConfigError(f"{key} names no file: it is empty or holds a NUL character", key=key)

    if home is not None and (path == "~" or path.startswith("~/")):
        path = home.rstrip("/") + path[1:]

    try:
        os.fsencode(path)
        return Path(path).absolute()
    except UnicodeEncodeError:
        raise ConfigError(f"{key} names no file: it holds half of a surrogate pair", key=key) from None
    except OSError as error:  # the current folder is gone
        raise ConfigError(
            f"{key} is a relative path and the current folder is gone: {error.strerror}", key=key
        ) from None


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_CONFIG_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError("there is no such file; create it or name another") from None
    except IsADirectoryError:
        raise ConfigError("it is a folder; name the file in it") from None
    except OSError as error:
        raise ConfigError(f"it cannot be read: {error.strerror or type(error).__name__}") from None

    if len(content) > MAX_CONFIG_BYTES:
        raise ConfigError(f"it is larger than {MAX_CONFIG_BYTES} bytes, which no configuration is; name another")

    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"it is not UTF-8 (byte {error.start}); save it as UTF-8") from None

    if not text.strip():
        raise ConfigError('it is empty; write {"mcpServers": {}} for no servers')

    return text


def parse_jsonc(text: str) -> Any:
    """JSON with comments and trailing commas; objects are `JsonObject`s. Raises `ConfigError` with line and column.

    Comments and trailing commas are blanked out character by character, so the positions are the file's own (F69).
    """
    try:
        return json.loads(
            _blank_extras(text), object_pairs_hook=JsonObject, parse_int=_whole_number, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        _refuse(text, error.pos, f"it is not JSON: {error.msg}")


def _blank_extras(text: str) -> str:
    extras: list[tuple[int, int]] = []
    depth, before = 0, "open"
    comma: int | None = None  # where the last comma stands, if a value comes before it
    for found in _LEXEME.finditer(text):
        kind, start = str(found.lastgroup), found.start()
        if kind == "comment":
            if found[0].startswith("/*") and not found[0][2:].endswith("*/"):
                _refuse(text, start, "a comment begins here and is never closed; add */")

            extras.append(found.span())
            continue

        if kind == "comma":
            comma = None if before in ("open", "comma") else start
        elif kind == "open":
            depth += 1
            if depth > MAX_CONFIG_DEPTH:
                _refuse(text, start, f"it nests deeper than {MAX_CONFIG_DEPTH} objects and lists; flatten it")
        elif kind == "close":
            depth -= 1
            if before == "comma" and comma is not None:
                extras.append((comma, comma + 1))

        before = kind

    pieces, copied = [], 0
    for start, end in sorted(extras):
        pieces += [text[copied:start], _ALL_BUT_LINE_ENDS.sub(" ", text[start:end])]
        copied = end

    return "".join((*pieces, text[copied:]))


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_NUMBER_DIGITS else float(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ConfigError(f"it is not JSON: {name} is no number there; remove it")


def _refuse(text: str, position: int, what: str) -> NoReturn:
    line_start = text.rfind("\n", 0, position) + 1
    line = text.count("\n", 0, position) + 1
    raise ConfigError(f"line {line}, column {position - line_start + 1}: {what}")


def _find_entries(value: object) -> tuple[JsonObject, JsonObject]:
    """A parsed file's object and the entries in it, whichever of the three forms it has.

    A bare map is an object without a wrapper key in which every value is an object (`$schema` may be anything).
    Other objects are somebody's settings without servers, and are said to be that rather than read as no servers.
    """
    if not isinstance(value, JsonObject):
        raise ConfigError(f'the top level must be an object such as {{"mcpServers": {{…}}}}, not {kind_of(value)}')

    wrappers = [key for key in WRAPPER_KEYS if key in value]
    for key in (*wrappers, OWN_KEY):
        if key in value.repeated:
            raise ConfigError(f'"{key}" is written twice; keep one', key=key)

    if len(wrappers) > 1:
        raise ConfigError(f"both {listed(wrappers)} are given; keep one", key=wrappers[1])

    return value, _entries(value, *wrappers)


def _entries(value: JsonObject, wrapper: str | None = None) -> JsonObject:
    if wrapper is not None:
        entries = value[wrapper]
        if not isinstance(entries, JsonObject):
            raise ConfigError(
                f"{wrapper} must be an object of server names and entries, not {kind_of(entries)}", key=wrapper
            )

        return entries

    entries = JsonObject([(name, item) for name, item in value.items() if name not in (OWN_KEY, "$schema")])
    entries.repeated = tuple(name for name in value.repeated if name in entries)
    odd = [name for name, item in entries.items() if not isinstance(item, dict)]
    if odd:
        raise ConfigError(
            f'there is neither "mcpServers" nor "servers", and a bare map of servers holds only objects, '
            f'unlike {listed(odd)}; put the servers under "mcpServers"'
        )

    return entries


def _wanted_names(entries: JsonObject, wanted: Iterable[str] | None) -> tuple[str, ...]:
    """The names to judge, each once: the wanted ones, or all that are not disabled."""
    if wanted is None:
        return tuple(name for name, entry in entries.items() if not _is_disabled(entry))

    return tuple(dict.fromkeys(check_texts("servers", wanted)))


def _choose(entries: JsonObject, name: str) -> object:
    """The entry of a wanted server, which must be there, once, and not disabled."""
    if name not in entries:
        raise ConfigError(
            f"there is no server {shown(name)}{nearest(name, entries)} (known: {listed(entries)})",
            server=name,
            key="servers",
        )

    if _is_disabled(entries[name]):
        raise ConfigError(
            f"server {shown(name)} is disabled; enable it in the file or do not ask for it", server=name, key="disabled"
        )

    if name in entries.repeated:
        raise ConfigError(f"two servers are named {shown(name)}; rename or remove one", server=name)

    return entries[name]


def _is_disabled(entry: object) -> bool:
    # Only the exact values: anything else there is a wrong type, which judging the entry reports.
    return isinstance(entry, dict) and (entry.get("disabled") is True or entry.get("enabled") is False)
