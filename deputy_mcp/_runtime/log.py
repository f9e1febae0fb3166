"""Our events, to structlog. A library must not print: where the host has not configured structlog (whose default is
to print to stdout), events go to the standard library's logger `deputy_mcp` instead, silent until the host listens.
"""

import functools
import logging
import sys
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import structlog

Level = Literal["info", "warning"]

_logger = logging.getLogger("deputy_mcp")
_logger.addHandler(logging.NullHandler())
_LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING}


def log_event(event: str, *, level: Level = "info", **fields: Any) -> None:
    """Log one event. `fields` must be clean and masked already."""
    # Who configures it has imported it; with what it draws tracebacks with, that takes as long as half of this library.
    known: Any = sys.modules.get("structlog")
    if known is not None and known.is_configured():
        getattr(_configured(), level)(event, **fields)
    elif _logger.isEnabledFor(_LEVELS[level]):
        getattr(_standard(), level)(event, **fields)


@functools.cache
def _configured() -> "structlog.typing.FilteringBoundLogger":
    """Binds at each event, unless the host said that loggers may be cached."""
    import structlog

    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger("deputy_mcp")
    return logger


@functools.cache
def _standard() -> "structlog.stdlib.BoundLogger":
    import structlog

    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        _logger,
        processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger
