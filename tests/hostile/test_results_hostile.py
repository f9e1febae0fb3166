"""Results that the protocol's models do not know, that break their schema, or that are too large for a model."""

import pytest
from bounds import connected

from deputy_mcp import Limits, ResultTooLargeError
from deputy_mcp.testing import ScriptedServer, reply, tool

pytestmark = pytest.mark.anyio

OUTPUT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


def text_block(text):
    return {"type": "text", "text": text}


async def call(tmp_path, result, *, limits=None, **members):
    """The result of one call that is answered with `result`."""
    server = ScriptedServer(tmp_path, tools=[tool("echo", **members)], calls={"echo": reply(result=result)})
    options = {} if limits is None else {"limits": limits}
    async with connected({"s": server.stdio()}, **options) as connection:
        return await connection.call_tool("s", "echo")


async def test_a_result_of_structured_content_alone_is_delivered(tmp_path):
    """Data without a text block is a result, for programs and for models.

    https://github.com/use-agent-os/agent-os/issues/2020
    """
    result = await call(tmp_path, {"structuredContent": {"rows": 3}})

    assert {"rows": 3} == result.structured_content
    assert not result.is_error
    assert "rows" in result.text


@pytest.mark.parametrize(
    "block",
    [
        {"type": "widget", "x": 1},
        {"type": "json", "json": {"x": 1}},
        {"type": "text"},
        {"type": "text", "text": 7},
        {"no type": True},
        "just a string",
        None,
    ],
    ids=repr,
)
async def test_a_block_that_the_protocol_does_not_know_is_kept_as_data(tmp_path, block):
    """One odd block turns no success into an error and hides no other block.

    https://github.com/use-agent-os/agent-os/issues/2020
    """
    result = await call(tmp_path, {"content": [text_block("before"), block, text_block("after")]})

    assert not result.is_error
    assert 3 == len(result.content)
    assert block == result.content[1]
    assert result.text.startswith("before")
    assert result.text.endswith("after")


@pytest.mark.parametrize(
    "block",
    [
        {"type": "resource_link", "uri": "file:///a.txt", "name": "a"},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
    ],
    ids=lambda block: block["type"],
)
async def test_every_block_type_of_the_protocol_is_delivered(tmp_path, block):
    """Links, audio, images and embedded resources arrive as the protocol's own blocks.

    https://github.com/use-agent-os/agent-os/issues/2020
    """
    result = await call(tmp_path, {"content": [block]})

    assert [block["type"]] == [item.type for item in result.content]
    assert result.text


@pytest.mark.parametrize("content", [None, "text", {"type": "text", "text": "x"}, 7], ids=repr)
async def test_content_that_is_no_list_is_a_finding_and_no_crash(tmp_path, content):
    """The rest of the result is still delivered.

    https://github.com/use-agent-os/agent-os/issues/2020
    """
    result = await call(tmp_path, {"content": content, "structuredContent": {"a": 1}})

    assert {"a": 1} == result.structured_content
    assert "malformed_content" in [finding.code for finding in result.findings]


BREAKS = {
    "none": {"content": [text_block("the text")]},
    "null": {"content": [text_block("the text")], "structuredContent": None},
    "wrong shape": {"content": [text_block("the text")], "structuredContent": {"a": "no integer"}},
    "extra property": {"content": [text_block("the text")], "structuredContent": {"a": 1, "b": 2}},
    "no object": {"content": [text_block("the text")], "structuredContent": [1]},
}


@pytest.mark.parametrize("kind", BREAKS)
async def test_a_result_that_breaks_its_output_schema_is_delivered_with_a_finding(tmp_path, kind):
    """The server's mistake is said, and the result is not lost.

    https://github.com/koala73/worldmonitor/pull/8330
    """
    result = await call(tmp_path, BREAKS[kind], outputSchema=OUTPUT)

    assert "the text" in result.text
    assert not result.is_error
    assert ["schema_violation"] == [finding.code for finding in result.findings]


async def test_only_structured_content_is_checked_and_not_what_is_around_it(tmp_path):
    """Members of the envelope break no schema.

    https://github.com/koala73/worldmonitor/pull/8330
    """
    fine = {"content": [text_block("x")], "structuredContent": {"a": 1}, "_meta": {"b": 2}, "vendor": True}
    result = await call(tmp_path, fine, outputSchema=OUTPUT)

    assert () == result.findings


@pytest.mark.parametrize("ref", ["#/$defs/missing", "https://example.invalid/schema.json", "file:///etc/passwd"])
async def test_an_output_schema_that_cannot_be_followed_loses_no_result(tmp_path, ref):
    """Dangling and remote references are never fetched; the result is delivered and says that it was not checked.

    https://github.com/anthropics/claude-code/issues/77106
    """
    schema = {"type": "object", "properties": {"a": {"$ref": ref}}}
    fine = {"content": [text_block("x")], "structuredContent": {"a": 1}}
    result = await call(tmp_path, fine, outputSchema=schema)

    assert "x" in result.text
    assert ["schema_unchecked"] == [finding.code for finding in result.findings]


async def test_a_recursive_output_schema_is_checked(tmp_path):
    """A reference to itself is no obstacle.

    https://github.com/anthropics/claude-code/issues/77106
    """
    node = {"type": "object", "properties": {"c": {"$ref": "#/$defs/N"}}, "additionalProperties": False}
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": node}}
    good = await call(tmp_path, {"content": [], "structuredContent": {"n": {"c": {"c": {}}}}}, outputSchema=schema)

    assert () == good.findings


@pytest.mark.parametrize("content", [[text_block("quota exceeded")], []], ids=["text", "no content"])
async def test_a_tool_s_own_failure_is_not_judged_by_its_output_schema(tmp_path, content):
    """The error text reaches the caller; the shape of a failure is the tool's own business.

    https://github.com/modelcontextprotocol/typescript-sdk/issues/654
    """
    failure = {"content": content, "isError": True, "structuredContent": {"error": "z"}}
    result = await call(tmp_path, failure, outputSchema=OUTPUT)

    assert result.is_error
    assert () == result.findings
    assert ("quota exceeded" in result.text) == bool(content)


@pytest.mark.parametrize("value", ["true", 1, None, [], "false"], ids=repr)
async def test_only_a_boolean_marks_a_failure(tmp_path, value):
    """`isError` of another type is no error.

    https://github.com/modelcontextprotocol/typescript-sdk/issues/654
    """
    result = await call(tmp_path, {"content": [text_block("x")], "isError": value})

    assert not result.is_error


async def test_an_image_is_never_written_out_as_text(tmp_path):
    """Base64 stays in the blocks; a model's text names kind and size, and the mirror in the data is no second copy.

    https://github.com/anthropics/claude-code/issues/70280
    """
    blob = "QUJD" * 250_000
    content = [{"type": "image", "data": blob, "mimeType": "image/png"}, text_block("a picture")]
    limits = Limits(max_result_bytes=4_000_000, shutdown_timeout_seconds=1)
    result = await call(tmp_path, {"content": content, "structuredContent": {"image": blob}}, limits=limits)

    assert blob == result.content[0].data
    assert "QUJDQUJDQUJD" not in result.text
    assert "image/png" in result.text
    assert len(result.text) < 10_000


async def test_a_large_image_does_not_crowd_out_the_text(tmp_path):
    """An image past `max_result_bytes` is a placeholder in the text, and the rest of the text is whole.

    https://github.com/anthropics/claude-code/issues/70280
    """
    content = [{"type": "image", "data": "QUJD" * 100_000, "mimeType": "image/png"}, text_block("a picture")]
    limits = Limits(max_result_bytes=10_000, shutdown_timeout_seconds=1)
    result = await call(tmp_path, {"content": content}, limits=limits)

    assert result.text.endswith("a picture")
    assert len(result.text.encode()) <= 10_000


@pytest.mark.parametrize("character", ["a", "é", "😀"])
async def test_a_cut_text_is_never_longer_than_the_limit(tmp_path, character):
    """In UTF-8 and with its mark; no character is cut in half, and the blocks are whole.

    https://github.com/QwenLM/qwen-code/issues/9298
    """
    limits = Limits(max_result_bytes=1_001, shutdown_timeout_seconds=1)
    result = await call(tmp_path, {"content": [text_block(character * 5_000)]}, limits=limits)

    assert result.truncated
    assert len(result.text.encode()) <= 1_001
    assert result.text.startswith(character * 200)
    assert character * 5_000 == result.content[0].text


async def test_a_large_result_can_be_an_error_instead(tmp_path):
    """`on_large_result="error"` says limit and size.

    https://github.com/QwenLM/qwen-code/issues/9298
    """
    limits = Limits(max_result_bytes=1_000, on_large_result="error", shutdown_timeout_seconds=1)
    with pytest.raises(ResultTooLargeError) as caught:
        await call(tmp_path, {"content": [text_block("a" * 5_000)]}, limits=limits)

    assert 1_000 == caught.value.limit_bytes
    assert caught.value.seen_bytes > 5_000
