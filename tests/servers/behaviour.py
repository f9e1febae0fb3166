"""What the small servers of these tests do, shared by the stdio one and the HTTP one.

Standard library only, so that a server starts in a few milliseconds. Speaks both eras. It is told in one JSON object
what to do, and writes what happens to it to the test's ledger, a line each:

    offers       names of the catalogue's tools; `tools_file`: a JSON list of definitions, read anew for each listing
    eras         which of "modern" and "legacy" it speaks; both
    replies      a result by method, instead of the usual one; `errors`: the same with JSON-RPC errors
    mute         methods that are never answered
    exit_on      an exit code by method: ends instead of answering; `exit_after`: answers first
    silent       answers nothing at all; `silent_for`: nothing to these methods
    troubled_by  a path: `exit_on`, `exit_after`, `exit_at_start`, `silent` and `silent_for` hold only while it exists
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Send = Callable[[Message], None]

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
MODERN = "2026-07-28"
LEGACY = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


def define(
    name: str,
    *,
    read_only: bool = True,
    destructive: bool = False,
    idempotent: bool = False,
    open_world: bool = False,
    output: Any = None,
    **properties: str,
) -> dict[str, Any]:
    """A tool's definition; `properties` are its arguments, name to JSON type ("any": no type), none required."""
    schema = {key: {} if kind == "any" else {"type": kind} for key, kind in properties.items()}
    tool: dict[str, Any] = {
        "name": name,
        "description": f"The tool {name} of a test.",
        "inputSchema": {"type": "object", "properties": schema, "additionalProperties": False},
        "annotations": {
            "readOnlyHint": read_only,
            "destructiveHint": destructive,
            "idempotentHint": idempotent,
            "openWorldHint": open_world,
        },
    }
    return tool if output is None else tool | {"outputSchema": output}


SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}

CATALOGUE = {
    tool["name"]: tool
    for tool in (
        define("echo", value="any"),
        define("pid"),
        define("hang"),
        define("gather", of="integer", value="any"),
        define("die", code="integer", words="string"),
        define("big", size="integer"),
        define("progress", count="integer", every="number"),
        define("typed", output=SUM, value="any"),
        define("fail"),
        define("fetch", open_world=True),
        define("note", read_only=False, value="any"),
        define("jot", read_only=False, code="integer"),
        define("put", read_only=False, idempotent=True, code="integer", flag="string"),
        define("wipe", read_only=False, destructive=True),
        define("tell"),
        define("hush"),
        define("mute"),
        define("forget"),
    )
}


class Request:
    """One request and the way back to who sent it."""

    def __init__(self, message: Message, send: Send) -> None:
        self.id = message["id"]
        self.method: str = message["method"]
        self.params: dict[str, Any] = message.get("params") or {}
        self.meta: dict[str, Any] = self.params.get("_meta") or {}
        self.send = send

    def answer(self, result: dict[str, Any]) -> None:
        stamp = {"resultType": "complete"} if VERSION_KEY in self.meta else {}
        self.send({"jsonrpc": "2.0", "id": self.id, "result": stamp | result})

    def refuse(self, code: int, text: str) -> None:
        self.send({"jsonrpc": "2.0", "id": self.id, "error": {"code": code, "message": text}})


class Behaviour:
    """See the module."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config
        self.lock = threading.RLock()
        self.held: list[tuple[Request, Any]] = []
        self.listeners: dict[Any, Request] = {}
        self.streams: list[Send] = []
        self.forgotten = False
        self.ledger = os.open(config["ledger"], os.O_WRONLY) if "ledger" in config else -1

    # -- the ledger ----------------------------------------------------------------------------------------------

    def note(self, event: str, **facts: Any) -> None:
        if self.ledger >= 0:
            os.write(self.ledger, json.dumps({"event": event, "pid": os.getpid()} | facts).encode() + b"\n")

    def troubled(self) -> bool:
        path = self.config.get("troubled_by")
        return path is None or Path(path).exists()

    def end(self, code: int) -> None:
        os._exit(code)

    # -- messages ------------------------------------------------------------------------------------------------

    def handle(self, message: Message, send: Send) -> None:
        """Take one message; `send` goes back to where it came from."""
        method = message.get("method")
        if not isinstance(method, str):
            return

        params = message.get("params") or {}
        facts = {"method": method, "id": message.get("id")}
        if method == "tools/call":
            shown = json.dumps(params.get("arguments"))
            facts |= {"tool": params.get("name"), "arguments": shown if len(shown) < 1000 else f"{len(shown)} bytes"}
        elif method == "notifications/cancelled":
            facts["cancels"] = params.get("requestId")

        self.note("got", **facts)
        if "id" not in message:
            if method == "notifications/cancelled":
                self.listeners.pop(params.get("requestId"), None)

            return

        request = Request(message, send)
        trouble = self.troubled()
        if trouble and (self.config.get("silent") or method in self.config.get("silent_for", ())):
            return

        if trouble and method in self.config.get("exit_on", {}):
            self.end(self.config["exit_on"][method])

        if method in self.config.get("mute", ()):
            return

        with self.lock:
            self.respond(request)

        if trouble and method in self.config.get("exit_after", {}):
            self.end(self.config["exit_after"][method])

    def respond(self, request: Request) -> None:
        config = self.config
        if request.method in config.get("replies", {}):
            request.answer(config["replies"][request.method])
        elif request.method in config.get("errors", {}):
            request.refuse(*config["errors"][request.method])
        else:
            answer = getattr(self, "on_" + request.method.replace("/", "_"), None)
            if answer is None:
                request.refuse(-32601, f"no method {request.method}")
            else:
                answer(request)

    @property
    def capabilities(self) -> dict[str, Any]:
        return {"tools": {"listChanged": True}, "resources": {}, "prompts": {}, "completions": {}}

    def on_server_discover(self, request: Request) -> None:
        if "modern" not in self.config.get("eras", ("modern", "legacy")):
            request.refuse(-32601, "no method server/discover")
            return

        meta = {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}}
        request.answer({"supportedVersions": [MODERN], "capabilities": self.capabilities, "_meta": meta})

    def on_initialize(self, request: Request) -> None:
        if "legacy" not in self.config.get("eras", ("modern", "legacy")):
            request.refuse(-32022, "only the modern era is spoken here")
            return

        asked = request.params.get("protocolVersion")
        version = asked if asked in LEGACY else LEGACY[-1]
        info = {"name": "raw", "version": "1"}
        request.answer({"protocolVersion": version, "capabilities": self.capabilities, "serverInfo": info})

    def on_ping(self, request: Request) -> None:
        request.answer({})

    def on_tools_list(self, request: Request) -> None:
        path = self.config.get("tools_file")
        if path is None:
            request.answer({"tools": [CATALOGUE[name] for name in self.config.get("offers", CATALOGUE)]})
            return

        try:
            request.answer({"tools": json.loads(Path(path).read_text())})
        except ValueError:
            request.refuse(-32603, "the tools are being edited")

    def on_resources_list(self, request: Request) -> None:
        if request.params.get("cursor") is None:
            request.answer({"resources": [{"uri": "test://one", "name": "one"}], "nextCursor": "2"})
        else:
            request.answer({"resources": [{"uri": "test://two", "name": "two"}]})

    def on_resources_templates_list(self, request: Request) -> None:
        request.answer({"resourceTemplates": [{"uriTemplate": "test://{name}", "name": "any"}]})

    def on_resources_read(self, request: Request) -> None:
        uri = request.params["uri"]
        request.answer({"contents": [{"uri": uri, "mimeType": "text/plain", "text": f"the text of {uri}"}]})

    def on_prompts_list(self, request: Request) -> None:
        request.answer({"prompts": [{"name": "greeting"}, {"name": "secret"}]})

    def on_prompts_get(self, request: Request) -> None:
        text = f"{request.params['name']} for {json.dumps(request.params.get('arguments') or {})}"
        request.answer({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})

    def on_completion_complete(self, request: Request) -> None:
        start = request.params["argument"]["value"]
        request.answer({"completion": {"values": [start + "a", start + "b"]}})

    # -- changes -------------------------------------------------------------------------------------------------

    def on_subscriptions_listen(self, request: Request) -> None:
        self.listeners[request.id] = request
        stamp = {SUBSCRIPTION_KEY: request.id}
        params = {"_meta": stamp, "notifications": request.params.get("notifications")}
        request.send({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params})
        self.note("listening_to", id=request.id)

    def tell_of_change(self) -> None:
        changed = "notifications/tools/list_changed"
        for wire_id, request in self.listeners.items():
            request.send({"jsonrpc": "2.0", "method": changed, "params": {"_meta": {SUBSCRIPTION_KEY: wire_id}}})

        for send in self.streams:
            send({"jsonrpc": "2.0", "method": changed})

    # -- tools ---------------------------------------------------------------------------------------------------

    def on_tools_call(self, request: Request) -> None:
        arguments = request.params.get("arguments") or {}
        tool = getattr(self, "tool_" + request.params["name"], None)
        if tool is None:
            request.refuse(-32602, f"no tool {request.params['name']}")
        else:
            tool(request, **arguments)

    def say(self, request: Request, text: str, **more: Any) -> None:
        request.answer({"content": [{"type": "text", "text": text}], **more})

    def tool_echo(self, request: Request, value: Any = None) -> None:
        self.say(request, value if isinstance(value, str) else json.dumps(value))

    tool_note = tool_echo

    def tool_pid(self, request: Request) -> None:
        self.say(request, str(os.getpid()))

    def tool_hang(self, request: Request) -> None:
        """Never answers."""

    def tool_gather(self, request: Request, of: int, value: Any) -> None:
        """Answers when `of` calls are waiting, the last one first."""
        self.held.append((request, value))
        if len(self.held) == of:
            while self.held:
                held, theirs = self.held.pop()
                self.say(held, json.dumps(theirs))

    def tool_die(self, request: Request, code: int = 1, words: str = "") -> None:
        os.write(2, words.encode())
        self.end(code)

    def tool_jot(self, request: Request, code: int | None = None) -> None:
        if code is not None:
            self.end(code)

        self.say(request, "jotted")

    def tool_put(self, request: Request, code: int | None = None, flag: str | None = None) -> None:
        """Dies with `code`; with a `flag`, a path, only while nothing lies there, and lays it."""
        if code is not None and (flag is None or not Path(flag).exists()):
            if flag is not None:
                Path(flag).touch()

            self.end(code)

        self.say(request, "put")

    def tool_big(self, request: Request, size: int) -> None:
        self.say(request, "x" * size)

    def tool_progress(self, request: Request, count: int, every: float) -> None:
        token = request.meta.get("progressToken")

        def report() -> None:
            for i in range(count):
                time.sleep(every)
                params = {"progressToken": token, "progress": i + 1, "total": count, "message": f"step {i + 1}"}
                if token is not None:
                    request.send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})

            self.say(request, f"{count} steps")

        threading.Thread(target=report, daemon=True).start()

    def tool_typed(self, request: Request, value: Any = None) -> None:
        self.say(request, json.dumps({"sum": value}), structuredContent={"sum": value})

    def tool_fail(self, request: Request) -> None:
        self.say(request, "it failed", isError=True)

    def tool_fetch(self, request: Request) -> None:
        self.say(request, "fetched")

    def tool_wipe(self, request: Request) -> None:
        self.say(request, "wiped")

    def tool_tell(self, request: Request) -> None:
        self.tell_of_change()
        self.say(request, "told")

    def tool_hush(self, request: Request) -> None:
        """Ends every open `listen` stream in the proper way."""
        while self.listeners:
            wire_id, listener = self.listeners.popitem()
            listener.answer({"_meta": {SUBSCRIPTION_KEY: wire_id}})

        self.say(request, "hushed")

    def tool_mute(self, request: Request) -> None:
        """Closes stdout and lives on."""
        os.close(1)

    def tool_forget(self, request: Request) -> None:
        self.forgotten = True
        self.say(request, "forgotten")


def stay() -> None:
    """Live on, whatever comes."""
    while True:
        signal.pause()


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
