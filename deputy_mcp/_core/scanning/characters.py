"""The policy for characters: what no honest text of a tool holds, whatever it says.

Not about meaning, and not the cleaner (`sanitizing` shows odd characters, this says that they are there). A character
that some script, emoji or notation needs is let through only where that need is visible beside it. One pass over a
text, with patterns of a bounded width.
"""

import re
from collections.abc import Iterator

from deputy_mcp._core.scanning.folding import fold, is_plain
from deputy_mcp._core.scanning.lexicon import ENGLISH

LATIN = "A-Za-z\u00c0-\u024f\u1e00-\u1eff"
_CYRILLIC = "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f"
_GREEK = "\u0370-\u03ff\u1f00-\u1fff"
_OTHER = (
    "\u0530-\u058f\u10a0-\u10ff\u13a0-\u13ff\uab70-\uabbf\u1400-\u167f\u2c80-\u2cff\u2d30-\u2d7f\ua4d0-\ua4ff"
    "\U00010400-\U0001044f\u16a0-\u16ff"
)
"""Scripts with letters that look Latin: Armenian, Georgian, Cherokee, Canadian, Coptic, Tifinagh, Lisu, Deseret."""

_GREEK_SIGNS = (
    "\u03b1-\u03b8\u03ba-\u03bc\u03be\u03c0\u03c2-\u03c9\u0393\u0394\u0398\u039b\u039e\u03a0\u03a3\u03a6\u03a8\u03a9"
)
"""Greek letters beside Latin ones in formulas and units: `Δt`, `TNFα`, `kΩ`. Between Latin letters they are odd."""

_GREEK_DOUBLES = (
    "\u03b9\u03bd\u03bf\u03c1\u03c5\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7"
)

_RIGHT_TO_LEFT = re.compile("[\u05d0-\u05ff\u0620-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_CJK = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_JOINING = "\u0600-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\u1a00-\u1bff"
"""Scripts in which a joiner changes how letters are drawn: Arabic, the Indic ones, Tibetan, Khmer, Mongolian, …."""

_PICTURE = "\u203c-\u3299\U0001f000-\U0001faff\u00a9\u00ae"
_OVERLAYS = "\u0334-\u0338\u035c-\u0362\u0363-\u036f\u20d2\u20d3\u20d8-\u20da\u20e5-\u20eb"
_MARKS = "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_STYLED = (
    "\U0001d400-\U0001d7cb\u24b6-\u24e9\U0001f110-\U0001f189\uff21-\uff3a\uff41-\uff5a\u1d00-\u1d6a\u1d78-\u1dbf\u2c7c"
    "\u02b0-\u02b8\u0250-\u02af\u2070-\u209c\ua730\ua731\ua7f8\ua7f9\u2100-\u2139\u00aa\u00ba"
)
_WIDE = "\uff21-\uff3a\uff41-\uff5a"

# A joiner or selector with a reason is eaten by the first alternatives, so that only one without is left to the others.
_REASONS = (
    f"(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])"
    f"|(?<=[{_PICTURE}\ufe0f])\u200d(?=[{_PICTURE}])"
    f"|(?<=[{_PICTURE}0-9#*])[\ufe0e\ufe0f](?![\ufe00-\ufe0f])"
    f"|(?<=[{_CJK}])[\ufe00-\ufe02\U000e0100-\U000e010f](?![\ufe00-\ufe0f\U000e0100-\U000e01ef])"
    "|\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)"
    "\U000e007f"
)
_CLASSES = {
    "escape_sequence": "\x1b|\x9b",
    "control_character": "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029]|\r(?!\n)",
    "bidirectional_control": "[\u202a-\u202e\u2066-\u2069\u206a-\u206f]",
    "direction_mark": "[\u200e\u200f\u061c]",
    "tag_character": "[\U000e0000-\U000e007f]",
    "variation_selector": "[\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180f]",
    "invisible_character": (
        "[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u200b-\u200d\u2060-\u2065\u2800\u3164\ufeff\uffa0\ufff9-\ufffc"
        "\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0080-\U000e00ff\U000e01f0-\U000e0fff]"
    ),
    "odd_space": "[\u1680\u2000-\u2008\u200a\u205f]|[\u00a0\u2009\u202f\u3000]{4}",
    "private_character": (
        "[\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U000f0000-\U0010ffff]|[\ud800-\udfff]"
        "|[\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe\U0003ffff]"
    ),
    "stacked_marks": f"[{_MARKS}]{{3}}|(?<=[A-Za-z])[{_OVERLAYS}]",
    "mixed_script": (
        f"[{LATIN}][{_CYRILLIC}{_OTHER}{_GREEK_DOUBLES}]|[{_CYRILLIC}{_OTHER}{_GREEK_DOUBLES}][{LATIN}]"
        f"|[{LATIN}][{_GREEK_SIGNS}][{LATIN}]"
    ),
    "styled_letters": (
        f"[{_STYLED}]{{4}}|[A-Za-z][\U0001d400-\U0001d7cb{_WIDE}\u1d00-\u1d2b\ua730\ua731\u0250-\u02af]"
        f"|[\U0001d400-\U0001d7cb{_WIDE}\u1d00-\u1d2b\ua730\ua731\u0250-\u02af][A-Za-z]"
    ),
}
_ODD = re.compile(f"{_REASONS}|" + "|".join(f"(?P<{code}>{shape})" for code, shape in _CLASSES.items()))
_ODD_ASCII = re.compile("(?P<escape_sequence>\x1b)|(?P<control_character>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n))")
_SPOT = re.compile("[^ -~\\t\\n]")
_WIDE_LETTER = re.compile(f"[{_WIDE}]")
_HAS_CJK = re.compile(f"[{_CJK}]")
_DOUBLES = (
    "асеорхуѕіјһԁԛԝӏкАВСЕНІЈКМОРЅТХҮ\u03bf\u03bd\u03c1\u03b9\u03c5"
    "\u0391\u0392\u0395-\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a7"
)
_DISGUISED = re.compile(
    # The first letter stands by itself, for a search skips to a class much faster than to a run of it.
    f"[{_DOUBLES}][{_DOUBLES}]{{2,39}}"
)
"""Words all of whose letters are doubles of Latin ones."""


def odd_characters(text: str) -> Iterator[str]:
    """The codes of the classes of odd characters in `text`, each once, in the order of their appearance."""
    if is_plain(text):
        return

    ascii_only = text.isascii()
    seen: set[str] = set()
    for match in _ODD_ASCII.finditer(text) if ascii_only else _odd_places(text):
        code = match.lastgroup
        if code is None or code in seen or _has_reason(code, match[0], text):
            continue

        seen.add(code)
        yield code

    if not ascii_only and "mixed_script" not in seen and _is_disguised(text):
        yield "mixed_script"


def _odd_places(text: str) -> Iterator[re.Match[str]]:
    """What `_ODD.finditer` gives. A match begins at a sign that is not plain, or at the letter before it."""
    at = 0
    while spot := _SPOT.search(text, at):
        start = spot.start()
        match = (_ODD.match(text, start - 1) if start > at else None) or _ODD.match(text, start)
        if match:
            yield match

        at = match.end() if match else spot.end()


def _has_reason(code: str, found: str, text: str) -> bool:
    if code == "direction_mark":
        return _RIGHT_TO_LEFT.search(text) is not None

    # Chinese and Japanese texts set Latin letters wide.
    return code == "styled_letters" and _WIDE_LETTER.search(found) is not None and _HAS_CJK.search(text) is not None


def _is_disguised(text: str) -> bool:
    """Whether some word is English, spelt in letters of another script throughout."""
    return any(fold(word).lower() in ENGLISH for word in set(_DISGUISED.findall(text)))
