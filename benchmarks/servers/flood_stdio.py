"""An MCP server on stdio whose tool `play` does what its arguments say: floods, dribbles, goes silent.

`python flood_stdio.py [LISTING]`. `LISTING` is one of `flood_answers.LISTINGS`; `none`: it gives no listing at all;
`stubborn`: it ignores the end of its input and SIGTERM. Arguments of `play`: `what` (a method of `Player`, or a
result's name), `size`, `mark` (a file that gets the moment at which `size` bytes of a flood had been written),
`pause` (seconds between two pieces of a flood), `seconds` (how long it lasts).
"""

import contextlib
import fcntl
import json
import math
import os
import signal
import sys
import time
from typing import Any

import flood_answers as answers

LARGE_PIPE_BYTES = 1024 * 1024
SET_PIPE_SIZE = 1031
"""F_SETPIPE_SZ on Linux, which Python 3.11 does not name everywhere. A server may make the client's reads large."""


def write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


class Player:
    """What `play` can do, by name. Whatever does not return never answers."""

    def __init__(self, wire_id: bytes, arguments: dict[str, Any]) -> None:
        self.id = wire_id
        self.size: int = arguments.get("size", 0)
        self.mark: str | None = arguments.get("mark")
        self.pause: float = arguments.get("pause", 0)
        self.seconds: float = arguments.get("seconds", math.inf)
        self.name: str = arguments.get("name", "")

    def reply(self) -> None:
        write(answers.HEAD % self.id)
        write(answers.result(self.name, self.size))
        write(b"}\n")

    def fail(self) -> None:
        write(b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"' % self.id)
        write(b"\\u001b" * (self.size // 6))
        write(b'"}}\n')

    def raw(self) -> None:
        write(answers.raw(self.name, self.size))
        self.fine()

    def fine(self) -> None:
        write(answers.HEAD % self.id + json.dumps(answers.answer("tools/call", {})).encode() + b"}\n")

    def endless_line(self) -> None:
        write(answers.FLOOD_HEAD % self.id)
        sent = 0
        while True:
            write(answers.PIECE)
            sent += len(answers.PIECE)
            if self.mark is not None and sent >= self.size:
                note_moment(self.mark)
                self.mark = None

            if self.pause:
                time.sleep(self.pause)

    def notifications(self) -> None:
        notes = (answers.NOTE + b"\n") * 600
        end = time.monotonic() + self.seconds
        while time.monotonic() < end:
            write(notes)

        self.fine()

    def dribble(self) -> None:
        write(answers.FLOOD_HEAD % self.id)
        while True:
            write(b"a")
            time.sleep(0.001)

    def silence(self) -> None:
        pass

    def freeze(self) -> None:
        while True:
            time.sleep(60)


def note_moment(path: str) -> None:
    """This moment, by the clock that all processes share, in whole or not at all."""
    with open(path + ".part", "w") as file:
        file.write(repr(time.monotonic()))

    os.replace(path + ".part", path)


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else "plain"
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    with contextlib.suppress(OSError):
        fcntl.fcntl(1, SET_PIPE_SIZE, LARGE_PIPE_BYTES)

    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue

        wire_id = json.dumps(message["id"]).encode()
        method, params = message["method"], message.get("params") or {}
        if method == "tools/list":
            if mode != "none":
                write(answers.HEAD % wire_id + answers.listing(mode if mode in answers.LISTINGS else "plain") + b"}\n")
        elif method == "tools/call":
            arguments = params.get("arguments") or {}
            getattr(Player(wire_id, arguments), arguments.get("what", "fine"))()
        else:
            result = answers.answer(method, params)
            body = {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
            write(json.dumps({"jsonrpc": "2.0", "id": message["id"]} | body).encode() + b"\n")

    while mode == "stubborn":
        time.sleep(60)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
