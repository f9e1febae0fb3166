"""All situations, by the heading under which the table shows them. Data only."""

from collections.abc import Mapping

from benchmarks.compare.situations.answers import ANSWERS
from benchmarks.compare.situations.asking import ASKING
from benchmarks.compare.situations.http import HTTP
from benchmarks.compare.situations.several import SEVERAL
from benchmarks.compare.situations.starting import STARTING
from benchmarks.compare.situations.stdio import STDIO
from benchmarks.compare.values import Situation

HEADINGS: Mapping[str, tuple[Situation, ...]] = {
    "Answers": ANSWERS,
    "Requests and notifications from the server": ASKING,
    "stdio: bytes and processes": STDIO,
    "HTTP": HTTP,
    "Starting and listing": STARTING,
    "One bad server of two": SEVERAL,
}

SITUATIONS: Mapping[str, Situation] = {one.name: one for group in HEADINGS.values() for one in group}
