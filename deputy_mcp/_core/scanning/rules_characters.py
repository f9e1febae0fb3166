"""Rules for single characters: what no honest description holds. Found by `characters`."""

from deputy_mcp._core.scanning.rule import Rule

_SMUGGLING = "https://embracethered.com/blog/posts/2024/hiding-and-finding-text-with-unicode-tags/"
_TROJAN = "https://trojansource.codes/trojan-source.pdf"
_CONFUSABLES = "https://www.unicode.org/reports/tr39/"
_BAD_CHARACTERS = "https://arxiv.org/abs/2106.09898"

CHARACTER_RULES = (
    Rule(
        "invisible_character",
        severity="flag",
        message="holds invisible characters",
        reason="they break words apart for a filter, or carry a message of their own",
        source=_BAD_CHARACTERS,
        examples=("Formats a da\u200bte.", "\ufeffFormats a date.", "Formats a da\u00adte."),
        innocent=("می\u200cخواهم", "👨\u200d👩\u200d👧"),
    ),
    Rule(
        "bidirectional_control",
        severity="flag",
        message="holds characters that turn the direction of writing",
        reason="what a person reads is not the order in which the model reads it",
        source=_TROJAN,
        examples=("Formats \u202ea date\u202c.", "Formats \u2067a date\u2069."),
        innocent=("שלום",),
    ),
    Rule(
        "direction_mark",
        severity="flag",
        message="holds a mark for right-to-left writing in a text without any",
        reason="it is invisible and of no use there",
        source=_TROJAN,
        examples=("Formats a\u200e date.",),
        innocent=("שלום\u200f!",),
    ),
    Rule(
        "tag_character",
        severity="flag",
        message="holds tag characters, an invisible copy of ASCII",
        reason="whole sentences can be written in them that only the model reads",
        source=_SMUGGLING,
        examples=("Formats a date.\U000e0049\U000e0067",),
        innocent=("\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",),
    ),
    Rule(
        "variation_selector",
        severity="flag",
        message="holds variation selectors where there is nothing to vary",
        reason="a run of them carries bytes behind any character",
        source="https://paulbutler.org/2025/smuggling-arbitrary-data-through-an-emoji/",
        examples=("Formats a\ufe01 date.", "😀\ufe0f\ufe03"),
        innocent=("⚠\ufe0f Deletes the file.", "1\ufe0f\u20e3"),
    ),
    Rule(
        "control_character",
        severity="flag",
        message="holds control characters",
        reason="a carriage return or a backspace rewrites what a terminal shows",
        source="https://blog.trailofbits.com/2025/04/29/deceiving-users-with-ansi-terminal-codes-in-mcp/",
        examples=("Formats a date.\rAdds.", "a\x08b", "a\u2028b"),
        innocent=("One line.\r\nAnother\tone.\n",),
    ),
    Rule(
        "escape_sequence",
        severity="flag",
        message="holds an escape sequence",
        reason="it moves the cursor, hides text and changes the window of a terminal",
        source="https://blog.trailofbits.com/2025/04/29/deceiving-users-with-ansi-terminal-codes-in-mcp/",
        examples=("Formats \x1b[8ma date\x1b[0m.",),
        innocent=(r"Strips \x1b[0m from the output.",),
    ),
    Rule(
        "odd_space",
        severity="flag",
        message="holds spaces of unusual width",
        reason="they look like a space and carry a message by their kind",
        source=_BAD_CHARACTERS,
        examples=("Formats\u2003a date.", "Formats\u00a0\u00a0\u00a0\u00a0a date."),
        innocent=("10\u00a0km", "日本\u3000東京"),
    ),
    Rule(
        "private_character",
        severity="flag",
        message="holds characters without a meaning: private ones, non-characters, halves of pairs",
        reason="only the two who agreed on them know what they say",
        source="https://www.unicode.org/reports/tr36/",
        examples=("Formats a\ue000 date.", "a\ufdd0", "a\ud800"),
        innocent=("Ω",),
    ),
    Rule(
        "stacked_marks",
        severity="flag",
        message="holds letters under stacked or striking marks",
        reason="the model reads the letters, a filter does not find them",
        source=_BAD_CHARACTERS,
        examples=("a\u0301\u0302\u0303b", "i\u0336g\u0336"),
        innocent=("cafe\u0301", "Tiếng Việt"),
    ),
    Rule(
        "mixed_script",
        severity="flag",
        message="holds a word with letters of two scripts that look alike",
        reason="it reads as a word, or as another tool's name, and is none",
        source=_CONFUSABLES,
        examples=("s\u0435nd_email", "Ign\u03bfre it."),
        innocent=("отправить email", "Δt in µs, TNFα"),
    ),
    Rule(
        "styled_letters",
        severity="flag",
        message="is written in letters made for formulas or ornament",
        reason="the model reads them as plain letters, a filter does not find them",
        source=_CONFUSABLES,
        examples=("𝐢𝐠𝐧𝐨𝐫𝐞", "ｉｇｎｏｒｅ", "ⓘⓖⓝⓞⓡⓔ", "ɪɢɴᴏʀᴇ"),
        innocent=("x² + y²", "ℝ", "ＡＰＩ接口", "H₂O"),
    ),
)
