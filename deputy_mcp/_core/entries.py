"""One entry of a configuration file, turned into a server spec: the pure half of `load_config`.

Not a reader: `_runtime.configfile` finds, reads and takes apart the file and hands in its folder, the home folder and
the variables. The laws:

- A variable's value is put in once and never read again, so a value that holds `${B}` or `~` stays as it is.
- A value never stands in an error or a repr: every one of them may be a secret. Names do.
- Keys of other programs are read where they mean the same here. Where they would grant something, they grant nothing.
- Inside `"deputy"` an unknown key is an error: a misspelt restriction must not become none.
- What nests is bounded by the reader, so recursion here is.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, TypeVar
from urllib.parse import urlsplit

from attrs import field, fields_dict, frozen

from deputy_mcp._core.config import CommonFields, HttpServer, Limits, RestartPolicy, Server, StdioServer
from deputy_mcp._core.errors import ConfigError
from deputy_mcp._core.frozen import check_flag, check_mapping, check_text, wrong_type
from deputy_mcp._core.permissions import Permissions

T = TypeVar("T")

OWN_KEY = "deputy"
"""The key that holds our settings, at the top of a file and in each entry."""
TRANSPORTS = {"stdio": "stdio", "sse": "sse"} | dict.fromkeys(
    ("http", "streamable-http", "streamableHttp", "streamable_http"), "http"
)
"""The spellings of `type` and `transport` (F70), and what each means."""
URL_KEYS = ("url", "serverUrl", "httpUrl")

SERVER_KEYS = tuple(fields_dict(CommonFields))
"""What `"deputy"` in an entry may hold: the fields of every server spec."""
LIMIT_KEYS = tuple(fields_dict(Limits))
RESTART_KEYS = tuple(fields_dict(RestartPolicy))
PERMISSION_KEYS = ("web", "write", "destructive", "tool_allowlist", "tool_denylist")
"""The constructor's fields that a file can state; a callback it cannot."""

TRUST_KEYS = frozenset(
    {"allow", "alwaysallow", "alwaysapprove", "autoallow", "autoapprove", "autoapprovetools"}
    | {"autoexecute", "autorun", "defaulttoolsapprovalmode", "trust", "trusted"}
)
"""Keys by which other programs stop asking, in lower case without `_` and `-`."""
RESTRICTING_KEYS = frozenset(
    {"allowedtools", "blockedtools", "deniedtools", "disabledtools"}
    | {"enabledtools", "envfile", "excludetools", "includetools"}
)
"""Keys of other programs that would be missed if they were passed over in silence. Spelt as in `TRUST_KEYS`."""
MISPLACED_KEYS = frozenset(key.replace("_", "") for key in SERVER_KEYS)
"""Our own settings, written beside `"deputy"` instead of inside. Spelt as in `TRUST_KEYS`."""

MAX_SHOWN_NAMES = 20
"""How many names an error lists; the rest is counted."""
MAX_SHOWN_CHARACTERS = 80
"""How much of one name an error shows, and the longest name compared for likeness, which is quadratic."""

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<body>[^}]*)(?P<end>\}?)")
_BODY = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>.*))?", re.DOTALL)


class JsonObject(dict[str, Any]):
    """A parsed JSON object that remembers the keys it was given twice, which a dict would forget.

    They cannot be refused while parsing: a duplicate in an entry that nobody asked for blocks nothing.
    """

    __slots__ = ("repeated",)

    def __init__(self, pairs: Sequence[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.repeated: tuple[str, ...] = ()
        if len(self) != len(pairs):
            self.repeated = tuple(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)


@frozen(kw_only=True, repr=False)
class Entry:
    """One entry, judged."""

    server: Server
    secrets: tuple[str, ...] = field(default=())
    """The values that variables put in: longest first, each once, none empty."""
    ungranted: tuple[str, ...] = field(default=())
    """Keys that widen trust in other programs and grant nothing here."""
    unheeded: tuple[str, ...] = field(default=())
    """Keys that look like a restriction or a setting and have no effect where they stand."""


@contextmanager
def placed(place: str, *, under: str = "", server: str | None = None, path: str | None = None) -> Iterator[None]:
    """Put `place` before the text of a `ConfigError` from the block and `under` before its key; add what it lacks."""
    try:
        yield
    except ConfigError as error:
        key = ".".join(part for part in (under, error.key) if part) or None
        message = f"{place}: {error.message}"
        raise ConfigError(message, server=error.server or server, key=key, path=error.path or path) from None


def shown(name: str) -> str:
    """A name from a file for an error's text: quoted, odd characters escaped, cut."""
    return repr(name if len(name) <= MAX_SHOWN_CHARACTERS else name[:MAX_SHOWN_CHARACTERS] + "…")


def bare(name: str) -> str:
    """`shown` without the quotes, for a place such as `env.NAME`."""
    return shown(name)[1:-1]


def listed(names: Iterable[str]) -> str:
    """Names for an error's text; `none` when there are none."""
    all_names = list(names)
    text = ", ".join(shown(name) for name in all_names[:MAX_SHOWN_NAMES]) or "none"
    more = len(all_names) - MAX_SHOWN_NAMES
    return f"{text} and {more} more" if more > 0 else text


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that names what looks like `name`, or nothing."""
    from difflib import get_close_matches  # here: only errors need it

    short = [other for other in known if len(other) <= MAX_SHOWN_CHARACTERS]
    near = get_close_matches(name, short) if len(name) <= MAX_SHOWN_CHARACTERS else []
    return f"; did you mean {' or '.join(shown(other) for other in near)}?" if near else ""


def kind_of(value: object) -> str:
    """What a JSON value is, for an error's text."""
    return "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else type(value).__name__


def read_entry(name: str, raw: object, *, folder: str, home: str | None, variables: Mapping[str, str]) -> Entry:
    """Judge one entry that is not disabled; `raw` is what the file holds for it. Raises `ConfigError`.

    `folder` is the file's, absolute: relative paths are relative to it. `home` is what `~` means, None if unknown.
    """
    with placed(f"server {shown(name)}", server=name):
        check_text("the name", name)
        _check_encodable("the name", name)
        if not isinstance(raw, JsonObject):
            raise ConfigError(f"the entry must be an object, not {kind_of(raw)}")

        check_repeated(raw)
        entry = plain(raw)
        for key in ("disabled", "enabled"):
            if key in entry:
                check_flag(key, entry[key])

        secrets: list[str] = []
        fields = _Fields(entry=entry, folder=folder, home=home, variables=variables, secrets=secrets)
        common = fields.common()
        transport = fields.transport()
        server = fields.stdio(common) if transport == "stdio" else fields.http(transport, common)

    return Entry(
        server=server,
        secrets=tuple(sorted(dict.fromkeys(secrets), key=len, reverse=True)),
        ungranted=tuple(key for key, value in entry.items() if _spelt(key) in TRUST_KEYS and value),
        unheeded=tuple(key for key, value in entry.items() if _is_missed(_spelt(key), value)),
    )


def _spelt(key: str) -> str:
    return key.replace("_", "").replace("-", "").lower()


def _is_missed(spelt: str, value: object) -> bool:
    # Of our own settings even a false or empty one restricts; `["*"]` is how other programs write "all tools".
    return value != ["*"] and (spelt in MISPLACED_KEYS or (spelt in RESTRICTING_KEYS and bool(value)))


@frozen(kw_only=True, repr=False)
class _Fields:
    """One entry's fields, read. `secrets` is the caller's list, to which the values of variables are added."""

    entry: Mapping[str, Any]
    folder: str
    home: str | None
    variables: Mapping[str, str]
    secrets: list[str]

    def transport(self) -> str:
        """`stdio`, `http` or `sse`, from what the entry says and what it holds."""
        stated = {key: self._stated(key) for key in ("type", "transport") if key in self.entry}
        if len(set(stated.values())) > 1:
            raise ConfigError("type and transport disagree; keep one", key="type")

        given = [key for key in ("command", *URL_KEYS) if key in self.entry]
        if not given:
            raise ConfigError("it has neither command nor url; add one", key="command")

        if len(given) > 1:
            raise ConfigError(f"it has both {given[0]} and {given[1]}; keep one", key=given[1])

        found = "stdio" if given == ["command"] else "http"
        for key, transport in stated.items():
            if (transport == "stdio") != (found == "stdio"):
                raise ConfigError(f"{key} does not go with {given[0]}; remove or correct it", key=key)

            found = transport

        return found

    def _stated(self, key: str) -> str:
        spelling = check_text(key, self.entry[key])
        if spelling not in TRANSPORTS:
            raise ConfigError(f"{key} is unknown; write one of {', '.join(TRANSPORTS)}", key=key)

        return TRANSPORTS[spelling]

    def stdio(self, common: Mapping[str, Any]) -> StdioServer:
        """The entry as a child process."""
        command = self._path("command", search=True)
        args = self.entry.get("args", [])
        if not isinstance(args, list):
            wrong_type("args", args, "a list of strings")

        return StdioServer(
            command,
            args=[self._text(f"args[{i}]", arg) for i, arg in enumerate(args)],
            env=self._texts("env", ends="="),
            cwd=self._path("cwd") if "cwd" in self.entry else None,
            **common,
        )

    def http(self, transport: str, common: Mapping[str, Any]) -> HttpServer:
        """The entry as a URL."""
        key = next(key for key in URL_KEYS if key in self.entry)
        url = check_text(key, self._text(key, self.entry[key]))
        headers = self._texts("headers", ends=": ")
        try:
            _ = urlsplit(url).port
        except ValueError:
            # urllib's own text quotes the part it cannot read, and a URL can hold a password.
            raise ConfigError(f"{key} is no URL; look at its host and port", key=key) from None

        return HttpServer(url, headers=headers, transport="sse" if transport == "sse" else "http", **common)

    def common(self) -> dict[str, Any]:
        """Our own settings in the entry, as arguments for a server spec."""
        if OWN_KEY not in self.entry:
            return {}

        with placed(f'"{OWN_KEY}"', under=OWN_KEY):
            settings = dict(checked_keys(self.entry[OWN_KEY], SERVER_KEYS))
            limits = settings.get("limits")
            if isinstance(limits, dict) and isinstance(limits.get("spill_directory"), str):
                path = limits["spill_directory"]
                limits["spill_directory"] = self._placed_path(
                    "limits.spill_directory", path, tilde=path.startswith("~")
                )

            settings["limits"] = built(Limits, "limits", limits, LIMIT_KEYS)
            settings["restart"] = built(RestartPolicy, "restart", settings.get("restart"), RESTART_KEYS)
            settings["permissions"] = built(Permissions, "permissions", settings.get("permissions"), PERMISSION_KEYS)
            # Made once by itself, so that the error of a field in it says that it stands in "deputy".
            CommonFields(**settings)

        return settings

    def _text(self, key: str, value: object) -> str:
        """The string at `key` with its variables put in."""
        text = check_text(key, value, empty=True)
        values: list[str] = []
        expanded = check_text(key, expand(key, text, self.variables, values.append), empty=True)
        self.secrets.extend(value for value in values if value)
        _check_encodable(key, expanded)
        return expanded

    def _texts(self, key: str, *, ends: str) -> dict[str, str]:
        """The object of strings at `key`, {} without one; a name ends before any character of `ends`."""
        texts = {}
        for i, (name, value) in enumerate(check_mapping(key, self.entry.get(key, {})).items()):
            # "NAME=secret" in the place of the name is a usual slip, so such a name is not shown.
            if any(end in name for end in ends):
                held = " or ".join(map(repr, ends))
                raise ConfigError(f"name {i + 1} in {key} holds {held}; write the name alone before the colon", key=key)

            texts[name] = self._text(f"{key}.{bare(name)}", value)

        return texts

    def _path(self, key: str, *, search: bool = False) -> str:
        raw = check_text(key, self.entry[key])
        return self._placed_path(key, check_text(key, self._text(key, raw)), tilde=raw.startswith("~"), search=search)

    def _placed_path(self, key: str, path: str, *, tilde: bool, search: bool = False) -> str:
        """`path` with its `~` put in, or under the file's folder. With `search`, a bare name is left to the PATH."""
        if tilde:
            if path != "~" and not path.startswith("~/"):
                raise ConfigError(f"{key} begins with ~ and a name; only ~/ is known, write the folder out", key=key)

            if self.home is None:
                raise ConfigError(f"{key} begins with ~ and the home folder is unknown; write it out", key=key)

            return self.home.rstrip("/") + path[1:] or "/"

        if not path or (search and "/" not in path):
            return path

        # Joined and not normalised: `a/../b` is another file than `b` when `a` is a link.
        return str(PurePosixPath(self.folder, path))


def expand(key: str, text: str, variables: Mapping[str, str], seen: Callable[[str], None]) -> str:
    """`text` with `${VAR}`, `${VAR:-default}` and `${env:VAR}` replaced, in a single pass (F71).

    The default counts when the variable is unset or empty, as in a shell, and ends at the first `}`. `$${X}` is a
    literal `${X}`. Everything else with a dollar sign (`$VAR`, `$$`, `$5`) stays. What begins like a reference and is
    none is an error: sending it as it stands is hardly ever meant. `seen` gets each variable's value, not the
    defaults, which stand in the file already.
    """

    def value_of(found: re.Match[str]) -> str:
        if found[0] == "$${":
            return "${"

        if not found["end"]:
            raise ConfigError(f"{key} holds ${{ without a closing }}; write $${{ for a literal ${{", key=key)

        if found["body"].startswith("input:"):
            raise ConfigError(
                f"{key} holds ${{input:…}}, which is not supported: nobody is asked here; use ${{VAR}} and set it",
                key=key,
            )

        body = _BODY.fullmatch(found["body"])
        if body is None or "${" in (body["default"] or ""):
            raise ConfigError(
                f"{key} holds a ${{…}} that is none of ${{VAR}}, ${{VAR:-default}} and ${{env:VAR}}; "
                f"write $${{ for a literal ${{",
                key=key,
            )

        value, default = variables.get(body["name"]), body["default"]
        if not value and default is not None:
            return str(default)

        if value is None:
            name = bare(body["name"])
            raise ConfigError(
                f"{key} needs the variable {name}, which is not set; set it or write ${{{name}:-default}}", key=key
            )

        check_text(f"the variable {body['name']}", value, empty=True)
        seen(value)
        return value

    return _REFERENCE.sub(value_of, text)


def _check_encodable(key: str, text: str) -> None:
    try:
        # surrogateescape: how bytes that are no UTF-8 come in through a variable, and go out again to a child.
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ConfigError(f"{key} holds half of a surrogate pair, which is no character; remove it", key=key) from None


def plain(value: object) -> Any:
    """The value without `JsonObject`, whose name would mean nothing in an error."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}

    return [plain(item) for item in value] if isinstance(value, list) else value


def check_repeated(value: object, place: str = "") -> None:
    """Raise for a key that stands twice in an object, however deep."""
    items: Iterable[tuple[str, object]] = ()
    if isinstance(value, JsonObject):
        for key in value.repeated:
            raise ConfigError(f"{place}{bare(key)} is written twice; keep one", key=f"{place}{bare(key)}")

        items = ((bare(key), item) for key, item in value.items())
    elif isinstance(value, list):
        items = ((str(i), item) for i, item in enumerate(value))

    for inner, item in items:
        check_repeated(item, f"{place}{inner}.")


def checked_keys(value: object, known: Sequence[str], key: str = "") -> Mapping[str, Any]:
    """The object at `key` (without one: our settings as a whole), whose names are all known."""
    if not isinstance(value, dict):
        raise ConfigError(f"{key or 'it'} must be an object, not {kind_of(value)}", key=key or None)

    for name in value:
        if name not in known:
            raise ConfigError(
                f"{key and key + ': '}{shown(name)} is no key here{nearest(name, known)} (known: {', '.join(known)})",
                key=f"{key and key + '.'}{bare(name)}",
            )

    return value


def built(kind: Callable[..., T], key: str, value: object, known: Sequence[str]) -> T | None:
    """`kind` made of the object at `key`; None from null, which says nothing."""
    if value is None:
        return None

    settings = checked_keys(value, known, key)
    with placed(key, under=key):
        return kind(**settings)
