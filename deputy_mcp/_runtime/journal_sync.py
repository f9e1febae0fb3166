"""A thread that brings what the journal wrote to the disk itself (`fsync=True`).

One `fdatasync` covers all that was written before it; while it is under way, any number of writes wait for the next.
So nobody waits for the disk, and with the power at most the last moments are lost. What fails is told at the next
write.
"""

import contextlib
import os
import threading


def datasync(fd: int) -> None:
    """Return when what was written to it is on the disk."""
    # macOS has only the latter.
    getattr(os, "fdatasync", os.fsync)(fd)


class Syncer:
    """See the module. The thread starts with the first descriptor and ends with `stop`."""

    # Mutable state, under the condition: its own descriptors, the last of them in use; whether something was written
    # since; whether to stop. And what failed, set by the thread, taken by the writer.
    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._condition = threading.Condition()
        self._fds: list[int] = []
        self._new_file = False
        self._wanted = False
        self._stopping = False
        self._failure: OSError | None = None
        self._thread: threading.Thread | None = None

    def use(self, fd: int) -> None:
        """From now on this descriptor, which becomes the syncer's own."""
        with self._condition:
            self._fds.append(fd)
            self._new_file = True
            if self._thread is None:
                # A daemon: a program that ends without closing its journal must end.
                self._thread = threading.Thread(target=self._run, name="deputy-mcp-journal", daemon=True)
                self._thread.start()

    def want(self) -> None:
        """Something was written."""
        with self._condition:
            self._wanted = True
            self._condition.notify()

    def take_failure(self) -> OSError | None:
        """What failed since the last time."""
        failure, self._failure = self._failure, None
        return failure

    def stop(self) -> None:
        """Return when all that was written is on the disk. Raises `OSError` if it may not be."""
        with self._condition:
            self._stopping = True
            self._condition.notify()

        if self._thread is not None:
            self._thread.join()

        if (failure := self.take_failure()) is not None:
            raise failure

    def _run(self) -> None:
        stopping = False
        while not stopping:
            with self._condition:
                while not (self._wanted or self._stopping):
                    self._condition.wait()

                stopping = self._stopping
                fds, self._wanted = list(self._fds), False
                new_file, self._new_file = self._new_file, False

            try:
                for fd in fds:
                    datasync(fd)

                if new_file:
                    self._sync_folder()
            except OSError as error:
                self._failure = error
                self._new_file = self._new_file or new_file

            with self._condition:
                done = fds if stopping else fds[:-1]
                self._fds = [fd for fd in self._fds if fd not in done]

            for fd in done:
                with contextlib.suppress(OSError):
                    os.close(fd)

    def _sync_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
