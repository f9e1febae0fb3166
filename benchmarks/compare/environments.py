"""The Python that each client runs in: this one, or for fastmcp an environment of its own, installed on first use.

Its dependencies may clash with ours. It lies below `.cache/compare/` and is made once per pin and interpreter: built
beside its place and moved there when it is whole. What cannot be had is a reason, not an error.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "compare"

FASTMCP = "4.2.3"
INSTALL_SECONDS = 240
"""For one command of the installation, which took 25 s on two cores."""
REASON_CHARACTERS = 200

CLIENTS = {"deputy_mcp": "with_deputy", "bare SDK": "with_sdk", "fastmcp": "with_fastmcp"}
"""The columns of the table, and the driver of each."""


@frozen
class Ready:
    """A client that can be run."""

    python: str
    module: str
    versions: str
    """For people."""


@frozen
class Missing:
    """Why a client cannot be run, in one line."""

    reason: str


def prepared(client: str) -> Ready | Missing:
    """The environment of a client; installs what is missing."""
    module = f"benchmarks.compare.drivers.{CLIENTS[client]}"
    if client == "fastmcp":
        return installed("fastmcp", FASTMCP, module)

    name = "mcp-deputy" if client == "deputy_mcp" else "mcp"
    return Ready(sys.executable, module, f"{name} {version(name)}")


def is_installed(client: str) -> bool:
    """Whether `prepared` has nothing to install."""
    return client != "fastmcp" or (_place("fastmcp", FASTMCP) / "bin" / "python").exists()


def _place(package: str, pin: str) -> Path:
    return CACHE / f"{package}-{pin}-python{platform.python_version()}"


def installed(package: str, pin: str, module: str, *, extra: str = "") -> Ready | Missing:
    """An environment of its own for `package` at `pin`; made where it is missing."""
    place = _place(package, pin)
    python = place / "bin" / "python"
    try:
        if not python.exists():
            _install(place, f"{package}{extra}=={pin}")

        code = f"from importlib.metadata import version as v; print('{package}', v('{package}'), 'on mcp', v('mcp'))"
        return Ready(str(python), module, _run([str(python), "-c", code]).strip())
    except (OSError, subprocess.SubprocessError, InstallFailedError) as error:
        return Missing(f"{package} {pin} could not be installed: {_one_line(str(error))}")


class InstallFailedError(Exception):
    """One step did not work; the text is the reason."""


def _install(place: Path, requirement: str) -> None:
    CACHE.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        _run([sys.executable, "-m", "venv", str(beside)])
        pip = ["-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "1"]
        _run([str(beside / "bin" / "python"), *pip, "install", "--quiet", "--prefer-binary", requirement])
        # Somebody else may have been quicker; then theirs stays.
        if not place.exists():
            beside.rename(place)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _run(command: list[str]) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=INSTALL_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise InstallFailedError(done.stderr or f"exit code {done.returncode}")

    return done.stdout


def _one_line(text: str) -> str:
    """The end of what was said. Addresses and paths are left out: the reason may end up in a page."""
    words = re.sub(r"(\w+:/)?/\S+", "…", " ".join(text.split()))
    return words if len(words) <= REASON_CHARACTERS else "… " + words[-REASON_CHARACTERS:]
