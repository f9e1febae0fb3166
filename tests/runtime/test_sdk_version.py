"""Which MCP SDK we stand on."""

import pytest

from deputy_mcp._runtime import check_sdk


@pytest.mark.parametrize("found", ["2.3.0", "2.3", "2.10.1", "2.4.0rc1"])
def test_every_2_x_from_2_3_on_is_taken(found: str) -> None:
    """`mcp >= 2.3, < 3`."""
    assert None is check_sdk(found)  # type: ignore[func-returns-value] # that it returns is the point


@pytest.mark.parametrize("found", ["1.30.0", "2.2.9", "3.0.0", "20.3", "", "odd", None])
def test_another_version_is_named_at_import_with_the_mend(found: str | None) -> None:
    """Failing oddly later would cost somebody an afternoon."""
    with pytest.raises(ImportError, match=r"needs mcp>=2\.3,<3 and (found .*|it is not installed): pip install"):
        check_sdk(found)
