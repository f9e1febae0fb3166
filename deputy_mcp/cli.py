"""The command `deputy-mcp`. Exit codes: 0 fine, 1 refused or failed, 2 usage or configuration.

It prints an error's `diagnostics()`; what it shows of a server was cleaned and masked below.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import anyio
from attrs import evolve

from deputy_mcp import cli_approvals, cli_audit, cli_pins
from deputy_mcp._core.config import RestartPolicy
from deputy_mcp._core.errors import ConfigError, DeputyError, PermissionDeniedError
from deputy_mcp._core.lifecycle import ServerState
from deputy_mcp._core.permissions import Permissions
from deputy_mcp._core.sanitizing import clean_text
from deputy_mcp._runtime.configfile import load_config
from deputy_mcp._runtime.connection import McpConnection
from deputy_mcp._runtime.handles import tool_metadata
from deputy_mcp._runtime.status import ServerStatus
from deputy_mcp._version import __version__
from deputy_mcp.terminal import Printer
from deputy_mcp.verdicts import LEGEND, VERDICT_COLUMNS, verdict_rows

FINE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
NO_ARGUMENTS = "{}"
_FLAGS = {"web=True": "--web", "write=True": "--write"}
_ONCE = RestartPolicy(when="never")
"""A command that runs once gains nothing by waiting for a server that died at its start."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code."""
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    if len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "arguments", None) == NO_ARGUMENTS:
        # argparse gives up on an optional positional once an option came: `call time now --web '{}'`.
        options.arguments = rest.pop()
    elif len(rest) == 1 and not rest[0].startswith("-") and getattr(options, "tool", "") is None:
        options.tool = rest.pop()  # `pins accept weather --digest 12345678 forecast`

    if rest:
        parser.error(f"unrecognized arguments: {clean_text(' '.join(rest))}")

    warnings.showwarning = _show_warning
    errors = Printer(sys.stderr)
    try:
        code: int = anyio.run(options.run, options)
    except BaseException as error:  # noqa: BLE001 # the edge of the program; what is not ours goes on
        return _exit_code(_innermost(error), errors)

    return code


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]

    return error


def _exit_code(error: BaseException, errors: Printer) -> int:
    match error:
        case DeputyError():
            errors.line(f"error: {clean_text(error.diagnostics())}", "bad")
            if isinstance(error, PermissionDeniedError):
                flags = [flag for grant, flag in _FLAGS.items() if grant in error.decision.reason]
                errors.line(f"  on the command line: {' '.join(flags)}" if flags else "")

            return USAGE if isinstance(error, ConfigError) else FAILED
        case KeyboardInterrupt():
            errors.line("interrupted")
            return INTERRUPTED
        case BrokenPipeError():
            # Whoever read our output has seen enough (`deputy-mcp check | head`).
            sys.stderr.close()
            return FAILED

    raise error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="deputy-mcp", description="One owner for every MCP server an agent uses.")
    parser.add_argument("--version", action="version", version=f"deputy-mcp {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    demo = commands.add_parser("demo", help="show the main job on real servers; no network, no credentials")
    demo.set_defaults(run=_run_demo)

    check = commands.add_parser("check", help="start servers and print each tool with its effects and verdict")
    check.add_argument("servers", nargs="*", metavar="SERVER", help="exact names; all that are not disabled by default")
    _add_config(check)
    _add_permissions(check)
    check.set_defaults(run=_run_check)

    call = commands.add_parser("call", help="make one governed call")
    call.add_argument("server", metavar="SERVER")
    call.add_argument("tool", metavar="TOOL")
    call.add_argument("arguments", nargs="?", default=NO_ARGUMENTS, metavar="JSON", help="the arguments, a JSON object")
    call.add_argument("--timeout", type=float, metavar="SECONDS", help="the call's deadline")
    _add_config(call)
    _add_permissions(call)
    call.set_defaults(run=_run_call)
    cli_pins.add_parser(commands)
    cli_approvals.add_parser(commands)
    cli_audit.add_parser(commands)
    return parser


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the configuration file; the default one otherwise")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _add_permissions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--web", action="store_true", help="permit open-world tools")
    writes = parser.add_mutually_exclusive_group()
    writes.add_argument("--write", action="store_true", help="permit tools that write")
    writes.add_argument("--ask-write", action="store_true", help="ask before tools that write")


def _permissions(options: argparse.Namespace) -> Permissions:
    return Permissions(web=options.web, write="ask" if options.ask_write else options.write)


async def _run_demo(_: argparse.Namespace) -> int:
    from deputy_mcp.demo.steps import Demo  # here: only this command needs it

    return await Demo(Printer()).run()


async def _run_check(options: argparse.Namespace) -> int:
    permissions = _permissions(options)
    names = options.servers or None
    # Looking is no call: it is not journalled, and a program that runs beside it keeps its journal.
    config = evolve(load_config(options.config, names), journal=None)
    connection = McpConnection(config, permissions=permissions, restart=_ONCE)
    progress = Printer(sys.stderr)
    async with anyio.create_task_group() as tasks:
        if not options.json and sys.stderr.isatty():
            tasks.start_soon(_show_progress, connection, progress)
            await anyio.lowlevel.checkpoint()

        async with connection:
            status = connection.status()
            tools = connection.tools()
            effective = {tool.name: connection.decide(tool) for tool in tools}

        tasks.cancel_scope.cancel()

    if options.json:
        Printer().json(
            {
                "servers": {name: _status_facts(one) for name, one in status.items()},
                "tools": [
                    tool_metadata(tool)
                    | {"verdict": type(effective[tool.name]).__name__.lower(), "code": effective[tool.name].code}
                    for tool in tools
                ],
            }
        )
    else:
        _print_check(status, tools, connection)

    return FINE if all(one.state is ServerState.READY for one in status.values()) else FAILED


def _print_check(status: Any, tools: Any, connection: McpConnection) -> None:
    out = Printer()
    rows = [
        (one.name, str(one.state), one.protocol_version or "-", str(one.tools), one.last_error or "-")
        for one in status.values()
    ]
    styles = ["ok" if one.state is ServerState.READY else "bad" for one in status.values()]
    if not rows:
        out.line("no servers are configured")
        return

    out.table(("server", "state", "protocol", "tools", "last error"), rows, styles=styles, styled=1)
    for one in status.values():
        if one.state is not ServerState.READY and one.stderr_tail.strip():
            out.line()
            out.line(f"The end of what {one.name} wrote to stderr", "head")
            out.line("\n".join(one.stderr_tail.rstrip().splitlines()[-10:]))

    refused = [
        (one.name, clean_text(tool), code, why) for one in status.values() for tool, (code, why) in one.refused.items()
    ]
    if tools:
        out.line()
        tool_rows, tool_styles = verdict_rows(tools, connection.decide)
        out.table(VERDICT_COLUMNS, tool_rows, styles=tool_styles)
        out.line(LEGEND, "dim")

    if refused:
        out.line()
        out.line("Refused tools", "head")
        out.table(("server", "tool", "code", "reason"), refused, styles=["bad"] * len(refused))


async def _show_progress(connection: McpConnection, out: Printer) -> None:
    async for event in connection.events():
        if event.kind == "state" and event.facts["state"] in ("starting", "ready", "backing_off", "quarantined"):
            out.line(f"{event.server} is {event.facts['state']}", "dim")
        elif event.kind == "pinned":
            out.line(
                f"{event.server} is new: its {event.facts['tools']} tools are pinned in {event.facts['path']}", "dim"
            )


def _status_facts(status: ServerStatus) -> dict[str, Any]:
    return {
        "state": str(status.state),
        "reason": status.reason,
        "protocol_version": status.protocol_version,
        "server_info": status.server_info,
        "tools": status.tools,
        "refused": {tool: {"code": code, "reason": reason} for tool, (code, reason) in status.refused.items()},
        "last_error": status.last_error,
        "exit_code": status.exit_code,
        "stderr_tail": status.stderr_tail,
    }


async def _run_call(options: argparse.Namespace) -> int:
    try:
        arguments = json.loads(options.arguments)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the arguments are no JSON: {error}", key="JSON") from None

    if not isinstance(arguments, dict):
        raise ConfigError('the arguments must be a JSON object, such as {"name": "value"}', key="JSON")

    permissions = _permissions(options)
    connection = McpConnection.from_config(options.config, [options.server], permissions=permissions, restart=_ONCE)
    async with connection:
        result = await connection.call_tool(options.server, options.tool, arguments, timeout_seconds=options.timeout)

    out = Printer()
    if options.json:
        out.json(
            {
                "text": result.text,
                "structured_content": result.structured_content,
                "is_error": result.is_error,
                "truncated": result.truncated,
                "size_bytes": result.size_bytes,
                "findings": [{"code": f.code, "place": f.place, "message": f.message} for f in result.findings],
                "duration_seconds": result.duration_seconds,
            }
        )
    else:
        out.line(result.text)
        for finding in result.findings:
            Printer(sys.stderr).line(f"finding: {finding.code}: {finding.message}", "ask")

    return FAILED if result.is_error else FINE


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    Printer(sys.stderr).line(f"warning: {clean_text(str(message))}", "ask")
