"""Repetitions that are counted, and patterns' automata made small: which texts they take, and their masks."""

from __future__ import annotations

import itertools
import json
import random
import re

import jsonschema
import pytest
from harness import THOROUGH

MANY = """root ::= "a"{17} | "b"{2,19} "c"? | ("d" "e"){18,} | (f{0,17} g){17,18} "."
f ::= "f" | "F"
g ::= "g" |
"""


def test_texts(match):
    texts = {
        "yes": ["a" * 17, "bb", "b" * 19, "b" * 19 + "c", "de" * 18, "de" * 40, "g" * 17 + ".", "fFfg" * 18 + ".", "."],
        "more": ["", "a" * 16, "b", "de" * 17, "de" * 17 + "d", "fg" * 16, "f" * 17 * 18],
        "no": ["a" * 18, "b" * 20, "b" * 20 + "c", "ba", "de" * 18 + "e", "g" * 19 + ".", "f" * 18 * 18 + "."],
    }
    for answer, each in texts.items():
        assert match("grammar", MANY, each) == [answer] * len(each), answer


@pytest.mark.parametrize(
    "grammar, text",
    [
        ('root ::= ([a-z ]{0,20} "." | [a-e]{18,40} "!"){2,30} "?"', "once upon a time. abcdeabcdeabcde.bade.?"),
        ('root ::= ("\\"" [a-z]{0,18} "\\"" " "?){4,20}', '"once" "upon" "a" "time"'),
        (MANY, "b" * 19 + "c"),
        ('root ::= "x" [^"\\\\\\x00-\\x1f]{17,19} "y"', "x once upon a time y"),
    ],
)
def test_masks(match, fable, grammar, text):
    found = match("grammar", grammar, [text], fable)
    assert ", 0 wrong, whole" in found[0], found


@pytest.mark.parametrize(
    "schema, text",
    [
        ({"pattern": "^[0-9a-zA-Z ,_-]{1,40}$"}, "counted, to forty at most"),
        ({"pattern": "^([a-z]{2,30}[ .]){18,40}$"}, "there was once upon an old time " * 3 + "an end."),
        ({"pattern": "^[0-9a-f ]{20}[^x]{18,19}$"}, "0123456789 abcdef 01 and up to nineteen"),
        ({"pattern": "^[a-z]{4}$|^[a-z]{40}$"}, "onceuponatimeuponaonceuponatimeuponaonce"),
        ({"format": "uri"}, "https://example.com:80/a/b%20c?d=e#f"),
        ({"minLength": 40, "maxLength": 45}, "forty of them, and then \\u0041 some more, no!"),
    ],
)
def test_masks_of_strings(match, fable, schema, text):
    found = match("schema", {"type": "array", "items": {"type": "string", **schema}}, [f'["{text}", "{text}"]'], fable)
    assert ", 0 wrong, whole" in found[0], found


@pytest.mark.parametrize("least, most, length", [(3, 100, 120), (17, 40, 18), (0, 17, 300), (20, None, 17)])
def test_masks_of_lists(match, fable, least, most, length):
    """Counts within counts."""
    schema = {"type": "array", "items": {"type": ["string", "null"], "maxLength": length}, "minItems": least}
    schema |= {"maxItems": most} if most else {}
    for n in (4, 17, 20):
        [found] = match("schema", schema, [json.dumps(["once upon a"] * n)], fable)
        whole = least <= n <= (most or n)
        assert ", 0 wrong, whole" in found if whole else ", 0 wrong, open" in found, (n, found)


def test_patterns_beside_python(match):
    choose = random.Random(3)

    def part(depth):
        kind = choose.randrange(6 if depth else 3)
        if kind == 3:
            return "(" + "|".join(part(depth - 1) for _ in range(choose.randrange(1, 4))) + ")"
        if kind == 4:
            return part(depth - 1) + part(depth - 1)
        if kind == 5:
            return f"({part(depth - 1)})" + choose.choice(["*", "+", "?", "{2}", "{1,5}", "{0,3}", "{4,}"])
        return choose.choice(["a", "b", "[ab]", "[^a]", ".", "[bc]{4}", "[ab]{0,6}", "c"])

    for _ in range(150 if THOROUGH else 60):
        pattern = part(4)
        whole = f"^(?:{pattern})$" if choose.random() < 0.7 else pattern
        texts = ["".join(choose.choice("abc") for _ in range(choose.randrange(10))) for _ in range(40)]
        found = match("schema", {"type": "string", "pattern": whole}, [f'"{text}"' for text in texts])
        if isinstance(found, list):  # the others: no string fits
            assert [answer == "yes" for answer in found] == [re.search(whole, text) is not None for text in texts], (
                whole
            )


@pytest.mark.parametrize(
    "bounds", [{}, {"minItems": 2}, {"maxItems": 2}, {"minItems": 1, "maxItems": 3}, {"maxItems": 1}]
)
@pytest.mark.parametrize(
    "items", [{"enum": ["a", "ab", 'b"', 5, None, -1.5]}, {"pattern": "^a[bc]?$", "type": "string"}]
)
def test_items_that_differ(match, items, bounds):
    """Beside jsonschema. Items have one spelling each."""
    schema = {"type": "array", "items": items, "uniqueItems": True, **bounds}
    values = ["a", "ab", 'b"', "ac", "b", 5, None, -1.5]
    lists = [list(each) for n in range(4) for each in itertools.product(values, repeat=n)]
    found = match("schema", schema, [json.dumps(each) for each in lists])
    valid = jsonschema.Draft202012Validator(schema).is_valid
    assert [answer == "yes" for answer in found] == [valid(each) for each in lists]
