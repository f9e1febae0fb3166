"""Our events, to structlog. A library must not print: where the host has not configured structlog (whose default is
to print to stdout), events go to the standard library's logger `deputy_mcp` instead, silent until the host listens.
"""

import logging
from typing import Any, Literal

import structlog

_logger = logging.getLogger("deputy_mcp")
_logger.addHandler(logging.NullHandler())
_standard = structlog.wrap_logger(
    _logger,
    processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
    wrapper_class=structlog.stdlib.BoundLogger,
)
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING}
_configured = structlog.get_logger("deputy_mcp")
"""Binds at each event, unless the host said that loggers may be cached."""


def log_event(event: str, *, level: Literal["info", "warning"] = "info", **fields: Any) -> None:
    """Log one event. `fields` must be clean and masked already."""
    if structlog.is_configured():
        getattr(_configured, level)(event, **fields)
    elif _logger.isEnabledFor(_LEVELS[level]):
        getattr(_standard, level)(event, **fields)
