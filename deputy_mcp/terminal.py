"""What the commands print: tables and colour on a terminal where `rich` is installed (extra `cli`), else plain text.

Everything that comes from a server was cleaned before it gets here; rich's own markup is never interpreted.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

STYLES = {"ok": "green", "bad": "bold red", "ask": "yellow", "head": "bold", "dim": "dim"}


class Printer:
    """Prints to one stream; on a terminal with colour, elsewhere plain."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._console = _rich_console(self._stream)

    def line(self, text: str = "", style: str = "") -> None:
        """One line, or several."""
        if self._console is None:
            print(text, file=self._stream, flush=True)
        else:
            self._console.print(text, style=STYLES.get(style, ""), markup=False, highlight=False)

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        styles: Sequence[str] = (),
        styled: int = -1,
    ) -> None:
        """A table; `styles` has one style a row, for its cell number `styled`."""
        if self._console is None:
            widths = [max(len(str(row[i])) for row in (columns, *rows)) for i in range(len(columns))]
            for row in (columns, *rows):
                padded = (str(cell).ljust(width) for cell, width in zip(row, widths, strict=True))
                self.line("  ".join(padded).rstrip())

            return

        from rich.table import Table
        from rich.text import Text

        table = Table(header_style="bold", box=None, pad_edge=False)
        for column in columns:
            # Folded, never shortened: a name must be copyable.
            table.add_column(column, overflow="fold")

        for i, row in enumerate(rows):
            cells = [Text(str(cell)) for cell in row]
            if styles:
                cells[styled].stylize(STYLES.get(styles[i], ""))

            table.add_row(*cells)

        self._console.print(table)

    def json(self, value: Any) -> None:
        """One JSON document."""
        # ASCII: some of it is a server's, raw, and would reach the terminal.
        print(json.dumps(value, indent=2), file=self._stream, flush=True)


def _rich_console(stream: TextIO) -> Any:
    if not stream.isatty():
        return None

    try:
        from rich.console import Console
    except ImportError:
        return None

    return Console(file=stream)
