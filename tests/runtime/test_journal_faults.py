"""The journal over system calls that fail at random: whatever was handed to it is in the file or accounted for."""

import json
import subprocess
import sys
from pathlib import Path

PROGRAM = str(Path(__file__).parent / "journal_faults.py")


def test_everything_is_accounted_for_whatever_fails(tmp_path: Path) -> None:
    """Writes fail, fall short and are cut off, truncating, syncing, renaming and opening fail, again and again.

    Every commit that returned stands there once; none that raised does, or a `withdrawn` follows; every appended line
    stands there in its order or is counted by a `gap`; the chain holds over all files.
    """
    command = (sys.executable, PROGRAM, str(tmp_path), "0", "40")
    run = subprocess.run(command, capture_output=True, text=True, timeout=100)

    assert 0 == run.returncode, run.stderr
    *problems, told = [line for line in run.stdout.splitlines() if line.startswith(("seed ", '{"gap"'))]
    assert [] == problems
    # Outages that lost lines, calls withdrawn and rotations did occur.
    assert all(json.loads(told)[what] > 20 for what in ("gap", "withdrawn", "call", "begin", "lost"))
