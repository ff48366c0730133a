"""Grammars and schemas: which texts they take, what is refused in words, and that masks hold just the tokens that go on."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest

GRAMMARS = {
    'root ::= "yes" | "no"': {"yes": "yes no", "more": ["", "y", "ye", "n"], "no": ["x", "yess", "yesno", "Y"]},
    'root ::= "a"*': {"yes": ["", "a", "aaaa"], "no": "b ab"},
    'root ::= "a"+ "b"?': {"yes": "a aab", "more": [""], "no": "b abb"},
    'root ::= ("ab" | "c"){2,3}': {"yes": "abab ccc abcab cc", "more": ["", "ab", "aba"], "no": "cccc abb"},
    "root ::= [a-c]{2}": {"yes": "ab cc", "more": ["", "a"], "no": "d abc"},
    "root ::= [^a-c]{2,}": {"yes": ["xy", "é\n", "🎉漢字"], "more": ["x"], "no": "xa"},
    'root ::= [à-ü漢]{1,2} "."': {"yes": "é. 漢ä. àü.", "more": ["é", "\u00e0"], "no": "a à字"},
    "root ::= .": {"yes": ["a", "\n", "é", "𝄞"], "more": [""], "no": "ab éé"},
    'root ::= "\\x41\\u00e9\\U0001f389\\"\\\\"': {"yes": ['Aé🎉"\\'], "more": ["Aé"], "no": ["AÉ"]},
    'root ::= "(" root ")" | "x"': {"yes": "x (x) ((((x))))", "more": "((( ((x", "no": "(x)) )"},
    'root ::= item ("," item)*\nitem ::= [0-9]+ # digits\n': {"yes": "1 12,3", "more": ["1,"], "no": ",1 1,,2"},
    'root ::=\n  "a" |\n  # a comment\n  "b"\n\n\n': {"yes": "a b", "no": "c"},
    'root ::= "a" | "b" root ["x] | "c" endless\nendless ::= "d" endless\n': {"yes": 'a bax bba"x', "no": "c cd"},
    'root ::= a b\na ::= "" | "x"\nb ::= "y" |': {"yes": ["", "x", "y", "xy"], "no": "yx xx"},
    'root ::= ("a"? "b"?)* "c"': {"yes": "c abc bac bbbaac", "more": ["ab"], "no": "cc"},
    "root ::= [a\\]\\-\\^b-]": {"yes": ["a", "]", "-", "^", "b"], "no": "c"},
    'root ::= "(" <c a! b d*> ")"\nc ::= ","\na ::= "a" [0-9]\nb ::= "b" [0-9]\nd ::= "c"': {
        "yes": "(a1) (b2,a1) (c,a1,c,b0) (a1,c,c,c)",
        "more": "( (b1 (c,c,b1,",
        "no": "() (b2) (a1,a1 (a1,b1,a (a1b1) (a1,) (,a1)",
    },
    'root ::= <{2,3} s a b ab! c*>\ns ::= "" | " "\na ::= "x"\nb ::= "xy"\nab ::= "é" | "xyz"\nc ::= "-"': {
        "yes": ["xxyz", "é-", "é-x", "- -é", "xyzxyx", "xxyé", "éx"],
        "more": ["", "é", "x", "xyz", "--", "- x"],
        "no": ["---", "é-xx", "xx xyz", "xyxyxyz"],
    },
    'root ::= <s a>\ns ::= ","\na ::= "a"': {"yes": ["", "a"], "no": [",", "a,"]},
    'root ::= (<s a! b> ";")+\ns ::= ","\na ::= "a" | "(" root ")"\nb ::= "b"': {
        "yes": "a; b,a; (a;b,a;),b;a;",
        "more": "b (b,a;",
        "no": "; b; a;b; (a;b;) (a;),b,a",
    },
}


@pytest.mark.parametrize("grammar", GRAMMARS)
def test_texts_of_grammars(match, grammar):
    for answer, texts in GRAMMARS[grammar].items():
        texts = texts.split() if isinstance(texts, str) else texts
        assert match("grammar", grammar, texts) == [answer] * len(texts), texts


@pytest.mark.parametrize(
    "grammar, message",
    [
        ("", "there is no rule 'root'"),
        ('a ::= "x"', "there is no rule 'root'"),
        ("root ::= b", "line 1: rule 'b', named in line 1, is nowhere"),
        ('root ::= "x"\nroot ::= "y"', "line 2: rule 'root' is there already"),
        ('root = "x"', "expected ::= after the name 'root'"),
        ('root ::= "x', "the line ends within a literal"),
        ("root ::= [x", "the line ends within a literal or a class"),
        ('root ::= ("x"', "expected )"),
        ('root ::= "x")', "a ) without its ("),
        ("root ::= [b-a]", "ends before it begins"),
        ('root ::= "\\q"', "unknown escape"),
        ('root ::= "\\ud800"', "U+D800 is no character"),
        ("root ::= <s a", "expected a rule's name"),
        ("root ::= <a! b>", "expected a rule's name"),
        ('root ::= <{2,1} s a>\ns ::= ","\na ::= "a"', "at most 1 times is less than at least 2"),
        ('root ::= <{0,1} s a! b!>\ns ::= ","\na ::= "a"\nb ::= "b"', "at most 1 parts come, but 2 must"),
        ('root ::= <{3} s a b>\ns ::= ","\na ::= "a"\nb ::= "b"', "no text fits it"),
        ('root ::= <{2} s a n>\ns ::= ","\na ::= "a"\nn ::= []', "no text fits it"),
        ('root ::= <n a! b!>\nn ::= []\na ::= "a"\nb ::= "b"', "no text fits it"),
        ('root ::= <s a>\ns ::= ","\na ::= root "a" | "b"', "calls itself before it takes a character"),
        ('root ::= <s b a>\ns ::= ","\nb ::= "b"\na ::= b? root "a"', "calls itself before it takes a character"),
        ('root ::= <s a> root "x" | "y"\ns ::= ","\na ::= "a"', "calls itself before it takes a character"),
        ('root ::= "x"{3,2}', "at most 2 times is less than at least 3"),
        ('root ::= "x"{100001}', "repeated at most 100000 times"),
        pytest.param('root ::= "' + "x" * 1100000 + '"', "more than 1048576 parts", id="parts"),
        ("root ::= *", "expected a literal, a class, a rule's name, a group or <, found '*'"),
        ('root ::= root "x" | "y"', "calls itself before it takes a character"),
        ('root ::= "z" a\na ::= ("b"? a)* | "y"', "line 1: rule 'a' calls itself before it takes a character"),
        ('root ::= "x" root', "no text fits it"),
        ('root ::= [] | "x" a\na ::= "y" a', "no text fits it"),
        ("root ::= " + "(" * 200 + '"x"' + ")" * 200, "parentheses nest deeper than 128"),
        ("root ::= root", "no text fits it"),
        ('root ::= a{40000}\na ::= "x" |', "too many ways to begin a text"),
    ],
)
def test_grammars_that_are_refused(match, grammar, message):
    assert message in match("grammar", grammar)


def test_a_state_far_down_is_kept_when_others_are_forgotten(match):
    """More states than are kept at a time."""
    grammar = 'root ::= "[" root "]" | [a-z]{0,60000}'
    texts = ["[" * 50 + "x" * 40000 + "]" * 50, "[" * 50 + "x" * 40000 + "]" * 51, "[" * 50 + "x" * 40000 + "]" * 49]
    assert match("grammar", grammar, texts) == ["yes", "no", "more"]


# ------------------------------------------------------------------------------------------- schemas

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 9},
        "age": {"type": "integer", "minimum": 18, "maximum": 120},
        "city": {"enum": ["Paris", 'Rio "R"', None, 5]},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{2,5}$"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
            "required": ["v", "next"],
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS = [
    (
        PERSON,
        ['{"name":"A","age":18}', '{"name": "A", "age": 120, "tags": ["ab"]}', '{"name":"A","age":20,"city":null}'],
    ),
    (PERSON, ['{\n  "name": "é漢🎉",\n  "age": 99,\n  "city": "Rio \\"R\\"",\n  "tags": ["ab", "abcde"]\n}']),
    (TREE, ['{"v":1,"next":{"v":2,"next":null}}']),
    ({"type": "array", "items": {"$ref": "#"}}, ["[]", "[[],[[]]]"]),
    ({"type": ["string", "null"]}, ['"x"', "null"]),
    ({"const": {"a": [1, "x"]}}, ['{"a":[1,"x"]}']),
    ({"type": "integer", "minimum": -15, "exclusiveMaximum": 7}, ["-15", "-9", "0", "6"]),
    ({"type": "integer", "minimum": 95, "maximum": 1203}, ["95", "99", "100", "999", "1000", "1203"]),
    ({"type": "integer", "exclusiveMinimum": 0}, ["1", "10", "123456"]),
    ({"type": "integer", "maximum": -3}, ["-3", "-10"]),
    ({"type": "number"}, ["1", "-0.5", "1e9", "2.5E-3"]),
    ({"type": "string", "pattern": "^\\d{3}-[A-F\\w]+(x|yz)?$"}, ['"123-A"', '"000-Zyz"']),
    ({"type": "string", "pattern": "ab"}, ['"ab"', '"xxabyy"', '"é\\"ab"']),
    ({"type": "string", "pattern": '^["\\\\n.]*$'}, ['""', '"\\"\\"n."']),
    ({"type": "string", "pattern": "^[^a-z]é$"}, ['"Aé"', '"字é"', '"\\"é"']),
    ({"type": "string", "format": "date-time"}, ['"2024-02-29T10:00:00Z"', '"2024-12-01T23:59:59.5+01:00"']),
    ({"type": "string", "format": "uuid"}, ['"123e4567-e89b-12d3-a456-426614174000"']),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, ["{}", '{"a":1,"b c":2}']),
    ({"type": "object", "properties": {}, "additionalProperties": False}, ["{}"]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2}, ['[1,"x"]']),
    (
        {"items": [{"type": "integer"}, {"type": "null"}], "$schema": "http://json-schema.org/draft-07/schema#"},
        ["[5, null]"],
    ),
    ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "boolean"}}]}, ["5", "[true, false]"]),
    ({"allOf": [{"$ref": "#/definitions/b"}], "definitions": {"b": {"type": "boolean"}}}, ["true"]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "id": "x", "links": [], "_format": 1}, ["5"]),
    ({"type": "object", "properties": {"a": {"type": "null"}}}, ["{}", '{"a":null,"b":[],"ab":1}', '{"c":{}}']),
    ({"properties": {"b": {}}, "required": ["a", "b"]}, ['{"b":1,"a":2}', "5"]),
    ({"patternProperties": {"^x": {"type": "integer"}, "y$": {"minimum": 3}}}, ['{"x":1,"z":"","xy":3}']),
    ({"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False}, ["{}", '{"xa":1,"x":2}']),
    ({"type": "object", "propertyNames": {"maxLength": 2}, "maxProperties": 2}, ['{"a":1,"bc":2}']),
    ({"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}, ['{"a":""}']),
    ({"properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False, "minProperties": 2}, ['{"a":1,"c":2}']),
    ({"type": "number", "minimum": 0, "exclusiveMaximum": 1.25}, ["0", "1", "1.2", "1.2499", "0.0"]),
    ({"type": "number", "exclusiveMinimum": -0.5, "maximum": -0.001}, ["-0.4", "-0.001", "-0.0010"]),
    (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "number",
            "minimum": 5,
            "exclusiveMinimum": True,
        },
        ["5.1", "6"],
    ),
    ({"type": "number", "multipleOf": 0.25}, ["0.75", "-7", "1.250"]),
    ({"type": "integer", "multipleOf": 7, "minimum": 0}, ["0", "7", "14", "700"]),
    ({"type": "integer", "minimum": 0, "maximum": 18446744073709551615}, ["0", "18446744073709549568"]),
    ({"type": "string", "pattern": "^[a-z]+$", "maxLength": 3, "minLength": 2}, ['"ab"', '"abc"']),
    ({"type": "string", "pattern": "^a|b$"}, ['"ax"', '"xb"']),
    ({"type": "string", "pattern": "^(?!\\.)(?!.*\\.\\.)[a-z.]+$"}, ['"a.b"', '"ab"']),
    ({"type": "string", "pattern": "^(?=.*\\d)[a-z0-9]{3}$"}, ['"a1b"']),
    ({"type": "string", "format": "email"}, ['"a.b@example.org"']),
    ({"type": "string", "format": "ipv4"}, ['"192.168.0.255"']),
    ({"type": "string", "format": "ipv6"}, ['"::1"', '"2001:db8::8:800:200c:417a"', '"::ffff:1.2.3.4"']),
    ({"type": "string", "format": "uri"}, ['"https://example.org:80/a?b#c"', '"urn:x:y"']),
    ({"type": "string", "format": "date"}, ['"2024-02-29"', '"2023-02-28"']),
    ({"type": "string", "format": "regex"}, ['"^a(b|[^\\\\]c-]){2,3}$"', '"(?:x(y)?)*"', '""', '"\\\\d+"']),
    ({"type": "string", "format": "of no standard"}, ['"x"']),
    ({"allOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"x": {"minimum": 3}}}]}, ['{"x":3}', "1"]),
    ({"allOf": [{"type": "string"}, {"enum": ["a", 1]}]}, ['"a"']),
    ({"type": "integer", "anyOf": [{"minimum": 5}, {"maximum": -5}]}, ["5", "-6"]),
    ({"oneOf": [{"minimum": 3, "type": "integer"}, {"maximum": 5, "type": "integer"}]}, ["2", "6"]),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object"}, ['{"a":1}', '{"b":1}']),
    ({"not": {"type": ["string", "object"]}}, ["5", "[]", "null"]),
    ({"type": "string", "not": {"enum": ["a", "b"]}}, ['"c"', '""', '"ab"']),
    (
        {
            "type": "object",
            "properties": {"k": {"enum": ["a", "b"]}, "v": {}},
            "required": ["k"],
            "if": {"properties": {"k": {"const": "a"}}},
            "then": {"properties": {"v": {"type": "integer"}}},
            "else": {"properties": {"v": {"type": "string"}}},
        },
        ['{"k":"a","v":1}', '{"k":"b","v":"x"}'],
    ),
    ({"type": "object", "dependentRequired": {"a": ["b"]}}, ["{}", '{"a":1,"b":2}', '{"b":1}']),
    ({"$defs": {"n": {"type": "string"}}, "$ref": "#/$defs/n", "minLength": 3}, ['"abc"']),
    ({}, ["null", '{"a":[1,2,{"b":"x\\u00e9"}]}']),
    (True, ["[]"]),
]
WRONG = [
    "",
    "{",
    "[",
    "nul",
    "{}x",
    '{"a":}',
    "[1,]",
    '"\\x"',
    '"\n"',
    "01",
    "1.",
    "+1",
    "- 1",
    "-15.5",
    "7",
    "-16",
    "94",
    "1204",
    "0",
    "-2",
]
WRONG += [
    '{"name":"","age":18}',
    '{"name":"A","age":17}',
    '{"name":"A","age":121}',
    '{"age":18,"name":"A","age":19}',
    '{"name":"A"}',
]
WRONG += [
    '{"name":"A","age":18,"tags":[]}',
    '{"name":"A","age":18,"x":1}',
    '{"v":1}',
    '{"v":1,"next":5}',
    '"12-A"',
    '"xa"',
    '"ax"',
]


@pytest.mark.parametrize("schema, documents", SCHEMAS, ids=lambda value: json.dumps(value)[:50])
def test_documents_of_schemas(match, schema, documents):
    assert match("schema", schema, documents) == ["yes"] * len(documents)
    # What it takes of the rest is valid for someone else, too.
    rest = [*WRONG, *(text for _, texts in SCHEMAS for text in texts)]
    for text, answer in zip(rest, match("schema", schema, rest)):
        if answer == "yes":
            jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize(
    "schema, message",
    [
        ({"not": {}}, "no document fits it"),
        (False, "no document fits it"),
        ({"type": "thing"}, "'type': found 'thing'"),
        ({"properties": {"a": {"type": "array", "items": {"contains": {}}}}}, "at /a/items: the keyword 'contains'"),
        ({"type": "string", "minLength": 5, "maxLength": 4}, "no document fits it"),
        ({"type": "string", "minLength": -1}, "'minLength': expected an integer"),
        ({"type": "integer", "minimum": 5, "maximum": 4}, "no document fits it"),
        ({"type": "integer", "enum": ["a"]}, "no document fits it"),
        ({"type": "array", "uniqueItems": True}, "'uniqueItems': it is read where one item may come, or items of"),
        ({"items": {"pattern": "^[a-z]{2}$"}, "uniqueItems": True}, "or items of at most 500 values"),
        ({"items": [{"enum": [1, 2]}], "uniqueItems": True}, "'uniqueItems': it is read where one item may come"),
        ({"minProperties": 2, "type": "object"}, "'minProperties': expected at most 1"),
        ({"not": {"items": {"type": "string"}}}, "'items': its opposite is not read here"),
        ({"const": 2**53 + 1}, "a number beyond 2^53 is not held exactly"),
        ({"type": "integer", "multipleOf": 0}, "'multipleOf': expected a number above 0"),
        ({"type": "string", "pattern": "(?<=x)"}, "groups that look around, but ahead"),
        ({"type": "string", "pattern": "(a(?=x))"}, "look-ahead within a group is not read here"),
        ({"type": "string", "pattern": "a|*"}, "nothing stands before it to be repeated"),
        ({"type": "string", "pattern": "(a"}, "a ( without its )"),
        ({"type": "string", "pattern": "a)"}, "a ) without its ("),
        ({"type": "string", "pattern": "[a"}, "a class without its ]"),
        ({"type": "string", "pattern": "\\b"}, "an escape that is not read here"),
        ({"type": "string", "pattern": "^(a{1000}){1000}$"}, "too large an automaton"),
        ({"$ref": "#/nowhere"}, "'$ref': expected a pointer"),
        ({"$ref": "http://example.org/x"}, "'$ref': expected a pointer"),
        ({"$ref": "#"}, "'$ref' leads back to itself"),
        ({"required": True}, "'required': expected a list of names"),
        ({"not": {"properties": [{"type": "string"}]}}, "'properties': expected an object of schemas"),
        ({"patternProperties": [{"type": "string"}]}, "'patternProperties': expected an object of schemas"),
        ({"enum": []}, "'enum': expected a list"),
        ({"prefixItems": {"type": "string"}}, "'prefixItems': expected a list of schemas"),
        ({"anyOf": []}, "'anyOf': expected a list"),
        ([], "expected a schema"),
        (5, "expected a schema"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_schemas_that_are_refused(match, schema, message):
    assert message in match("schema", schema)


@pytest.mark.parametrize(
    "schema",
    [
        '{"minimum": 1e999}',
        '{"maximum": -1e999}',
        '{"multipleOf": 1e999}',
        '{"exclusiveMinimum": 1e999}',
        '{"enum": [1e999]}',
    ],
)
def test_numbers_that_no_double_holds(match, schema):
    assert "a number" in match("schema", schema)


def test_what_is_no_regular_expression(match):
    texts = ['"["', '"(a"', '"a)"', '"*"', '"a**"', '"a|+"', '"a{"', '"[a"', '"(?<"', '"(a))"']
    assert match("schema", {"type": "string", "format": "regex"}, texts) == ["no"] * len(texts)


def test_one_number_has_no_idle_zeros(match):
    texts = ["5", "5.0", "5.", "5.00", "-0.25", "-0.250", "0.25"]
    found = match("schema", {"enum": [5, -0.25]}, texts)
    assert found == ["yes", "yes", "more", "no", "yes", "no", "no"]


def test_ranges_of_integers(match):
    choose = random.Random(1)
    for _ in range(20):
        low, high = sorted(choose.choice([1, -1]) * choose.randrange(10 ** choose.randrange(1, 7)) for _ in range(2))
        numbers = [low - 1, low, low + 1, high - 1, high, high + 1, 0, -low, -high]
        numbers += [choose.randrange(-(10**6), 10**6) for _ in range(60)]
        found = match("schema", {"type": "integer", "minimum": low, "maximum": high}, map(str, numbers))
        assert [answer == "yes" for answer in found] == [low <= number <= high for number in numbers], (low, high)


def test_masks_hold_what_goes_on(match, fable):
    """Token by token: the walk of the vocabulary's tree, beside each token's bytes alone."""
    texts = ['{"name":"Anna", "age":42}', '{\n "name": "Björn 漢", "age": 18, "city": "Paris"}', '{"name":1}']
    found = match("schema", PERSON, texts, fable)
    assert all(", 0 wrong, " in line for line in found) and [line.split()[-1] for line in found] == [
        "whole",
        "whole",
        "open",
    ]
    assert ", 0 wrong, whole" in match("grammar", "root ::= [^é]{3,9} | .", ["漢xé"[:2] + "yz"], fable)[0]


def test_masks_within_strings(match, fable):
    """Where any character may come, most tokens are taken together: with and without limits near the end."""
    kinds = (
        {},
        {"maxLength": 17},
        {"minLength": 20, "maxLength": 40},
        {"minLength": 3},
        {"pattern": "x$"},
        {"enum": ["a b"]},
    )
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string", **kind} for i, kind in enumerate(kinds)}}
    text = '{"p0": "Once é\\n", "p1": "upon a time there", "p2": "was a girl with many long hairs", "p3": "and", "p4": "x x"'
    found = match("schema", schema, [text + "}", text + ', "p5": "a b", "q": "{"}'], fable)
    assert all(", 0 wrong, whole" in line for line in found), found


@pytest.mark.parametrize(
    "schema, text",
    [
        ({"pattern": "f-[0-9]+"}, "an if-f-12 \\n end"),
        ({"pattern": "^.*\\.md$"}, "a.b \u2027.md"),
        ({"pattern": "^.{2,30}$"}, "thirty at most, no more \\t"),
        ({"pattern": "^[^ -z]|b"}, "\u00e9 and b"),
        ({"minLength": 30}, "thirty of them, and then \\u0041 some more"),
        ({"minLength": 2, "maxLength": 24}, "between, \\\\ not over"),
        ({"anyOf": [{"maxLength": 30}, {"pattern": "q"}]}, "a text of two kinds, with q in it"),
        ({"not": {"enum": ["no", "nothing"]}}, "nothing else"),
    ],
)
def test_masks_where_most_characters_may_come(match, fable, schema, text):
    """Tokens are taken together where any plain characters may come: not beyond a limit, nor what a dot does not take."""
    objects = {
        "type": "object",
        "additionalProperties": {"type": "string", **schema},
        "properties": {"no": {}, "night": {}},
    }
    for each, written in (
        ({"type": "string", **schema}, f'"{text}"'),
        (objects, f'{{"nobody": "{text}", "n": "{text}"}}'),
    ):
        found = match("schema", each, [written], fable)
        assert ", 0 wrong, whole" in found[0], found


def test_masks_of_classes_that_are_no_strings(match, fable):
    for grammar, text in (
        (r'root ::= "\\" [^"\\\x00-\x1f]* | [^x]* "xyz"', "once upon a time xyz"),
        (
            r'root ::= a "." '
            + "\n"
            + r'a ::= "b" a | [^"\\\x00-\x1f] a | "\\" [^b] a | "c" b | ""'
            + "\n"
            + 'b ::= "d"',
            "a bc\\a.",
        ),
        (r"root ::= [^\u2028]{3,} | [b-y]{3,} [\u2028] [x]", "may be"),
        (r'root ::= (([^"\\\x00-\x1f] | "\"" "a")+ "\\")+', 'it "a is\\'),
    ):
        found = match("grammar", grammar, [text], fable)
        assert ", 0 wrong, " in found[0], (grammar, found)
