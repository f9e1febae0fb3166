"""A scripted server over stdin and stdout."""

import json
import os
import sys
import threading
from typing import Any

from .engine import Json, Peer


class Pipe:
    """stdout. Whole writes, one at a time."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._lock = threading.Lock()

    def message(self, data: bytes, *, last: bool) -> None:
        self.raw(data + self._peer.script["line_end"].encode())

    def raw(self, data: bytes) -> None:
        with self._lock:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    def step(self, step: Json) -> None:
        if step["op"] == "close_stdout":
            os.close(1)
        elif step["op"] == "drop_stream":
            # How a listening request ends without the server's good-bye, where there is no stream to cut.
            error = {"code": -32000, "message": "the stream was dropped"}
            self.message(json.dumps({"jsonrpc": "2.0", "id": step["id"], "error": error}).encode(), last=True)
        else:
            raise ValueError(f"{step['op']} is an action for HTTP")

    def finish(self) -> None:
        pass

    def detach(self) -> bool:
        return True


def main(script_path: str) -> None:
    """Read lines until stdin ends."""
    peer = Peer(script_path)
    pipe = Pipe(peer)
    try:
        peer.play(peer.script["at_start"], {}, pipe)
        for line in sys.stdin.buffer:
            _take(peer, json.loads(line), pipe)
    except BrokenPipeError:
        pass

    if peer.script.get("stubborn"):
        threading.Event().wait()

    peer.note({"kind": "left"})
    os._exit(0)


def _take(peer: Peer, message: Any, pipe: Pipe) -> None:
    listens = isinstance(message, dict) and message.get("method") == "subscriptions/listen"
    if listens and peer.offers_listen:
        peer.note({"kind": "received", "message": message})
        peer.listen(message, pipe)
    else:
        peer.take(message, pipe)
