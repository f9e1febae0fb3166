"""A server on the SDK's own `MCPServer`, over stdio and over Streamable HTTP, in both eras."""

import pytest
from workbench import FULL, Bench, handle, within

from deputy_mcp import Limits, McpConnection, Permissions, ServerState

pytestmark = pytest.mark.anyio

# Importing the SDK takes its second, and longer on a busy machine.
OPTIONS = FULL | {"limits": Limits(startup_timeout_seconds=30, shutdown_timeout_seconds=5)}
SPOKEN = {"modern": "2026-07-28", "legacy": "2025-11-25"}


@pytest.mark.parametrize("wire", ["stdio", "http"])
@within(60)
async def test_a_server_on_the_sdk_works_in_both_eras_at_once(bench: Bench, wire: str) -> None:
    """`auto` finds the modern era although the server takes its time to start; `legacy` is taken at its word."""

    async def use(specs: dict[str, object]) -> None:
        async with McpConnection(specs, **OPTIONS) as connection:  # type: ignore[arg-type]
            status = connection.status()
            assert {ServerState.READY} == {s.state for s in status.values()}
            assert SPOKEN == {name: s.protocol_version for name, s in status.items()}
            assert {"sdk"} == {(s.server_info or {})["name"] for s in status.values()}
            for name in specs:
                result = await handle(connection, name, "total")(a=1, b=2)
                assert ("3", {"result": 3}, ()) == (result.text, result.structured_content, result.findings)
                assert (await handle(connection, name, "fail")()).is_error
                steps: list[float] = []
                count = handle(connection, name, "count")
                await count.call({"to": 3}, progress=lambda done, total, text, steps=steps: steps.append(done))
                assert [1, 2, 3] == steps
                assert "one owner" == (await connection.read_resource(name, "test://motto")).text

    more = {"resources": ("test://motto",), "permissions": Permissions.plan()}
    if wire == "stdio":
        await use({"modern": bench.sdk(**more), "legacy": bench.sdk(protocol="legacy", **more)})
    else:
        async with bench.sdk_http() as http:
            await use({"modern": http.server(**more), "legacy": http.server(protocol="legacy", **more)})
