"""The half that acts: anyio, the MCP SDK, structlog. It asks `_core` what to do.

Importing any of it checks first which SDK we stand on, so that a wrong version is named instead of failing oddly.
"""

from importlib.metadata import PackageNotFoundError, version


def check_sdk(found: str | None) -> None:
    """Raise `ImportError` unless `found` is a version of `mcp` of at least 2.3 and below 3; None: it is missing."""
    major, _, rest = (found or "").partition(".")
    minor = rest.partition(".")[0]
    if not (major == "2" and minor.isdecimal() and int(minor) >= 3):
        what = f"found {found}" if found else "it is not installed"
        raise ImportError(f"deputy_mcp needs mcp>=2.3,<3 and {what}: pip install 'mcp>=2.3,<3'")


def _installed() -> str | None:
    try:
        return version("mcp")
    except PackageNotFoundError:
        return None


check_sdk(_installed())
