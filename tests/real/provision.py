"""Brings MCP servers that other people wrote onto this machine, each where it disturbs nothing.

Run it (`python tests/real/provision.py [NAME …]`) or let the tests import it. A Python server gets a virtual
environment of its own, an npm one a prefix of its own, below `.cache/real-servers/` (or `$DEPUTY_MCP_REAL_SERVERS`).

Not part of the library, and no lock file: the servers are pinned, most of what they depend on is not.

What holds:
- A server is installed once per pin; a stamp, written last, says that it is whole.
- An installation is bounded in time, runs no install scripts of npm packages, and at most two run at once.
- What cannot be had is a `Missing` with a reason, kept in `NAME.failed` beside the folder; nothing raises.
- No call listed here needs a network: what would go out is pointed at a closed port of the loopback, or stopped before.
"""

import argparse
import contextlib
import fcntl
import importlib.util
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

CACHE_VARIABLE = "DEPUTY_MCP_REAL_SERVERS"
INSTALL_TIMEOUT_SECONDS = 240
"""For one command of an installation. The slowest took 40 s on two cores; past it the whole process group is killed."""
PARALLEL_INSTALLS = 2
REASON_CHARACTERS = 400

NOWHERE = "http://127.0.0.1:1"
"""An address that refuses at once: port 1 of the loopback is privileged, and nobody listens there."""
UNSENDABLE_TOKEN = "dummy-token-…"
"""No HTTP header can carry the last character, so `fetch` gives up before it looks for a network."""

KUBECONFIG = f"""\
apiVersion: v1
kind: Config
clusters: [{{name: nowhere, cluster: {{server: "{NOWHERE}"}}}}]
users: [{{name: nobody, user: {{token: none}}}}]
contexts: [{{name: scratch, context: {{cluster: nowhere, user: nobody}}}}]
current-context: scratch
"""


@dataclass(frozen=True)
class Missing:
    """Why a server is not there: one line for a person, made to be the reason of a skipped test."""

    reason: str


@dataclass(frozen=True)
class Call:
    """One call that needs no network, and what comes of it."""

    tool: str
    arguments: Mapping[str, Any]
    answer: str
    """Part of the result's text, or of the error's."""
    outcome: Literal["result", "tool_error", "remote_error"] = "result"
    """`tool_error`: a result that says it is an error. `remote_error`: a JSON-RPC error."""


def _no_arguments(scratch: Path) -> list[str]:
    return []


def _no_env(scratch: Path) -> dict[str, str]:
    return {}


def _nothing_to_prepare(scratch: Path) -> None:
    return None


@dataclass(frozen=True)
class RealServer:
    """A pinned server, how it is started on a scratch folder of its own, and what is known of it."""

    name: str
    kind: Literal["python", "npm", "sdist"]
    pins: tuple[str, ...]
    """Exact requirements; what else they need is resolved on the day of the installation."""
    program: str
    """The script in the environment's `bin`; for `sdist` the package to take out of it."""
    era: str
    """The protocol version that an up-to-date client and this server agree on."""
    min_tools: int
    args: Callable[[Path], list[str]] = _no_arguments
    env: Callable[[Path], dict[str, str]] = _no_env
    prepare: Callable[[Path], None] = _nothing_to_prepare
    call: Callable[[Path], Call] | None = None
    """None: it has no tool with a schema that must be accepted."""
    module: str | None = None
    """Where this module can be imported, it is run from here instead of an environment of its own."""


def _init_repository(scratch: Path) -> None:
    _run([_program("git"), "init", "--quiet", str(scratch / "repository")])


def _write_kubeconfig(scratch: Path) -> None:
    (scratch / "kubeconfig").write_text(KUBECONFIG, encoding="utf-8")


SERVERS: tuple[RealServer, ...] = (
    RealServer(
        "time",
        "python",
        ("mcp-server-time==2026.10.19",),
        program="mcp-server-time",
        module="mcp_server_time",
        era="2026-07-28",
        min_tools=2,
        args=lambda scratch: ["--local-timezone=UTC"],
        call=lambda scratch: Call("get_current_time", {"timezone": "UTC"}, answer='"timezone": "UTC"'),
    ),
    RealServer(
        "git",
        "python",
        ("mcp-server-git==2026.10.19",),
        program="mcp-server-git",
        module="mcp_server_git",
        era="2026-07-28",
        min_tools=12,
        prepare=_init_repository,
        args=lambda scratch: ["--repository", str(scratch / "repository")],
        call=lambda scratch: Call("git_status", {"repo_path": str(scratch / "repository")}, answer="No commits yet"),
    ),
    RealServer(
        "sqlite",
        "python",
        ("mcp-server-sqlite==2025.4.25", "mcp==1.30.0"),
        program="mcp-server-sqlite",
        era="2025-11-25",
        min_tools=6,
        args=lambda scratch: ["--db-path", str(scratch / "scratch.db")],
        call=lambda scratch: Call("list_tables", {}, answer="[]"),
    ),
    RealServer(
        "grafana",
        "python",
        ("mcp-grafana==2.1.1",),
        program="mcp-grafana",
        era="2026-07-28",
        min_tools=79,
        env=lambda scratch: {"GRAFANA_URL": NOWHERE, "GRAFANA_SERVICE_ACCOUNT_TOKEN": "dummy"},
        call=lambda scratch: Call("list_datasources", {}, answer="connection refused", outcome="tool_error"),
    ),
    RealServer(
        "everything",
        "npm",
        ("@modelcontextprotocol/server-everything@2026.8.31",),
        program="mcp-server-everything",
        era="2025-11-25",
        min_tools=13,
        args=lambda scratch: ["stdio"],
        call=lambda scratch: Call("echo", {"message": "over there"}, answer="Echo: over there"),
    ),
    RealServer(
        "filesystem",
        "npm",
        ("@modelcontextprotocol/server-filesystem@2026.8.31",),
        program="mcp-server-filesystem",
        era="2025-11-25",
        min_tools=14,
        prepare=lambda scratch: (scratch / "a file.txt").touch(),
        args=lambda scratch: [str(scratch)],
        call=lambda scratch: Call("list_directory", {"path": str(scratch)}, answer="[FILE] a file.txt"),
    ),
    RealServer(
        "github",
        "npm",
        ("@modelcontextprotocol/server-github@2025.4.8",),
        program="mcp-server-github",
        era="2024-11-05",
        min_tools=26,
        env=lambda scratch: {"GITHUB_PERSONAL_ACCESS_TOKEN": UNSENDABLE_TOKEN},
        call=lambda scratch: Call(
            "search_repositories", {"query": "deputy"}, answer="ByteString", outcome="remote_error"
        ),
    ),
    RealServer(
        "kubernetes",
        "npm",
        ("kubernetes-mcp-server@0.0.67",),
        program="kubernetes-mcp-server",
        era="2026-07-28",
        min_tools=20,
        prepare=_write_kubeconfig,
        env=lambda scratch: {"KUBECONFIG": str(scratch / "kubeconfig")},
        call=lambda scratch: Call("configuration_view", {}, answer="current-context: scratch"),
    ),
    # The odd ones.
    RealServer(
        # Prints a line that is no JSON to stdout before it speaks.
        "office-word",
        "python",
        ("office-word-mcp-server==1.1.11", "fastmcp==4.2.3"),
        program="word_mcp_server",
        era="2026-07-28",
        min_tools=54,
        call=lambda scratch: Call(
            "create_document", {"filename": str(scratch / "letter.docx")}, answer="created successfully"
        ),
    ),
    RealServer(
        # None of its nine schemas has a type.
        "gitlab",
        "npm",
        ("@modelcontextprotocol/server-gitlab@2025.4.25",),
        program="mcp-server-gitlab",
        era="2024-11-05",
        min_tools=9,
        env=lambda scratch: {"GITLAB_PERSONAL_ACCESS_TOKEN": "dummy", "GITLAB_API_URL": NOWHERE},
    ),
    RealServer(
        "context7",
        "npm",
        ("@upstash/context7-mcp@4.1.1",),
        program="context7-mcp",
        era="2026-07-28",
        min_tools=2,
        env=lambda scratch: {"CONTEXT7_API_URL": NOWHERE, "OTEL_SDK_DISABLED": "true"},
        # It tells of a failed search in an ordinary result.
        call=lambda scratch: Call(
            "resolve-library-id", {"query": "tasks", "libraryName": "anyio"}, answer="fetch failed"
        ),
    ),
    RealServer(
        # The example that comes with the SDK's source, on the SDK that is installed here.
        "sdk-everything",
        "sdist",
        ("mcp==2.3.0",),
        program="mcp_everything_server",
        era="2026-07-28",
        min_tools=28,
        call=lambda scratch: Call("test_simple_text", {}, answer="This is a simple text response for testing."),
    ),
)


def cache_folder() -> Path:
    """Where the servers are kept."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).resolve() if chosen else Path(__file__).resolve().parents[2] / ".cache" / "real-servers"


def provided(server: RealServer, scratch: Path) -> tuple[str, list[str], dict[str, str]] | Missing:
    """Command, arguments and environment that start `server` on its own folder `scratch`; installs what is missing."""
    missing = provision(server)
    if missing is not None:
        return missing

    scratch.mkdir(parents=True, exist_ok=True)
    try:
        server.prepare(scratch)
    except (OSError, InstallFailed) as error:
        return Missing(f"{server.name}: its scratch folder could not be prepared: {error}")

    command, first_args, env = _command(server)
    return command, first_args + server.args(scratch), env | server.env(scratch)


def provision_all(servers: Iterable[RealServer] = SERVERS) -> dict[str, Missing | None]:
    """Installs what is missing, at most two at once; None for a server that is there."""
    chosen = tuple(servers)
    with ThreadPoolExecutor(PARALLEL_INSTALLS) as pool:
        outcomes = pool.map(provision, chosen)
        return {server.name: outcome for server, outcome in zip(chosen, outcomes, strict=True)}


# One try per server and process: a registry that is out of reach is waited for once, not once a test.
_outcomes: dict[str, Missing | None] = {}
_one_try = {server.name: threading.Lock() for server in SERVERS}


def provision(server: RealServer) -> Missing | None:
    """Makes sure that `server` is installed; None when it is."""
    with _one_try[server.name]:
        if server.name not in _outcomes:
            _outcomes[server.name] = _provision(server)

        return _outcomes[server.name]


class InstallFailed(Exception):
    """One step of an installation did not work; the text is the reason."""


def _provision(server: RealServer) -> Missing | None:
    if _runs_from_here(server):
        return None

    try:
        cache = cache_folder()
        folder, record = cache / server.name, cache / f"{server.name}.failed"
        cache.mkdir(parents=True, exist_ok=True)
        # Two test runs may meet here. The second waits; the first is bounded.
        with (cache / f"{server.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                key = _key(server)
                if _stamp(folder) != key:
                    try:
                        _install(server, folder)
                    except InstallFailed:
                        shutil.rmtree(folder, ignore_errors=True)
                        raise

                    (folder / "stamp").write_text(key, encoding="utf-8")
            except InstallFailed as failure:
                record.write_text(f"{failure}\n", encoding="utf-8")
                return Missing(f"{server.name}: {failure}")

            record.unlink(missing_ok=True)
            return None
    except OSError as error:
        return Missing(f"{server.name}: the cache cannot be used: {error}")


def _runs_from_here(server: RealServer) -> bool:
    return server.module is not None and importlib.util.find_spec(server.module) is not None


def _key(server: RealServer) -> str:
    """What an installation is good for; another pin, interpreter or machine needs a new one."""
    if server.kind == "npm":
        runtime = _run([_program("node"), "--version"]).strip()
    else:
        runtime = f"python {platform.python_version()}"

    return "\n".join((*server.pins, runtime, f"{platform.system()} {platform.machine()}", ""))


def _stamp(folder: Path) -> str | None:
    try:
        return (folder / "stamp").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _install(server: RealServer, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    pip = ("-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "1")
    match server.kind:
        case "python":
            _run([sys.executable, "-m", "venv", str(folder)])
            _run([str(folder / "bin" / "python"), *pip, "install", "--quiet", "--prefer-binary", *server.pins])
        case "npm":
            quiet = ("--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1")
            # A package's install scripts would run with our rights and are none of our business.
            _run([_program("npm"), "install", "--prefix", str(folder), "--ignore-scripts", *quiet, *server.pins])
        case "sdist":
            _run([sys.executable, *pip, "download", "--no-deps", "--no-binary=:all:", "-d", str(folder), *server.pins])
            _unpack(folder, server.program)

    program = _command(server)[0]
    if not Path(program).exists():
        raise InstallFailed(f"the installation brought no {Path(program).name}")


def _unpack(folder: Path, package: str) -> None:
    """Takes the modules of one package out of the only archive in `folder`, and drops the archive."""
    (archive,) = folder.glob("*.tar.gz")
    target = folder / package
    target.mkdir()
    with tarfile.open(archive) as members:
        for member in members:
            path = PurePosixPath(member.name)
            # Only the last part of a name is used, so no name in the archive leads out of the folder.
            if member.isfile() and path.suffix == ".py" and path.parent.name == package:
                content = members.extractfile(member)
                assert content is not None
                (target / path.name).write_bytes(content.read())

    archive.unlink()
    if not any(target.iterdir()):
        raise InstallFailed(f"the source distribution holds no {package}")


def _command(server: RealServer) -> tuple[str, list[str], dict[str, str]]:
    folder = cache_folder() / server.name
    if _runs_from_here(server):
        return sys.executable, ["-m", str(server.module)], {}

    match server.kind:
        case "python":
            return str(folder / "bin" / server.program), [], {}
        case "npm":
            return str(folder / "node_modules" / ".bin" / server.program), [], {}
        case "sdist":
            # Its command line knows HTTP only; the server itself speaks over stdio as well.
            start = f"from {server.program}.server import mcp; mcp.run('stdio')"
            return sys.executable, ["-c", start], {"PYTHONPATH": str(folder)}


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise InstallFailed(f"no {name} on PATH")

    return found


def _run(command: Sequence[str]) -> str:
    """Runs one step and gives its output; whatever it started is gone when its time is up."""
    name = " ".join(Path(part).name for part in command[:4])
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=INSTALL_TIMEOUT_SECONDS)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

            if not isinstance(error, subprocess.TimeoutExpired):
                raise

            raise InstallFailed(f"{name}: not done after {INSTALL_TIMEOUT_SECONDS} s") from None

    if process.returncode != 0:
        raise InstallFailed(f"{name}: exit code {process.returncode}: {_last_words(output)}")

    return output


def _last_words(output: str) -> str:
    """The end of what an installer said, in one line. Addresses are left out: reasons end up in logs."""
    text = re.sub(r"\w+://\S+", "<address>", " ".join(output.split()))
    return text if len(text) <= REASON_CHARACTERS else "… " + text[-REASON_CHARACTERS:]


def main() -> None:
    """Installs the named servers, or all. What is missing is said here and skipped, with its reason, by the tests."""
    known = {server.name: server for server in SERVERS}
    parser = argparse.ArgumentParser(description="Install the MCP servers that tests/real runs against.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(known)}; none: all")
    names = parser.parse_args().names or list(known)
    unknown = [name for name in names if name not in known]
    if unknown:
        parser.error(f"no such server: {', '.join(unknown)}")

    began = time.monotonic()
    outcomes = provision_all(known[name] for name in names)
    for name, missing in outcomes.items():
        print(f"{name}: {'there' if missing is None else f'missing: {missing.reason}'}")

    print(f"{time.monotonic() - began:.0f} s, in {cache_folder()}")


if __name__ == "__main__":
    main()
