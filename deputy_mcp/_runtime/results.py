"""Step 10 of a call: what came back, capped, checked and cleaned."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import anyio.to_thread

from deputy_mcp._core.annotations import Finding
from deputy_mcp._core.catalog import ToolFacts
from deputy_mcp._core.config import Limits
from deputy_mcp._core.errors import MalformedReplyError, ResultTooLargeError
from deputy_mcp._core.sanitizing import clean_text
from deputy_mcp._core.scanning import scan_text
from deputy_mcp._runtime.calls import PromptCall, ResourceCall, ToolCall
from deputy_mcp._runtime.gate import Gate
from deputy_mcp._runtime.handles import (
    PromptResult,
    ResourceResult,
    ToolResult,
    bounded,
    read_blocks,
    render_message,
    render_resource,
    render_result,
)
from deputy_mcp._runtime.session import was_repaired
from deputy_mcp._runtime.spill import Spill
from deputy_mcp._runtime.transports.link import CallRecord
from deputy_mcp._runtime.turns import current_time

READ_AT_ONCE_BYTES = 1_000
"""A result up to this size is cleaned, modelled and scanned in the loop's turn, in a few milliseconds at worst; a
larger one in a thread."""

SCANNED_END = 8 * 1024
"""Characters scanned at each end of a long text: scanning is some hundred times slower than reading."""


async def finish_tool(call: ToolCall, gate: Gate, spill: Spill, raw: dict[str, Any]) -> ToolResult:
    """The result of a tool call. Raises `ResultTooLargeError` where the limits say so."""
    facts, record, limits = call.facts, call.record, call.task.limits
    findings = await _result_findings(facts, raw, record, gate)
    size = record.reply_bytes or len(json.dumps(raw))
    spilled: str | None = None
    if size > limits.max_result_bytes:
        if limits.on_large_result == "error":
            raise ResultTooLargeError(
                f"the result of {facts.name} has {size} bytes, max_result_bytes is {limits.max_result_bytes}",
                limit_bytes=limits.max_result_bytes,
                seen_bytes=size,
                server=facts.server,
                tool=facts.tool,
            )

        if limits.on_large_result == "spill":
            spilled = await _spill(raw, limits, spill, findings)

    if size <= READ_AT_ONCE_BYTES:
        text, truncated, content, odd = _read(raw, limits.max_result_bytes)
    else:
        text, truncated, content, odd = await anyio.to_thread.run_sync(
            _read, raw, limits.max_result_bytes, abandon_on_cancel=True
        )

    findings += odd
    return ToolResult(
        text=text,
        content=content,
        structured_content=raw.get("structuredContent"),
        is_error=raw.get("isError") is True,
        truncated=truncated,
        spilled_to=spilled,
        size_bytes=size,
        findings=tuple(findings),
        tool_digest=facts.digest,
        server=facts.server,
        tool=facts.tool,
        generation=call.generation,
        duration_seconds=current_time() - call.started,
    )


def _read(raw: dict[str, Any], most_bytes: int) -> tuple[str, bool, tuple[Any, ...], tuple[Finding, ...]]:
    """The text, whether it was cut, the blocks, and what is odd about the text."""
    text, truncated = render_result(raw, most_bytes)
    return text, truncated, read_blocks(raw), _scanned(text)


def _scanned(text: str) -> tuple[Finding, ...]:
    """What is odd about a text that a model will read; of a long one its two ends. They are for the host to weigh."""
    return scan_text(text if len(text) <= 2 * SCANNED_END else f"{text[:SCANNED_END]}\n{text[-SCANNED_END:]}")


async def _spill(raw: dict[str, Any], limits: Limits, spill: Spill, findings: list[Finding]) -> str | None:
    """The file that holds the whole result; None with a finding where there is none, for the call has run."""
    try:
        path = await spill.write(
            json.dumps(raw).encode(), directory=limits.spill_directory, max_bytes=limits.max_spill_bytes
        )
    except OSError as error:
        findings.append(_finding("spill_failed", f"the result could not be written and was cut: {error.strerror}"))
        return None

    if path is None:
        findings.append(_finding("spill_full", "max_spill_bytes is used up; the result was cut instead"))

    return path


async def _result_findings(facts: ToolFacts, raw: dict[str, Any], record: CallRecord, gate: Gate) -> list[Finding]:
    findings = []
    if was_repaired(record):
        findings.append(_finding("repaired_text", "the reply held broken UTF-8 or lone surrogates"))

    if "content" in raw and not isinstance(raw["content"], list):
        findings.append(_finding("malformed_content", "its content is no list", "/content"))

    if facts.raw.get("outputSchema") is None or raw.get("isError") is True:
        # A failure's structured content has a shape of its own; its text must reach the caller.
        return findings

    if raw.get("structuredContent") is None:
        findings.append(_finding("schema_violation", "its output schema promises structured content"))
        return findings

    verdict = await gate.checker(facts, "outputSchema").check(raw["structuredContent"])
    if verdict.status != "valid":
        code = "schema_violation" if verdict.status == "invalid" else "schema_unchecked"
        message = clean_text("; ".join(verdict.problems))
        findings.append(Finding(code, severity="warn", place="/structuredContent", message=message))

    return findings


def _finding(code: str, message: str, place: str = "") -> Finding:
    return Finding(code, severity="warn", place=place, message=message)


async def finish_resource(call: ResourceCall, raw: dict[str, Any]) -> ResourceResult:
    """The result of reading a resource."""
    contents = _objects(raw, "contents", call)
    text, truncated, size, findings = await _shown(contents, render_resource, raw, call)
    return ResourceResult(
        text=text,
        contents=contents,
        truncated=truncated,
        size_bytes=size,
        findings=findings,
        server=call.task.name,
        uri=call.tool,
        generation=call.generation,
        duration_seconds=current_time() - call.started,
    )


async def finish_prompt(call: PromptCall, raw: dict[str, Any]) -> PromptResult:
    """The result of getting a prompt."""
    messages = _objects(raw, "messages", call)
    text, truncated, size, findings = await _shown(messages, render_message, raw, call)
    description = raw.get("description")
    return PromptResult(
        text=text,
        description=clean_text(description) if isinstance(description, str) else None,
        messages=messages,
        truncated=truncated,
        size_bytes=size,
        findings=findings,
        server=call.task.name,
        name=call.tool,
        generation=call.generation,
        duration_seconds=current_time() - call.started,
    )


def _objects(raw: dict[str, Any], member: str, call: ResourceCall | PromptCall) -> tuple[dict[str, Any], ...]:
    items = raw.get(member)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise MalformedReplyError(
            f"server {call.task.name!r} answered {call.method} without a list of {member}",
            server=call.task.name,
            tool=call.tool,
        )

    return tuple(items)


async def _shown(
    items: tuple[dict[str, Any], ...],
    render: Callable[[Mapping[str, Any]], str],
    raw: dict[str, Any],
    call: ResourceCall | PromptCall,
) -> tuple[str, bool, int, tuple[Finding, ...]]:
    def read() -> tuple[str, bool, tuple[Finding, ...]]:
        text, truncated = bounded(clean_text("\n".join(map(render, items))), call.task.limits.max_result_bytes)
        return text, truncated, _scanned(text)

    size = call.record.reply_bytes or len(json.dumps(raw))
    shown = read() if size <= READ_AT_ONCE_BYTES else await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
    text, truncated, findings = shown
    return text, truncated, size, findings
