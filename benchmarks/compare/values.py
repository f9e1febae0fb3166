"""What a situation consists of: servers, steps, and the right value of each step. Data only.

A right value says what a caller may expect, not what one of the clients does; `source` names the place that says so.
"""

from collections.abc import Mapping
from typing import Any, Literal

from attrs import field, frozen

Over = Literal["stdio", "http", "sse"]

CALL_SECONDS = 1.0
"""The deadline of a call, given to every client by its own means."""
AFTER_SECONDS = 1.5
"""The deadline of the healthy call afterwards: time enough for a restart after half a second of backing off."""
START_SECONDS = 3.0
"""The deadline of a start, given by the client's own means where it has any."""
STOP_SECONDS = 5.0
"""A server that did not start may be taken down before the start is said to have failed, in so long."""
LATE_SECONDS = 0.5
"""So much later than a deadline is not the deadline any more. Generous: the machine may be busy."""
BOUND_SECONDS = 9.0
"""A client that has not come to the end of a situation by then is killed."""


# -- right values ----------------------------------------------------------------------------------------------------


@frozen
class Text:
    """A result whose text is exactly this."""

    text: str


@frozen
class Delivered:
    """A result, no error, whose blocks or structured content hold this."""

    holds: str


@frozen
class ToolFails:
    """A result that says itself that the tool failed, with exactly this text."""

    text: str


@frozen
class Fails:
    """An error, well before the deadline, whose text holds all of `says`."""

    says: tuple[str, ...] = ()


@frozen
class AtDeadline:
    """An error when the deadline passes, not before and not much later: nothing else was to be had."""

    grace_seconds: float = LATE_SECONDS


@frozen
class Cancelled:
    """The cancellation that the caller asked for."""


@frozen
class Names:
    """A listing of exactly these tools, each once."""

    names: tuple[str, ...]


@frozen
class Opens:
    """A connection without an error."""

    within_seconds: float = START_SECONDS


@frozen
class Anything:
    """Not judged, as long as it comes back and leaves the caller alone."""


@frozen
class OneOf:
    """Any of these is right."""

    rights: tuple["Right", ...]


Right = Text | Delivered | ToolFails | Fails | AtDeadline | Cancelled | Names | Opens | Anything | OneOf


# -- steps -----------------------------------------------------------------------------------------------------------


@frozen(kw_only=True)
class Call:
    """One call of a tool."""

    right: Right
    tool: str = "echo"
    server: str = "main"
    arguments: Mapping[str, Any] = field(factory=dict)
    deadline_seconds: float = CALL_SECONDS
    release: str | None = None
    """A gate that is opened when this call has come back."""
    afterwards: bool = False
    """A healthy call after the trouble: tried twice, and a client that fails at it cannot be used any more."""
    do: str = "call"


@frozen(kw_only=True)
class Together:
    """Calls made at the same time."""

    calls: tuple[Call, ...]
    do: str = "together"


@frozen(kw_only=True)
class Abandon:
    """A call that its caller cancels when the server holds it."""

    call: Call
    do: str = "abandon"


@frozen(kw_only=True)
class List:
    """The tools of a server, all pages."""

    right: Right
    server: str = "main"
    do: str = "list"


@frozen(kw_only=True)
class Release:
    """Opens a gate of the server."""

    gate: str
    do: str = "release"


@frozen(kw_only=True)
class Kill:
    """SIGKILL for the server, and over HTTP a new process at the same address."""

    do: str = "kill"


@frozen(kw_only=True)
class Back:
    """Waits until something listens at the server's address again."""

    do: str = "back"


Step = Call | Together | Abandon | List | Release | Kill | Back

Script = Mapping[str, Any]
"""Fields of `ScriptedServer`."""
Nobody = Literal["no such command", "nobody listens"]


@frozen(kw_only=True, eq=False)
class Situation:
    """What servers do, what is done with them, and what is right."""

    name: str
    """For the command line; unique."""
    says: str
    """For people: what the server does."""
    source: str
    """Where the right value stands: a public issue (`owner/repository#number`), a page of the docs, or a clause."""
    servers: Mapping[str, Script | Nobody]
    steps: tuple[Step, ...] = ()
    over: tuple[Over, ...] = ("stdio", "http")
    opens: Right = Opens()
    """The right value of connecting."""
    lists: Right | None = Names(("echo", "well"))
    """The right value of the listing that every host asks for first; None: it is a step of its own."""
    notes: int | None = None
    """How often the effect of a tool (`note`) may have happened; more is a call sent twice."""
    bound_seconds: float = BOUND_SECONDS

    @property
    def all_steps(self) -> tuple[Step, ...]:
        return self.steps if self.lists is None else (List(right=self.lists), *self.steps)


def after(tool: str = "well", *, server: str = "main", text: str | None = None) -> Call:
    """A healthy call with arguments of its own, so that another call's answer is recognised."""
    arguments = {"word": "still here"}
    echoed = f'{{"tool": "{tool}", "arguments": {{"word": "still here"}}}}'
    return Call(
        tool=tool,
        server=server,
        arguments=arguments,
        right=Text(echoed if text is None else text),
        deadline_seconds=AFTER_SECONDS,
        afterwards=True,
    )


AFTER = after()
