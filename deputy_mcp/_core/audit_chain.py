"""The hash chain over the lines of a journal: making it, and finding where it was broken.

    {"seq":12, … ,"prev":"<hash of line 11>","hash":"<hash of this line>"}

`hash` is SHA-256 over the line's own bytes up to `,"hash":`, with a key HMAC-SHA256; `prev` is the `hash` of the line
before. A file begins with a `begin` line that names the chain's kind; its `prev` is `CHAIN_START`, or after a rotation
the last hash of the file before, whose numbering goes on.

What a check can see:
- without anything else: the first line edited, removed inside, moved or put in, as long as the rest was left alone;
- with the key: also a chain that somebody without it computed anew;
- with a hash noted elsewhere (the head): also a tail cut off before it, and any chain computed anew.
Nothing here can see that lines after the last noted head were cut off.

Linear in the bytes, whatever they are: a line is found by its fixed ends and its hash, and never parsed.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from attrs import frozen

from deputy_mcp._core.audit import FORMAT_VERSION, MAX_LINE_BYTES, decode_line

CHAIN_START = "0" * 64
"""`prev` of the very first line."""

VerdictCode = Literal["intact", "edited", "removed", "reordered", "malformed", "head_missing", "key_needed"]

_FRONT = re.compile(rb'\{"seq":([1-9][0-9]{0,17}),"time":"[0-9T:.-]{26}Z","event":"([a-z_]{1,32})"')
_ENDS = re.compile(rb',"prev":"([0-9a-f]{64})","hash":"([0-9a-f]{64})"\}')
_ENDS_BYTES = 149
_HASH_BYTES = 75
"""Of the ends, `,"hash":"…"}`, which the hash does not cover."""
_HASH = re.compile(r"[0-9a-f]{64}")


def is_hash(text: str) -> bool:
    """Whether this can be a head: 64 hexadecimal digits, lower case."""
    return _HASH.fullmatch(text) is not None


def chain_lines(bodies: Sequence[str], seq: int, head: str, key: bytes | None) -> tuple[bytes, str]:
    """The lines of these bodies after line `seq` with hash `head`; and the last one's hash."""
    lines = []
    for body in bodies:
        seq += 1
        text = f'{{"seq":{seq},{body},"prev":"{head}"'.encode("ascii")
        head = _digest(text, key)
        lines.append(b'%b,"hash":"%b"}\n' % (text, head.encode("ascii")))

    return b"".join(lines), head


def _digest(text: bytes, key: bytes | None) -> str:
    return hmac.digest(key, text, "sha256").hex() if key else hashlib.sha256(text).hexdigest()


def chain_kind(key: bytes | None) -> str:
    """How `begin` names the chain."""
    return "hmac-sha256" if key else "sha256"


@frozen(kw_only=True)
class Verdict:
    """What a check found; all but the first three fields is about the intact lines before the first bad one."""

    code: VerdictCode = "intact"
    message: str = ""
    """What is wrong, for a person; empty when nothing is. Holds nothing of the lines but numbers."""
    bad_line: int | None = None
    """The first line edited, moved, or before which lines are missing: its number among the lines given, from 1."""
    lines: int = 0
    seq: int = 0
    """The last line's number in the chain; 0: there was none."""
    head: str = CHAIN_START
    """The last line's hash. Noted elsewhere, it proves later that nothing before it was cut off or computed anew."""
    first_seq: int = 1
    after: str = CHAIN_START
    """What the first line follows: `CHAIN_START`, or the last hash of the file before."""
    continues: str | None = None
    """The name of the file that the newest `begin` says it goes on from."""
    closed: bool = False
    """Whether the last line is a `close`; if not, the writer is at work, has died, or the tail was cut."""
    torn_bytes: int = 0
    """Of a last line without an end: a crash in the middle of a write, or a write under way."""

    @property
    def intact(self) -> bool:
        return self.code == "intact"


def verify_lines(lines: Iterable[bytes], *, key: bytes | None = None, head: str | None = None) -> Verdict:
    """Check lines, each with its line break, in order; those of rotated files one file after the other.

    `head`: a hash noted earlier, which must be one of theirs. No lines are intact, unless a head was expected.
    Longer lines than `MAX_LINE_BYTES` may come in pieces. The first bad line ends the check.
    """
    check = _Check(iter(lines), key)
    found = head in (None, CHAIN_START)
    for line in check.rest:
        bad = check.take(line)
        if bad is not None:
            return bad

        found = found or check.head == head
        if check.torn_bytes:
            break

    if not found:
        return check.verdict(
            "head_missing",
            None,
            "no line has the hash that was noted: the tail was cut off, the chain was computed anew, or it is another "
            "journal's",
        )

    return check.verdict()


class _Check:
    """One pass over lines."""

    # Mutable state: the lines still to come, and what is known of the intact ones so far.
    __slots__ = (
        "_key",
        "after",
        "before",
        "closed",
        "continues",
        "first_seq",
        "head",
        "lines",
        "rest",
        "seq",
        "torn_bytes",
    )

    def __init__(self, rest: Iterator[bytes], key: bytes | None) -> None:
        self.rest = rest
        self._key = key
        self.lines = self.seq = self.torn_bytes = 0
        self.first_seq = 1
        self.head = self.before = self.after = CHAIN_START
        self.continues: str | None = None
        self.closed = False

    def verdict(self, code: VerdictCode = "intact", bad_line: int | None = None, message: str = "") -> Verdict:
        return Verdict(
            code=code,
            message=message,
            bad_line=bad_line,
            lines=self.lines,
            seq=self.seq,
            head=self.head,
            first_seq=self.first_seq,
            after=self.after,
            continues=self.continues,
            closed=self.closed,
            torn_bytes=self.torn_bytes,
        )

    def take(self, line: bytes) -> Verdict | None:
        """The next line; a verdict only when it is bad."""
        number = self.lines + 1
        if not line.endswith(b"\n") and len(line) <= MAX_LINE_BYTES:
            if next(self.rest, None) is not None:
                return self.verdict("malformed", number, f"line {number} has no end")

            self.torn_bytes = len(line)
            return None

        front = _FRONT.match(line)
        ends = _ENDS.fullmatch(line, max(0, len(line) - 1 - _ENDS_BYTES), len(line) - 1)
        if front is None or ends is None or len(line) > MAX_LINE_BYTES:
            return self.verdict("malformed", number, f"line {number} is no line of a journal")

        seq, event = int(front[1]), front[2]
        previous, own = ends[1].decode("ascii"), ends[2].decode("ascii")
        record = decode_line(line) if event == b"begin" else None
        if number == 1 and record is not None and record.get("chain") == chain_kind(b"key") and self._key is None:
            return self.verdict("key_needed", None, "the chain was made with a key, and only with it can it be checked")

        # The time it takes tells nothing that the file does not say: whoever asks can read it.
        if own != _digest(line[: -1 - _HASH_BYTES], self._key):
            why = ", or the chain was made with another key or without one" if self._key and number == 1 else ""
            return self.verdict("edited", number, f"line {number} was edited: its hash is another one{why}")

        if number == 1:
            if record is None:
                return self.verdict("removed", 1, f"the lines before number {seq} are gone: line 1 is no beginning")

            self.first_seq, self.after = seq, previous
        elif previous != self.head or seq != self.seq + 1:
            return self._misplaced(seq)

        if record is not None:
            if record.get("version") != FORMAT_VERSION:
                return self.verdict("malformed", number, f"line {number} begins a journal of a version not known here")

            continues = record.get("continues")
            self.continues = continues if isinstance(continues, str) else None

        self.lines, self.seq, self.before, self.head = number, seq, previous, own
        self.closed = event == b"close"
        return None

    def _misplaced(self, seq: int) -> Verdict:
        """A line that has its own hash and does not follow the one before it."""
        number, due = self.lines + 1, self.seq + 1
        if seq == due:
            # It names another hash of the line before: that one was edited and given a hash that fits.
            self.lines, self.seq, self.head, self.closed = self.lines - 1, self.seq - 1, self.before, False
            edited = number - 1
            return self.verdict("edited", edited, f"line {edited} was edited: the next line names another hash of it")

        if seq < due:
            return self.verdict("reordered", number, f"line {number} has number {seq} where {due} is due")

        if any((front := _FRONT.match(line)) is not None and int(front[1]) == due for line in self.rest):
            return self.verdict("reordered", number, f"line {number} has number {seq}; number {due} comes only later")

        gone = f"line with number {due} is" if seq == due + 1 else f"lines with numbers {due} to {seq - 1} are"
        return self.verdict("removed", number, f"before line {number} the {gone} gone")
