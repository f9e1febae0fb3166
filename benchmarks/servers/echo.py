"""The smallest MCP server that answers: both eras, one tool, nothing but the standard library."""

import json
import sys

TOOL = {
    "name": "echo",
    "description": "Gives back its text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": True, "openWorldHint": False},
}


def answer(method: str, params: dict) -> dict | None:
    if method == "server/discover":
        return {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}},
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }
    if method == "initialize":
        info = {"name": "echo", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [TOOL], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}], "resultType": "complete"}
    return {} if method == "ping" else None


for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" not in message:
        continue
    result = answer(message["method"], message.get("params") or {})
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    reply |= {"error": {"code": -32601, "message": "no such method"}} if result is None else {"result": result}
    sys.stdout.buffer.write(json.dumps(reply).encode() + b"\n")
    sys.stdout.buffer.flush()
