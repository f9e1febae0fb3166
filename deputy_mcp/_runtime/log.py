"""Our events, to structlog. A library must not print: where the host has not configured structlog (whose default is
to print to stdout), events go to the standard library's logger `deputy_mcp` instead, silent until the host listens.
"""

import functools
import logging
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import structlog

Level = Literal["info", "warning"]

_logger = logging.getLogger("deputy_mcp")
_logger.addHandler(logging.NullHandler())
_LEVELS: dict[Level, int] = {"info": logging.INFO, "warning": logging.WARNING}


def listener(level: Level) -> Callable[..., object] | None:
    """What takes an event of `level` and its fields; None where nobody listens, and none need be made."""
    # Who configures it has imported it; with what it draws tracebacks with, that takes as long as half of this library.
    known: Any = sys.modules.get("structlog")
    if known is not None and known.is_configured():
        logger: Any = _configured()
    elif _logger.isEnabledFor(_LEVELS[level]):
        logger = _standard()
    else:
        return None

    listening: Callable[..., object] = getattr(logger, level)
    return listening


def log_event(event: str, *, level: Level = "info", **fields: Any) -> None:
    """Log one event. `fields` must be clean and masked already."""
    listening = listener(level)
    if listening is not None:
        listening(event, **fields)


def log_failure(error: Exception) -> None:
    """The host's structlog failed; the standard library's logger may be heard."""
    _logger.error("an event could not be logged", exc_info=error)


@functools.cache
def _configured() -> "structlog.typing.FilteringBoundLogger":
    """Binds at each event, unless the host said that loggers may be cached."""
    import structlog

    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger("deputy_mcp")
    return logger.bind() if structlog.get_config()["cache_logger_on_first_use"] else logger


@functools.cache
def _standard() -> "structlog.stdlib.BoundLogger":
    import structlog

    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        _logger,
        processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return logger
