"""Brings the SDK's interaction suite onto this machine: out of the source distribution of the `mcp` that is installed.

Run it (`python tests/interaction/sdk_suite.py`) or let `run.py` do it. Only the tests are taken, into
`.cache/interaction/VERSION/` (or `$DEPUTY_MCP_INTERACTION`); none of them is part of this repository. A stamp, written
last, says that a copy is whole. What cannot be had is a `Missing` with its reason.
"""

import fcntl
import os
import shutil
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real"))

from provision import InstallFailed, _run
from provision import Missing as Missing

CACHE_VARIABLE = "DEPUTY_MCP_INTERACTION"
TAKEN = ("tests/__init__.py", "tests/_stamp.py", "tests/interaction/")
"""What the suite is made of. The SDK's `tests/conftest.py` needs packages of its tool chain; `plugin.py` stands in."""


def cache_folder() -> Path:
    """Where the suite is kept, by version."""
    chosen = os.environ.get(CACHE_VARIABLE)
    return Path(chosen).resolve() if chosen else Path(__file__).resolve().parents[2] / ".cache" / "interaction"


def provide_suite() -> Path | Missing:
    """The folder that holds `tests/interaction` of the installed SDK's version; fetched when it is not there yet."""
    pin = version("mcp")
    folder = cache_folder() / pin
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with (cache_folder() / f"{pin}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "stamp").exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                _fetch(pin, folder)
                (folder / "stamp").write_text(f"{pin}\n", encoding="utf-8")
    except (InstallFailed, OSError) as error:
        return Missing(f"the source distribution of mcp {pin}: {error}")

    return folder


def _fetch(pin: str, folder: Path) -> None:
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--retries", "1")
    _run([*pip, "download", "--no-deps", "--no-binary=:all:", "-d", str(folder), f"mcp=={pin}"])
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as members:
        for member in members:
            path = PurePosixPath(*PurePosixPath(member.name).parts[1:])
            if member.isfile() and str(path).startswith(TAKEN) and ".." not in path.parts:
                content = members.extractfile(member)
                assert content is not None
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())

    archive.unlink()
    if not (folder / "tests" / "interaction" / "conftest.py").exists():
        raise InstallFailed("it holds no tests/interaction")


def main() -> None:
    """Fetch the suite, and say where it is or why not."""
    found = provide_suite()
    if isinstance(found, Missing):
        sys.exit(f"missing: {found.reason}")

    print(found)


if __name__ == "__main__":
    main()
