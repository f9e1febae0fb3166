"""Waits for its turn, then becomes the client: `turn.py FOLDER CLIENT URL`.

The suite starts the clients of all scenarios at once. Forty interpreters on two cores would be judged by waits that are
the machine's, not ours: a server that answers at once would seem to be silent for a second. So only a few run side by
side. A turn is a file's lock, which ends with the process, however that ends.
"""

import contextlib
import fcntl
import os
import secrets
import sys
from pathlib import Path

SIDE_BY_SIDE = max(2, (os.cpu_count() or 2) // 2)


def main() -> None:
    folder, client, url = sys.argv[1:]
    turns = [(Path(folder) / f"turn-{number}").open("a") for number in range(SIDE_BY_SIDE)]
    for turn in turns:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
    else:
        turn = secrets.choice(turns)
        fcntl.flock(turn, fcntl.LOCK_EX)

    os.set_inheritable(turn.fileno(), True)
    os.execv(sys.executable, [sys.executable, client, url])


if __name__ == "__main__":
    main()
