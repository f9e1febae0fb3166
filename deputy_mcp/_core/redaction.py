"""What of a call's arguments may stand in the journal.

Not a search for secrets: it hides the values it was told of, the values under keys that are named like secrets, and
whatever the host's own `redact` takes out. It promises: bounded depth, values and bytes whatever the arguments; a text
is masked before it is cut, for half a secret would be found by nobody; a `redact` that fails hides everything.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

from deputy_mcp._core.sanitizing import mask_secrets

Redact = Callable[[dict[str, Any]], Mapping[str, Any]]
"""The host's own: a copy of the arguments in, what may be recorded of them out. Synchronous."""

MASK = "***"
MAX_ARGUMENTS_BYTES = 64 * 1024
"""Recorded arguments of one call, as JSON; larger ones are left out, and the line says so."""
MAX_ARGUMENT_TEXT = 4_096
"""Characters of one text in them; the rest is cut. The arguments' hash covers the whole."""
MAX_ARGUMENT_DEPTH = 32
"""Levels of objects and lists; deeper ones are shown as `…`."""
MOST_ARGUMENT_VALUES = 10_000
"""Values; later ones are shown as `…`."""
_MOST_NUMBER_BITS = 1_024
CUT = "…"

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]++")
_SECRET_WORDS = frozenset(
    {"password", "passwd", "passphrase", "pwd", "secret", "secrets", "token", "credential", "credentials"}
    | {"authorization", "auth", "cookie", "bearer", "jwt", "apikey", "otp"}
)
_KEY_KINDS = frozenset({"api", "access", "private", "secret", "signing", "encryption", "ssh"})
"""What makes a *key* one of those that open something: `api_key`, `privateKey`."""


def is_secret_name(name: str) -> bool:
    """Whether a value under this key is hidden. By whole words: `apiToken` and `client-secret`, not `max_tokens`."""
    words = [word.lower() for word in _WORDS.findall(name[:200])]
    return not _SECRET_WORDS.isdisjoint(words) or any(
        word == "key" and before in _KEY_KINDS for before, word in pairwise(words)
    )


def masked_text(text: str, secrets: tuple[str, ...], most: int) -> str:
    """`text` masked, then cut to `most` characters and a mark. `secrets` as `known_secrets` gives them."""
    if len(text) <= most:
        return mask_secrets(text, secrets) if secrets else text

    # Linear in `most`, whatever a server sends. The window's end may hold the beginning of a secret, which masking does
    # not find; what was masked before it moves it towards the front, so it is dropped and not only cut.
    longest = max(map(len, secrets), default=0)
    masked = mask_secrets(text[: most + longest], secrets)
    return masked[: max(0, min(most, len(masked) - longest))] + CUT


def recorded_arguments(
    arguments_json: bytes, *, secrets: tuple[str, ...], redact: Redact | None
) -> tuple[str | None, str | None]:
    """The arguments as JSON text for the journal, or None and why they are left out: `redact_failed`, `too_large`."""
    try:
        arguments: Any = json.loads(arguments_json)
        if redact is not None:
            arguments = redact(arguments)
            if not isinstance(arguments, Mapping):
                return None, "redact_failed"

        encoded = json.dumps(_Walk(secrets).value(arguments, 0), separators=(",", ":"))
    except Exception:  # noqa: BLE001 # the host's own callable, and what it gave; hidden is the safe side
        return None, "redact_failed"

    return (encoded, None) if len(encoded) <= MAX_ARGUMENTS_BYTES else (None, "too_large")


class _Walk:
    """One walk over one call's arguments."""

    # Mutable state: how many values may still come.
    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self._left = MOST_ARGUMENT_VALUES

    def value(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0 or depth > MAX_ARGUMENT_DEPTH:
            return CUT

        match value:
            case None | bool():
                return value
            case str():
                return self._text(value)
            case int():
                return value if value.bit_length() <= _MOST_NUMBER_BITS else "<number>"
            case float():
                return value if math.isfinite(value) else "<number>"
            case Mapping():
                return self._object(value, depth)
            case list() | tuple():
                return [self.value(item, depth + 1) for item in value[: self._left + 1]]

        return f"<{type(value).__name__}>"

    def _object(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, item in value.items():
            name = self._text(str(key))
            shown[name] = MASK if is_secret_name(str(key)) else self.value(item, depth + 1)
            if self._left < 0:
                break

        return shown

    def _text(self, text: str) -> str:
        return masked_text(text, self._secrets, MAX_ARGUMENT_TEXT)
