"""Plays a script: which steps a message sets off, and what the steps do. Knows no transport.

A script is the JSON that `ScriptedServer` writes. Every message that comes in, and every thing that is done, is a line
in the ledger, appended in one write, so that a reader never sees half of one and nothing is lost when the process is
killed. Which turn of a sequence is due is counted over the ledger, and so over restarts too.
"""

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

Json = dict[str, Any]

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
MODERN = "2026-07-28"
HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")

WAITING = frozenset({"hold", "wait", "ask"})
"""Steps during which a server goes on with other messages."""


class Out(Protocol):
    """Where the messages of one turn go."""

    def message(self, data: bytes, *, last: bool) -> None:
        """One whole message; `last`: it is the answer."""

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""

    def step(self, step: Json) -> None:
        """A step of this transport alone."""

    def finish(self) -> None:
        """The turn is over."""

    def detach(self) -> bool:
        """Called before a step that waits: whether the rest must go on in a thread, to keep the way in free."""


class Peer:
    """One process of a scripted server."""

    def __init__(self, script_path: str) -> None:
        self.script: Json = json.loads(Path(script_path).read_text())
        self.folder = Path(self.script["folder"])
        self.name: str = self.script["name"]
        self.tools: list[Any] = self.script["tools"]
        self.listeners: dict[Any, Out] = {}
        self._ledger = os.open(self.script["ledger"], os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._answers: dict[str, Json] = {}
        self._answered = threading.Condition()
        self._initialized = False
        for line in Path(self.script["ledger"]).read_text().splitlines():
            entry = json.loads(line)
            if "turn" in entry:
                self._counts[entry["turn"]] += 1

        self.note({"kind": "started", "pid": os.getpid()})

    # -- the ledger ----------------------------------------------------------------------------------------------

    def note(self, entry: Json) -> None:
        """One line in the ledger."""
        os.write(self._ledger, json.dumps(entry).encode() + b"\n")

    def turn(self, key: str) -> list[Json] | None:
        """The steps that are due for `key`; None: nothing is scripted. Counts."""
        with self._lock:
            count = self._counts[key]
            self._counts[key] += 1
            self.note({"kind": "turn", "turn": key})

        turns = self.script["turns"].get(key)
        return None if not turns else turns[min(count, len(turns) - 1)]

    # -- messages ------------------------------------------------------------------------------------------------

    def take(self, message: Any, out: Out) -> None:
        """Do what the script says about one message that came in."""
        self.note({"kind": "received", "message": message})
        method = message.get("method") if isinstance(message, dict) else None
        if method is None:
            if isinstance(message, dict):
                with self._answered:
                    self._answers[json.dumps(message.get("id"))] = message
                    self._answered.notify_all()

            out.finish()
            return

        if method == "notifications/initialized":
            self._initialized = True

        steps = None
        if method == "tools/call":
            tool = (message.get("params") or {}).get("name")
            self.note({"kind": "ran", "tool": tool, "arguments": (message.get("params") or {}).get("arguments")})
            steps = self.turn(f"call {tool}")

        if steps is None:
            steps = self.turn(method)

        if steps is None:
            steps = [{"op": "reply"}] if "id" in message else []

        self.play(steps, message, out)

    def play(self, steps: list[Json], message: Json, out: Out) -> None:
        """Run the steps; from the first that waits on in a thread of its own, as a real server would."""
        for i, step in enumerate(steps):
            if step["op"] in WAITING and out.detach():
                rest = (steps[i:], message, out)
                threading.Thread(target=self._play_all, args=rest, daemon=True).start()
                return

            self.step(step, message, out)

        out.finish()

    def _play_all(self, steps: list[Json], message: Json, out: Out) -> None:
        try:
            for step in steps:
                self.step(step, message, out)

            out.finish()
        except OSError:
            pass  # the client is gone

    # -- steps ---------------------------------------------------------------------------------------------------

    def step(self, step: Json, message: Json, out: Out) -> None:
        op = step["op"]
        if op == "reply":
            self._reply(step, message, out)
        elif op == "error":
            error = {key: step[key] for key in ("code", "message", "data") if key in step}
            self._send({"id": message.get("id"), "error": error}, out, last=True)
        elif op == "send":
            for _ in range(step.get("times", 1)):
                text = json.dumps(self._filled(step["message"], message), separators=(",", ":"))
                out.message(text.encode(), last=False)
        elif op == "raw":
            data = base64.b64decode(step["data"]).replace(b"$id", _id_bytes(message))
            for _ in range(step.get("times", 1)):
                out.raw(data)
        elif op == "dribble":
            whole = base64.b64decode(step["data"]).replace(b"$id", _id_bytes(message))
            for i in range(len(whole)):
                out.raw(whole[i : i + 1])
        elif op == "endless":
            while True:
                out.raw(base64.b64decode(step["data"]))
        elif op in WAITING:
            self._wait(step, message, out)
        elif op == "tools":
            self.tools = step["tools"]
        elif op == "note":
            self.note({"kind": "note", "text": step["text"]})
        elif op == "listeners":
            self._tell_listeners(step)
        elif not self._process_step(step):
            out.step(step)

    def _wait(self, step: Json, message: Json, out: Out) -> None:
        if step["op"] == "hold":
            self.note({"kind": "holding", "gate": step["gate"]})
            self._wait_gate(step["gate"])
        elif step["op"] == "wait":
            time.sleep(step["seconds"])  # noqa: TID251 # the peer is slow on purpose
        else:
            asked = self._filled(step["message"], message)
            out.message(json.dumps(asked, separators=(",", ":")).encode(), last=False)
            key = json.dumps(asked["id"])
            with self._answered:
                self._answered.wait_for(lambda: key in self._answers)
                answer = self._answers.pop(key)

            self.note({"kind": "answer", "method": asked["method"], "answer": answer})

    def _wait_gate(self, gate: str) -> None:
        file = self.folder / f"{self.name}.{gate}.gate"
        while not file.exists():
            time.sleep(0.002)  # noqa: TID251 # a file of another process can only be polled, and this is the peer

    def _process_step(self, step: Json) -> bool:
        op = step["op"]
        if op == "exit":
            os._exit(step["code"])
        elif op == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        elif op == "stderr":
            data = base64.b64decode(step["data"]) * step.get("times", 1)
            while data:
                data = data[os.write(2, data) :]
        elif op == "child":
            # It holds on to all three pipes, as a grandchild does that nobody thought of.
            up, told = os.pipe()
            code = "import os,signal,sys,time\n"
            code += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if step["ignores_term"] else ""
            code += "os.close(int(sys.argv[1]))\nwhile True: time.sleep(60)"
            child = subprocess.Popen(
                [sys.executable, "-S", "-E", "-c", code, str(told)],
                pass_fds=(told,),
                start_new_session=step["own_session"],
            )
            os.close(told)
            os.read(up, 1)
            os.close(up)
            self.note({"kind": "child", "pid": child.pid})
        elif op == "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.script["stubborn"] = True
        elif op == "freeze":
            # Reads nothing and does nothing, whoever calls.
            self.note({"kind": "frozen"})
            self._wait_gate(step["gate"])
        else:
            return False

        return True

    def _reply(self, step: Json, message: Json, out: Out) -> None:
        result = step["result"] if "result" in step else self._result(step, message)
        if isinstance(result, dict) and "failure" in result and "result" not in step:
            self._send({"id": message["id"], "error": result["failure"]}, out, last=True)
        elif result is not None:
            # `$id` and the like count inside a scripted result as well.
            filled = self._filled(result, message) if "result" in step else result
            self._send({"id": message.get("id"), "result": filled}, out, last=True)

    def _send(self, message: Json, out: Out, *, last: bool) -> None:
        data = json.dumps({"jsonrpc": "2.0"} | message, separators=(",", ":"), ensure_ascii=False)
        out.message(data.encode("utf-8", "surrogatepass"), last=last)

    def _filled(self, value: Any, message: Json) -> Any:
        """`value` with its placeholders filled in."""
        if isinstance(value, dict):
            return {key: self._filled(item, message) for key, item in value.items()}

        if isinstance(value, list):
            return [self._filled(item, message) for item in value]

        if value == "$id":
            return message.get("id")

        if value == "$id_text":
            return str(message.get("id"))

        if value == "$token":
            return ((message.get("params") or {}).get("_meta") or {}).get("progressToken")

        return value

    # -- the sane server -----------------------------------------------------------------------------------------

    def _result(self, step: Json, message: Json) -> Any:
        method = message["method"]
        params = message.get("params") or {}
        era = self.script["era"]
        if self.script["strict"] and not self._initialized and method in ("tools/list", "tools/call"):
            return {"failure": {"code": -32602, "message": "not initialized"}}

        if method == "initialize" and era != "modern":
            wanted = params.get("protocolVersion")
            return self._greeting() | {
                "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
            }

        if method == "server/discover" and era != "legacy":
            return self._greeting() | {
                "supportedVersions": [MODERN],
                "resultType": "complete",
                "ttlMs": 0,
                "cacheScope": "private",
            }

        if method == "ping":
            return {}

        if method == "tools/list":
            return self._page(params.get("cursor"))

        if method == "tools/call":
            text = step.get("text")
            if text is None:
                text = json.dumps({"tool": params.get("name"), "arguments": params.get("arguments")})

            return {"content": [{"type": "text", "text": text}]}

        return {"failure": {"code": -32601, "message": f"unknown method {method}"}}

    def _greeting(self) -> Json:
        return {
            "capabilities": {"tools": {"listChanged": True}} | self.script["capabilities"],
            "serverInfo": {"name": self.name, "version": "1"},
        }

    def _page(self, cursor: str | None) -> Json:
        size = self.script["page_size"] or max(len(self.tools), 1)
        start = int(cursor) if cursor else 0
        page: Json = {"tools": self.tools[start : start + size]}
        if start + size < len(self.tools):
            page["nextCursor"] = str(start + size)

        return page

    # -- subscriptions (2026-07-28) ------------------------------------------------------------------------------

    def _tell_listeners(self, step: Json) -> None:
        """Send a notification to every listening stream, or drop the streams."""
        for listen_id, out in list(self.listeners.items()):
            if step.get("drop"):
                del self.listeners[listen_id]
                out.step({"op": "drop_stream", "id": listen_id})
            else:
                method = step["method"]
                note = {"jsonrpc": "2.0", "method": method, "params": {"_meta": {SUBSCRIPTION_KEY: listen_id}}}
                out.message(json.dumps(note).encode(), last=False)

    @property
    def offers_listen(self) -> bool:
        """Whether `subscriptions/listen` is served the sane way."""
        return self.script["era"] != "legacy" and "subscriptions/listen" not in self.script["turns"]

    def listen(self, message: Json, out: Out) -> None:
        """Open a listening stream: acknowledge it and remember where it goes."""
        wanted = (message.get("params") or {}).get("notifications")
        params = {"_meta": {SUBSCRIPTION_KEY: message["id"]}, "notifications": wanted}
        note = {"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": params}
        out.message(json.dumps(note).encode(), last=False)
        self.listeners[message["id"]] = out
        self.note({"kind": "listening", "id": message["id"]})


def _id_bytes(message: Json) -> bytes:
    return json.dumps(message.get("id")).encode()
