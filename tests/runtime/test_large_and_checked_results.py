"""What becomes of a reply: checked against its output schema, cut, refused or spilled when it is too large."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from workbench import FULL, Bench, handle, within

from deputy_mcp import Limits, McpConnection, RemoteError, ResultTooLargeError

pytestmark = pytest.mark.anyio


def options(**limits: Any) -> dict[str, Any]:
    return FULL | {"limits": Limits(**{"call_timeout_seconds": 10, "shutdown_timeout_seconds": 1} | limits)}


@within(10)
async def test_a_result_has_both_shapes_and_says_where_it_comes_from(bench: Bench) -> None:
    """Text for a model, content and structure for a program, and who gave it, when, how long it took."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        typed = handle(connection, "a", "typed")
        result = await typed(value=3)

    assert ('{"sum": 3}', {"sum": 3}, False, False, None) == (
        result.text,
        result.structured_content,
        result.is_error,
        result.truncated,
        result.spilled_to,
    )
    assert ("a", "typed", 1, typed.digest, ()) == (
        result.server,
        result.tool,
        result.generation,
        result.tool_digest,
        result.findings,
    )
    assert ['{"sum": 3}'] == [block.text for block in result.content]
    assert 0 < result.duration_seconds < 5
    assert result.size_bytes > len(result.text)


@within(10)
async def test_a_result_that_breaks_its_output_schema_is_delivered_with_a_finding(bench: Bench) -> None:
    """Nothing is lost: the value is there, and so is the warning."""
    async with McpConnection({"a": bench.stdio()}, **FULL) as connection:
        result = await connection.call_tool("a", "typed", {"value": "three"})

    assert {"sum": "three"} == result.structured_content
    assert [("schema_violation", "warn")] == [(f.code, f.severity) for f in result.findings]
    assert "/sum" in result.findings[0].message


@within(10)
async def test_a_tool_that_reports_its_own_failure_returns_it(bench: Bench) -> None:
    """`is_error` is a result; a JSON-RPC error is an exception with the server's code and words."""
    spec = bench.stdio({"offers": ["fail", "echo"], "errors": {"prompts/list": [-32000, "out of order"]}})
    async with McpConnection({"a": spec}, **FULL) as connection:
        result = await connection.call_tool("a", "fail")
        assert (True, "it failed") == (result.is_error, result.text)
        with pytest.raises(RemoteError) as caught:
            await connection.discover("a", "prompts")

        assert (-32000, "out of order", "unknown") == (
            caught.value.rpc_code,
            caught.value.message,
            caught.value.outcome,
        )


@pytest.mark.parametrize("wire", ["stdio", "http"])
@within(10)
async def test_a_large_result_is_cut_with_a_mark_and_kept_whole_for_programs(bench: Bench, wire: str) -> None:
    """`truncate`, the default: the text with its mark fits the bound; `content` is whole; the size is the real one."""
    async with bench.http() as http:
        spec = bench.stdio() if wire == "stdio" else http.server()
        async with McpConnection({"a": spec}, **options(max_result_bytes=1000)) as connection:
            result = await connection.call_tool("a", "big", {"size": 5000})
            small = await connection.call_tool("a", "big", {"size": 500})

    assert result.truncated
    assert len(result.text.encode()) <= 1000
    assert result.text.startswith("xxx")
    assert not result.text.endswith("xxx"), "a cut without a mark"
    assert 5000 == len(result.content[0].text)
    assert result.size_bytes > 5000
    assert (False, 500) == (small.truncated, len(small.text))


@within(10)
async def test_a_cut_does_not_split_a_character(bench: Bench) -> None:
    """The bound is in bytes of UTF-8, and the text stays text."""
    async with McpConnection({"a": bench.stdio()}, **options(max_result_bytes=1000)) as connection:
        for lead in ("", "a", "ab", "abc"):
            result = await connection.call_tool("a", "echo", {"value": lead + "\U0001f600" * 400})
            assert len(result.text.encode()) <= 1000
            assert lead + "\U0001f600" * 100 == result.text[: len(lead) + 100]


@within(10)
async def test_a_large_result_may_be_an_error_instead(bench: Bench) -> None:
    """`error`: limit and size are told; the call ran, and the connection is usable."""
    limits = options(max_result_bytes=1000, on_large_result="error")
    async with McpConnection({"a": bench.stdio()}, **limits) as connection:
        with pytest.raises(ResultTooLargeError) as caught:
            await connection.call_tool("a", "big", {"size": 5000})

        assert (1000, "unknown") == (caught.value.limit_bytes, caught.value.outcome)
        assert caught.value.seen_bytes > 5000
        assert 500 == len((await connection.call_tool("a", "big", {"size": 500})).text)


@within(10)
async def test_a_large_result_may_be_spilled_to_a_private_file_that_goes_with_the_connection(bench: Bench) -> None:
    """Mode 0600 in a folder of 0700, a random name, the whole result as JSON; removed at the end."""
    limits = options(max_result_bytes=1000, on_large_result="spill")
    before = os.umask(0)
    try:
        async with McpConnection({"a": bench.stdio()}, **limits) as connection:
            results = [await connection.call_tool("a", "big", {"size": 5000}) for _ in range(2)]
            small = await connection.call_tool("a", "big", {"size": 500})
            assert small.spilled_to is None
            paths = []
            for result in results:
                assert result.spilled_to is not None
                path = Path(result.spilled_to)
                paths.append(path)
                assert 0o600 == stat.S_IMODE(path.stat().st_mode)
                assert 0o700 == stat.S_IMODE(path.parent.stat().st_mode)
                assert 5000 == len(json.loads(path.read_text())["content"][0]["text"])
                assert (True, True) == (result.truncated, len(result.text.encode()) <= 1000)

            assert paths[0] != paths[1]
            assert paths[0].parent == paths[1].parent
    finally:
        os.umask(before)

    assert [False, False] == [path.exists() for path in paths]
    assert not paths[0].parent.exists()


@within(10)
async def test_spill_files_in_a_folder_of_the_host_s_choice_stay(bench: Bench, tmp_path: Path) -> None:
    """`spill_directory` is made private and left alone at the end."""
    folder = tmp_path / "results" / "here"
    limits = options(max_result_bytes=1000, on_large_result="spill", spill_directory=str(folder))
    async with McpConnection({"a": bench.stdio()}, **limits) as connection:
        result = await connection.call_tool("a", "big", {"size": 5000})

    assert result.spilled_to is not None
    path = Path(result.spilled_to)
    assert folder == path.parent
    assert (0o600, 0o700) == (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(folder.stat().st_mode))


@within(10)
async def test_spill_files_have_a_bound_together(bench: Bench) -> None:
    """Past `max_spill_bytes` over all files a large result is cut instead, and says so."""
    limits = options(max_result_bytes=1000, on_large_result="spill", max_spill_bytes=12_000)
    async with McpConnection({"a": bench.stdio()}, **limits) as connection:
        results = [await connection.call_tool("a", "big", {"size": 5000}) for _ in range(3)]

    assert [True, True, False] == [result.spilled_to is not None for result in results]
    assert [[], [], ["spill_full"]] == [[f.code for f in result.findings] for result in results]
    assert [True] * 3 == [result.truncated for result in results]


@pytest.mark.parametrize("wire", ["stdio", "http-json", "http-events"])
@within(10)
async def test_a_message_past_the_cap_fails_its_own_call_alone(bench: Bench, wire: str) -> None:
    """`max_message_bytes` holds on every wire; the call beside it, and the next one, are answered."""
    async with bench.http({"sse": wire == "http-events"}) as http:
        spec = bench.stdio() if wire == "stdio" else http.server()
        async with McpConnection({"a": spec}, **options(max_message_bytes=100_000)) as connection:
            with pytest.raises(ResultTooLargeError) as caught:
                await connection.call_tool("a", "big", {"size": 300_000})

            assert 100_000 == caught.value.limit_bytes
            assert caught.value.seen_bytes > 100_000
            assert "1" == (await connection.call_tool("a", "echo", {"value": 1})).text
            assert 1 == connection.status()["a"].generation
