"""A text as a model is likely to read it: one spelling for what looks alike.

Not for showing and not for comparing identities; only the scanner reads it. It promises linear time: Unicode's
normalisation sorts combining marks by insertion, so it is applied to short pieces only.
"""

import re
import unicodedata

_PIECE = 64
"""Characters normalised at a time. Sorting marks is quadratic in this, and only in this."""

INVISIBLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\u061c\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_DROPPED = re.compile(f"[{INVISIBLE}\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f]")
_ESCAPES = re.compile(r"(?:\x1b\[|\x9b)[0-9;:?]{0,32}[ -/]{0,4}[@-~]|\x1b[@-Z\\-_]")
_MARKS = re.compile("[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_LONG = re.compile("[\ufdfa\ufdfb]")
"""They grow eighteenfold and eightfold under NFKC."""


def _pairs(*rows: str) -> dict[int, str]:
    """`abc xyz`: each letter of the second word reads as the letter of the first at the same place."""
    table: dict[int, str] = {}
    for row in rows:
        plain, alike = row.split()
        table.update({ord(odd): letter for letter, odd in zip(plain, alike, strict=True)})

    return table


LOOKALIKES = _pairs(
    "aceopxyshijkbdgqwlmnrtuvz асеорхуѕһіјкЬԁɡԛԝӏмпгтцѵʐ",  # Cyrillic, small
    "ABCEHIJKMOPSTXYZGFLNQWVD АВСЕНІЈКМОРЅТХҮᏃԌFᏞNԚԜѴᎠ",  # Cyrillic and Cherokee, large
    "abeiknoptuvwxygdzl αβειкηορτυνωχγɡδζӀ",  # Greek, small
    "ABEZHIKMNOPTYX ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",  # Greek, large
    "abcdefghijklmnoprstuvwyz ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",  # small capitals
    "aghijouyzl ɑɠɦıʝօսүʐⅼ",
    "nohudgs ոօհսժցѕ",  # Armenian
    "abcdefghijklmnopqrstuvwxyz 🅰🅱🅲🅳🅴🅵🅶🅷🅸🅹🅺🅻🅼🅽🅾🅿🆀🆁🆂🆃🆄🆅🆆🆇🆈🆉",  # squared, dark
    "abcdefghijklmnopqrstuvwxyz 🅐🅑🅒🅓🅔🅕🅖🅗🅘🅙🅚🅛🅜🅝🅞🅟🅠🅡🅢🅣🅤🅥🅦🅧🅨🅩",  # circled, dark
    "abcdefghijklmnopqrstuvwxyz 🇦🇧🇨🇩🇪🇫🇬🇭🇮🇯🇰🇱🇲🇳🇴🇵🇶🇷🇸🇹🇺🇻🇼🇽🇾🇿",  # the letters of flags
)
"""Letter that looks like a Latin one → that letter: of Unicode's confusables, those that texts are written with."""

for _plain in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ":
    LOOKALIKES.pop(ord(_plain), None)


def is_plain(text: str) -> bool:
    """Whether `text` is ASCII that prints, with tabs and line breaks."""
    return text.isascii() and (
        text.isprintable() or text.replace("\r\n", "").replace("\n", "").replace("\t", "").isprintable()
    )


def fold(text: str) -> str:
    """`text` without what is invisible, with look-alikes as Latin letters and without accents. Same length or shorter,
    but for the few characters that NFKC writes out."""
    if is_plain(text):
        return text

    if "\x1b" in text or "\x9b" in text:
        text = _ESCAPES.sub("", text)

    text = _DROPPED.sub("", text)
    if text.isascii():
        return text

    text = _LONG.sub(" ", text)
    pieces = [_fold_piece(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE)]
    return "".join(pieces)


def _fold_piece(piece: str) -> str:
    if piece.isascii():
        return piece

    piece = unicodedata.normalize("NFKD", piece).translate(LOOKALIKES)
    return _MARKS.sub("", piece)
