"""Results too large for a model, in files of one connection: bounded together, private, removed at its end."""

import contextlib
import os
import shutil
import tempfile
import threading
from pathlib import Path
from secrets import token_hex

import anyio.to_thread


class Spill:
    """Where `on_large_result="spill"` writes. Nothing is made before the first file."""

    # Mutable state: the folder of our own, how much was written in all, whether it is over. Writers are threads.
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = False
        self._own: Path | None = None
        self._written_bytes = 0

    async def write(self, data: bytes, *, directory: str | None, max_bytes: int) -> str | None:
        """The new file's path; None when `max_bytes` over all files would be passed. Raises `OSError`."""
        if self._closed or self._written_bytes + len(data) > max_bytes:
            return None

        self._written_bytes += len(data)
        try:
            return await anyio.to_thread.run_sync(self._write, data, directory)
        except OSError:
            self._written_bytes -= len(data)
            raise

    def _write(self, data: bytes, directory: str | None) -> str:
        if directory is not None:
            folder = Path(directory)
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        else:
            with self._lock:
                if self._closed:
                    raise OSError("the connection is closed")

                if self._own is None:
                    self._own = Path(tempfile.mkdtemp(prefix="deputy-mcp-"))  # 0700 by its contract

                folder = self._own

        path = folder / f"result-{token_hex(8)}.json"
        # Exclusive: a name somebody laid there beforehand, a link included, is not followed.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # a mode is needed
            file.write(data)

        return str(path)

    def remove(self) -> None:
        """Remove our own folder; files in a directory the host chose stay."""
        with self._lock:
            self._closed = True
            if self._own is not None:
                with contextlib.suppress(OSError):
                    shutil.rmtree(self._own)

                self._own = None
