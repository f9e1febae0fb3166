"""Public doubles: a server that misbehaves as told, and an approver with fixed answers.

For tests of whatever uses `deputy_mcp`; nothing of the library imports this package. A server that dies under its
second call, and what the agent makes of it:

```python
server = ScriptedServer(tmp_path, calls={"echo": [reply("fine"), note("ran") + die(), reply("back")]})
async with McpConnection({"notes": server.stdio()}) as connection:
    ...
assert server.runs("echo") == 3
```
"""

from deputy_mcp.testing.actions import (
    Action,
    Turns,
    ask,
    be_stubborn,
    change_tools,
    close_stdout,
    die,
    dribble,
    drop_listeners,
    end_stream,
    endless,
    endless_body,
    fail,
    forget_sessions,
    freeze,
    gzip_bomb,
    half_body,
    hang_up,
    hold,
    junk,
    leave,
    list_changed,
    note,
    notify,
    open_stream,
    redirect,
    reply,
    respond,
    send,
    silence,
    spawn,
    stream,
    tell_listeners,
    tell_streams,
    wait,
    want_bearer,
    write_stderr,
)
from deputy_mcp.testing.approvers import FixedApprover
from deputy_mcp.testing.scripted import ScriptedServer, tool

__all__ = [
    "Action",
    "FixedApprover",
    "ScriptedServer",
    "Turns",
    "ask",
    "be_stubborn",
    "change_tools",
    "close_stdout",
    "die",
    "dribble",
    "drop_listeners",
    "end_stream",
    "endless",
    "endless_body",
    "fail",
    "forget_sessions",
    "freeze",
    "gzip_bomb",
    "half_body",
    "hang_up",
    "hold",
    "junk",
    "leave",
    "list_changed",
    "note",
    "notify",
    "open_stream",
    "redirect",
    "reply",
    "respond",
    "send",
    "silence",
    "spawn",
    "stream",
    "tell_listeners",
    "tell_streams",
    "tool",
    "wait",
    "want_bearer",
    "write_stderr",
]
