"""The half that acts: anyio, the MCP SDK, structlog. It asks `_core` what to do.

Importing any of it checks first which SDK we stand on, so that a wrong version is named instead of failing oddly.
"""

from importlib.metadata import PackageNotFoundError, version


def check_sdk() -> None:
    """Raise `ImportError` unless `mcp` is at least 2.3 and below 3."""
    try:
        found = version("mcp")
    except PackageNotFoundError:
        raise ImportError("deputy_mcp needs the MCP SDK: pip install 'mcp>=2.3,<3'") from None

    major, _, rest = found.partition(".")
    minor = rest.partition(".")[0]
    if not (major == "2" and minor.isdecimal() and int(minor) >= 3):
        raise ImportError(f"deputy_mcp needs mcp>=2.3,<3 and found {found}: pip install 'mcp>=2.3,<3'")


check_sdk()
