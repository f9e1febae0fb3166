"""Greets like a server and gives a listing that is none."""

import json
import sys

for line in sys.stdin.buffer:
    message = json.loads(line)
    reply = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "resultType": "complete", "ttlMs": 0}
    reply |= {"cacheScope": "private", "tools": 7}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": reply}), flush=True)
