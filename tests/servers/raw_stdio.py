"""A raw MCP server on stdin and stdout; what it does is told by the JSON in its first argument (see `behaviour`).

Beside that:

    stderr         words to say there at the start
    exit_at_start  the code to end with at once
    stubborn       lives on when stdin ends, and ignores SIGTERM; `lingers`: only the former
    grandchild     "group" or "session": starts a process that keeps stdout open and ignores SIGTERM
    leaf           the same words: it is the leaf that serves, and this process only waits for it, as a launcher does
"""

import json
import os
import signal
import sys
from typing import Any

from behaviour import Behaviour, Message, ignore_signals, stay


def main() -> None:
    config = json.loads(sys.argv[1])
    if config.get("leaf") and os.fork():
        if config.get("stubborn"):
            ignore_signals()

        os.close(0)
        os.close(1)
        os.wait()
        return

    if config.get("leaf") == "session":
        os.setsid()

    behaviour = Behaviour(config)
    behaviour.note("start")
    if config.get("stderr"):
        os.write(2, config["stderr"].encode())

    if config.get("stubborn"):
        ignore_signals()
    else:
        signal.signal(signal.SIGTERM, lambda *_: (behaviour.note("term"), os._exit(143)))

    if config.get("grandchild") and not os.fork():
        ignore_signals()
        if config["grandchild"] == "session":
            os.setsid()

        os.close(0)
        behaviour.note("grandchild")
        stay()

    if "exit_at_start" in config and behaviour.troubled():
        behaviour.end(config["exit_at_start"])

    serve(behaviour)


def serve(behaviour: Behaviour) -> None:
    def send(message: Message) -> None:
        data = json.dumps(message).encode() + b"\n"
        with behaviour.lock:
            while data:
                data = data[os.write(1, data) :]

    legacy = False
    for line in sys.stdin.buffer:
        message: Any = json.loads(line)
        behaviour.handle(message, send)
        if message.get("method") == "notifications/initialized" and not legacy:
            legacy = True
            behaviour.streams.append(send)

    behaviour.note("eof")
    if behaviour.config.get("stubborn") or behaviour.config.get("lingers"):
        stay()


main()
