"""Pre-tokenizer patterns: from the dialect of Hugging Face's `tokenizers` (Oniguruma) to PCRE2's with UTF and UCP.

The syntax that both share is let through, everything else is refused by name. Two things mean different characters
and are spelled out: \\s (PCRE2 counts U+180E as a space) and properties. PCRE2 may be built with older Unicode
tables, so the characters that Unicode 15 and 16 added are listed beside the property. In newer tables the list
changes nothing.
"""

import re

from .errors import ModelError

# General categories of the characters that Unicode 15, 15.1 and 16 added, as hexadecimal ranges.
ADDED = {
    "Lu": "1c89 a7cb-a7cc a7da a7dc 10d50-10d65",
    "Ll": "1c8a a7cd a7db 10d70-10d85 1df25-1df2a",
    "Lm": "10d4e 10d6f 16d40-16d42 16d6b-16d6c 1e030-1e06d 1e4eb",
    "Lo": (
        "105c0-105f3 10d4a-10d4d 10d4f 10ec2-10ec4 1123f-11240 11380-11389 1138b 1138e 11390-113b5 113b7 "
        "113d1 113d3 11bc0-11be0 11f02 11f04-11f10 11f12-11f33 1342f 13441-13446 13460-143fa 16100-1611d "
        "16d43-16d6a 18cff 1b132 1b155 1e4d0-1e4ea 1e5d0-1e5ed 1e5f0 2b739 2ebf0-2ee5d 31350-323af"
    ),
    "M": (
        "897 cf3 ece 10d69-10d6d 10efc-10eff 11241 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2 "
        "113e1-113e2 11f00-11f01 11f03 11f34-11f3a 11f3e-11f42 11f5a 13440 13447-13455 1611e-1612f 1e08f "
        "1e4ec-1e4ef 1e5ee-1e5ef"
    ),
    "Nd": (
        "10d40-10d49 116d0-116e3 11bf0-11bf9 11f50-11f59 16130-16139 16d70-16d79 1ccf0-1ccf9 1e4f0-1e4f9 1e5f1-1e5fa"
    ),
    "No": "1d2c0-1d2d3",
    "Pd": "10d6e",
    "Po": "1b4e-1b4f 1b7f 113d4-113d5 113d7-113d8 11b00-11b09 11be1 11f43-11f4f 16d6d-16d6f 1e5ff",
    "Sm": "10d8e-10d8f",
    "So": (
        "2427-2429 2ffc-2fff 31e4-31e5 31ef 1cc00-1ccef 1cd00-1ceb3 1f6dc 1f774-1f776 1f77b-1f77f 1f7d9 "
        "1f8b2-1f8bb 1f8c0-1f8c1 1fa75-1fa77 1fa87-1fa89 1fa8f 1faad-1faaf 1fabb-1fabf 1fac6 1face-1facf "
        "1fada-1fadc 1fadf 1fae8-1fae9 1faf7-1faf8 1fbcb-1fbef"
    ),
}

# No character's membership in these changed since Unicode 14, other than by addition.
PROPERTIES = set("L Lu Ll Lt Lm Lo M N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp".split())

# A script whose characters PCRE2's name may not mean: from 10.40 on it takes in more, those that extensions list.
SCRIPTS = {
    "Han": (
        "2e80-2e99 2e9b-2ef3 2f00-2fd5 3005 3007 3021-3029 3038-303b 3400-4dbf 4e00-9fff f900-fa6d fa70-fad9 "
        "16fe2-16fe3 16ff0-16ff1 20000-2a6df 2a700-2b739 2b740-2b81d 2b820-2cea1 2ceb0-2ebe0 2ebf0-2ee5d 2f800-2fa1d "
        "30000-3134a 31350-323af"
    )
}

SPACES = (
    r"\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"  # \s of Oniguruma
)

# ByteLevel's own pattern, for tokenizers that give none.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TOKEN = re.compile(
    r"""(?P<property>\\[pP]\{[A-Za-z]+\})
      | (?P<space>\\s) | (?P<not_space>\\S) | (?P<digit>\\d)
      | (?P<control>\\[rnt])
      | (?P<punctuation>\\[^A-Za-z0-9\s])
      | (?P<group>\(\?(?:i:|:|=|!))
      | (?P<quantifier>[*+?][?+]?|\{[0-9]+(?:,[0-9]*)?\}[?]?)
      | (?P<end>[$]) | (?P<any>[.])
      | (?P<other>\((?!\?)|[)|\[])
      | (?P<literal>[^\\()|\[\]*+?{}.^$])""",
    re.VERBOSE | re.DOTALL,
)
CLASS_TOKEN = re.compile(
    r"""(?P<property>\\[pP]\{[A-Za-z]+\})
      | (?P<space>\\s) | (?P<digit>\\d) | (?P<control>\\[rnt])
      | (?P<punctuation>\\[^A-Za-z0-9\s])
      | (?P<literal>[^\\\[\]&]|&(?!&))""",
    re.VERBOSE | re.DOTALL,
)


def _ranges(hexadecimal: str) -> str:
    return "".join("-".join(rf"\x{{{end}}}" for end in part.split("-")) for part in hexadecimal.split())


def characters(hexadecimal: str) -> str:
    """The inside of a class: characters and ranges of them, in either dialect."""
    return "".join("-".join(chr(int(end, 16)) for end in part.split("-")) for part in hexadecimal.split())


def _property(name: str, pattern: str) -> str:
    """The inside of a character class that holds the property's characters."""
    if name in SCRIPTS:
        return _ranges(SCRIPTS[name])
    if name not in PROPERTIES:
        raise ModelError(f"tokenizer: pattern {pattern!r}: unknown property {name!r}")
    added = [ranges for category, ranges in ADDED.items() if category.startswith(name)]
    return rf"\p{{{name}}}" + "".join(map(_ranges, added))


def _class(pattern: str, at: int, outermost: bool = True) -> tuple:
    """The class that begins with '[' at `at`, translated, and where it ends. What a class without a negation has without
    another's characters, [a&&[^b]], is a lookahead before it; a class within it, [a[b]], is part of it. The other has no
    class within it, nor what would then mean something else: ranges, a ']' that does not end it, [:alpha:]."""
    out, i = "[", at + 1
    if pattern.startswith("^", i):
        out, i = "[^", i + 1
    first = i
    while not (pattern.startswith("]", i) and i > first):
        if outermost and pattern.startswith("&&[^", i) and i > first and out[1] != "^":
            without, end = _class(pattern, i + 2, False)
            if pattern.startswith("]", end):
                return f"(?:(?![{without[2:]}){out}])", end + 1
        if outermost and pattern.startswith("[", i) and not pattern.startswith(("[^", "[]", "[-", "[:"), i):
            within, end = _class(pattern, i, False)
            if "-" not in (pattern[i - 1], pattern[end - 2], pattern[end : end + 1]):
                out, i = out + within[1:-1], end
                continue
        match = CLASS_TOKEN.match(pattern, i)
        if not match:
            what = pattern[i : i + 2] or "end"
            raise ModelError(
                f"tokenizer: pattern {pattern!r}: {what!r} at character {i}, inside a class, is not supported"
            )
        text = match.group()
        if match.lastgroup == "property":
            if text[1] == "P":
                raise ModelError(f"tokenizer: pattern {pattern!r}: {text} inside a class is not supported")
            out += _property(text[3:-1], pattern)
        elif match.lastgroup == "space":
            out += SPACES
        elif match.lastgroup == "digit":
            out += _property("Nd", pattern)
        else:
            out += text
        i = match.end()
    return out + "]", i + 1


def translate(pattern: str) -> str:
    """`pattern` as PCRE2 (UTF, UCP) must read it to match what Oniguruma matches; ModelError names what has no translation."""
    out, i, bare = "", 0, True  # bare: a quantifier would have nothing to quantify
    while i < len(pattern):
        match = TOKEN.match(pattern, i)
        kind = match.lastgroup if match else None
        # a{2}+ is possessive in one dialect and a repetition of a repetition in the other
        if not match or (kind == "quantifier" and bare):
            raise ModelError(
                f"tokenizer: pattern {pattern!r}: {pattern[i : i + 2]!r} at character {i} is not supported"
            )
        text, i = match.group(), match.end()
        if text == "[":
            text, i = _class(pattern, match.start())
        elif kind == "property":
            text = ("[^" if text[1] == "P" else "[") + _property(text[3:-1], pattern) + "]"
        elif kind == "digit":
            text = "[" + _property("Nd", pattern) + "]"
        elif kind == "end":  # of a line: not, as in PCRE2, of the text alone
            text = r"(?=\n|\z)"
        elif kind == "any":
            text = r"[^\n]"
        elif kind in ("space", "not_space"):
            text = ("[" if kind == "space" else "[^") + SPACES + "]"
        bare = kind in ("quantifier", "group", "end") or text in ("(", "|")
        out += text
    _check_caseless(pattern)
    return out


def literal(text: str) -> str:
    """A pattern that matches `text` alone."""
    return "".join(c if c.isalnum() or ord(c) > 127 or c.isspace() else "\\" + c for c in text)


def _check_caseless(pattern: str) -> None:
    """Inside (?i:…) only ASCII letters and punctuation, and classes of letters one by one, fold alike in both dialects."""
    for match in re.finditer(r"\(\?i:([^()]*)(.)?", pattern, re.DOTALL):
        if (
            match.group(2) != ")"
            or not re.fullmatch(r"[ -~]*", match.group(1))
            or re.search(r"[\\\[\]]", re.sub(r"\[[a-zA-Z]+\]", "", match.group(1)))
        ):
            raise ModelError(f"tokenizer: pattern {pattern!r}: only plain letters are supported inside (?i:...)")
