"""The smallest MCP server that answers: both eras, echo and a few more, nothing but the standard library.

`python echo.py [TOOLS [LISTING]] [stubborn]`: how many tools it lists, and whether each listing is the `same`, `moved`
(another order) or `changed` (one tool that nobody calls has another description). `stubborn`: neither the end of its
input nor SIGTERM ends it. Cheap, so that the client is what is measured: whatever has arrived is answered in one write.
"""

import json
import os
import signal
import sys
import time
from typing import Any

DIALECT = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
FILLER = "Looks up one entry of the register by its number and gives back what is known of it, newest first. " * 4


def tool(name: str, description: str, schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": description,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }


def look_up(number: int) -> dict[str, Any]:
    return tool(
        f"look_up_{number}",
        FILLER,
        {
            "type": "object",
            "properties": {
                "number": {"type": "integer", "minimum": 0, "description": "The number of the entry."},
                "fields": {"type": "array", "items": {"type": "string"}, "description": "What is wanted of it."},
                "order": {"type": "string", "enum": ["newest", "oldest"], "default": "newest"},
            },
            "required": ["number"],
        },
    )


TOOLS = [
    tool("echo", "Gives back its text.", TEXT),
    tool("count", "How often tools were listed and called, and how many connections there were.", {"type": "object"}),
    tool("hang", "Never answers.", {"type": "object"}),
]


class Echo:
    """What the server says, whatever carries it."""

    # Mutable state: the tools, and the counts.
    def __init__(self, tools: int = len(TOOLS), listing: str = "same") -> None:
        self.tools = [*TOOLS, *map(look_up, range(tools - len(TOOLS)))][:tools]
        self.listing = listing
        self.listings = self.calls = self.connections = 0
        self._same = self._listed()

    def _listed(self) -> str:
        return json.dumps({"tools": self.tools} | DIALECT)

    def reply(self, line: bytes) -> bytes | None:
        """The reply to one message, as a line without its end."""
        message = json.loads(line)
        wire_id, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if wire_id is None or method is None:
            return None

        if method == "tools/call" and params["name"] == "hang":
            return None

        result = self.answer(method, params)
        if result is None:
            error = '{"code": -32601, "message": "no such method"}'
            return f'{{"jsonrpc": "2.0", "id": {json.dumps(wire_id)}, "error": {error}}}'.encode()

        return f'{{"jsonrpc": "2.0", "id": {json.dumps(wire_id)}, "result": {result}}}'.encode()

    def answer(self, method: str, params: dict[str, Any]) -> str | None:
        if method == "tools/call":
            return self._called(params["name"], params.get("arguments") or {})

        if method == "tools/list":
            return self._list()

        if method == "server/discover":
            return json.dumps({"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}} | DIALECT)

        if method == "initialize":
            server = {"name": "echo", "version": "1"}
            version = params["protocolVersion"]
            return json.dumps({"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})

        return "{}" if method == "ping" else None

    def _called(self, name: str, arguments: dict[str, Any]) -> str:
        self.calls += 1
        if name == "count":
            counts = {"listings": self.listings, "calls": self.calls, "connections": self.connections}
            text = json.dumps(counts)
        else:
            text = str(arguments["text"])

        return json.dumps({"content": [{"type": "text", "text": text}], "resultType": "complete"})

    def _list(self) -> str:
        self.listings += 1
        if self.listing == "same":
            return self._same

        if self.listing == "moved":
            self.tools.append(self.tools.pop(0))
        else:
            self.tools[-1] = self.tools[-1] | {"description": f"Described {self.listings} times."}

        return self._listed()


def main() -> None:
    words = sys.argv[1:]
    stubborn = "stubborn" in words
    if stubborn:
        words.remove("stubborn")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    echo = Echo(int(words[0]) if words else len(TOOLS), *words[1:])
    rest = b""
    while chunk := os.read(0, 1 << 20):
        *lines, rest = (rest + chunk).split(b"\n")
        replies = [reply + b"\n" for reply in map(echo.reply, lines) if reply is not None]
        out = memoryview(b"".join(replies))
        while out:
            out = out[os.write(1, out) :]

    while stubborn:
        time.sleep(60)


if __name__ == "__main__":
    main()
