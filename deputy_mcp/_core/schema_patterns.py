"""What a regular expression in a schema costs, weighed before it is compiled.

Not a parser of regular expressions: one pass that errs to the heavy side.
"""

import re

from attrs import frozen

CAP = 10**12
"""Where counting stops; every budget is far below."""
WIDE_CLASS_STATES = 500
"""`\\p{L}` and its like: hundreds of ranges in UTF-8."""
OPEN_CLASS_STATES = 10
"""`.` and negated classes: every UTF-8 sequence."""


@frozen
class PatternWeight:
    """Compiled size of a regular expression, about, and how deep its lookarounds nest (back-references count as 1)."""

    states: int
    lookaround_depth: int


_REPEAT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_LOOKAROUNDS = ("(?=", "(?!", "(?<=", "(?<!", "(?>")


def weigh_pattern(pattern: str) -> PatternWeight:
    """Weigh `pattern` in one pass. It need not be valid: a broken one is found when it is compiled, at no more cost.

    Matching in the linear engine costs states times text (2,000 states on 1 MB took 16 s), so linear is not cheap.
    """
    totals, lasts, looks = [0], [0], [False]
    deepest = 0
    folded = 4 if re.search(r"\(\?[a-zA-Z]*i", pattern) else 1
    i, end = 0, len(pattern)
    while i < end:
        char = pattern[i]
        weight, step = 1, 1
        if char == "\\":
            following = pattern[i + 1 : i + 2]
            step = 2
            if following in ("p", "P"):
                weight = WIDE_CLASS_STATES
            elif following in ("W", "D", "S", "s", "w"):
                weight = OPEN_CLASS_STATES
            elif following == "k" or ("1" <= following <= "9"):
                deepest = max(deepest, 1)
        elif char == "[":
            weight, step = _weigh_class(pattern, i)
        elif char == ".":
            weight = OPEN_CLASS_STATES
        elif char == "(":
            look = pattern.startswith(_LOOKAROUNDS, i)
            totals.append(1)
            lasts.append(0)
            looks.append(look)
            deepest = max(deepest, sum(looks)) if look else deepest
            i += 2 if pattern.startswith("(?", i) else 1
            continue
        elif char == ")" and len(totals) > 1:
            weight = totals.pop()
            lasts.pop()
            looks.pop()
        elif char == "{" and (repeat := _REPEAT.match(pattern, i)):
            times = max(int(repeat[1]), int(repeat[2] or 0))
            # The last piece is in the total once already.
            totals[-1] = min(CAP, totals[-1] + lasts[-1] * max(times - 1, 0))
            lasts[-1] = min(CAP, lasts[-1] * max(times, 1))
            i = repeat.end()
            continue
        elif not char.isascii():
            weight = 4

        weight *= folded if weight == 1 else 1
        totals[-1] = min(CAP, totals[-1] + weight)
        lasts[-1] = weight
        i += step

    return PatternWeight(min(CAP, sum(totals)), deepest)


def _weigh_class(pattern: str, start: int) -> tuple[int, int]:
    """Weight and length of the bracket expression that begins at `start`."""
    weight = OPEN_CLASS_STATES if pattern.startswith("[^", start) else 1
    i = start + 1
    while i < len(pattern) and pattern[i] != "]":
        if pattern[i] == "\\":
            wide = pattern[i + 1 : i + 2]
            weight += WIDE_CLASS_STATES if wide in ("p", "P") else OPEN_CLASS_STATES if wide in ("W", "D", "S") else 0
            i += 1
        elif not pattern[i].isascii():
            weight += 4

        i += 1

    return weight, i + 1 - start
