"""Chat templates that are refused, by the converter or by the engine, and the limits of those that are not."""

import pytest
from evaluator import TOKENS, USER, chat_of, evaluate, one
from yalm_convert import chat_template as converter

# ---------------------------------------------------------------- refusals


def test_what_a_template_says():
    assert one("a\n{{ raise_exception('Only users\nand ' ~ 2) }}") == "error 2 chat template, line 2: Only users?and 2"
    assert one("{{ a.b }}") == "error 2 chat template, line 1: 'a' is undefined"
    assert (
        one("{% for m in messages %}\n{{ m.nope.deeper }}{% endfor %}")
        == "error 2 chat template, line 2: 'nope' is undefined"
    )


@pytest.mark.parametrize(
    ("variables", "error"),
    [
        ("[]", "variables: found list, expected an object"),
        ("{}", "variables: 'messages' is missing"),
        ('{"messages": []}', "'messages' must be a list of at least one message"),
        ('{"messages": "Hi"}', "'messages' must be a list of at least one message"),
        ('{"messages": [{}, 3]}', "message 1: found int, expected an object"),
        ('{"messages": [{}]', "variables: not JSON: an early end at byte 17"),
        ('{"messages": [{}]} x', "variables: not JSON: bytes after the value at byte 19"),
        ('{"messages": [{"a": 01}]}', "variables: not JSON: a number that JSON does not have at byte 20"),
        (
            '{"messages": [{"a": 99999999999999999999}]}',
            "variables: not JSON: an integer that 64 bits do not hold at byte 40",
        ),
        ('{"messages": [{"a": "\\ud800"}]}', "variables: not JSON: half of a surrogate pair at byte 21"),
        ('{"messages": ' + "[" * 200, "variables: not JSON: nesting too deep at byte 112"),
        ("", "variables: not JSON: an early end at byte 1"),
    ],
)
def test_variables(variables, error):
    assert evaluate(chat_of("x"), [variables + " "]) == [
        f"error 2 chat template: {error}".replace("at byte 17", "at byte 18")
    ]


REFUSED = {
    "{{ x | round }}": "line 1: the filter 'round' is not supported",
    "a\n{{ x is filter }}": "line 2: the test 'filter' is not supported",
    "{{ x.encode() }}": "line 1: the method 'encode' is not supported",
    "{% include 'secret' %}": "line 1: 'Include' is not supported",
    "{% import 'x' as y %}": "line 1: 'Import' is not supported",
    "{% extends 'x' %}": "line 1: 'Extends' is not supported",
    "{% block a %}{% endblock %}": "line 1: 'Block' is not supported",
    "{{ 2 ** 3 }}": "line 1: 'Pow' is not supported",
    "{{ f(*x) }}": "line 1: a call with '*' or '**' is not supported",
    "{{ x | join(**y) }}": "line 1: a call with '*' or '**' is not supported",
    "\n\n{% break %}": "line 3: 'break' outside of a loop is not supported",
    "{% for i in x recursive %}{% endfor %}": "line 1: a recursive loop is not supported",
    "{% macro f() %}{{ caller() }}{% endmacro %}": "line 1: 'caller' is not supported",
    "{% call f() %}{% endcall %}": "line 1: 'CallBlock' is not supported",
    "{{ cycler(1) }}": "line 1: 'cycler' is not supported",
    "{{ 99999999999999999999 }}": "line 1: the number 99999999999999999999 is not supported",
    "{{ '\\0' }}": "line 1: a NUL or half of a surrogate pair in a text is not supported",
    "{% if %}": "line 1: Expected an expression, got 'end of statement block'",
    "{{ " + "(" * 3000: "nested too deeply",
    "{{ " + "9" * 5000 + " }}": "a number of too many digits is not supported",
    "{{ x" + ".a" * 400 + " }}": "line 1: more than 300 levels of nesting or 200000 nodes is not supported",
}


@pytest.mark.parametrize("text", REFUSED)
def test_conversion_refuses(text):
    chat = chat_of(text)
    assert chat == {"tokens": TOKENS, "refused": REFUSED[text]}
    assert evaluate(chat, []) == [f"refused {REFUSED[text]}"]


@pytest.mark.parametrize("kind", ["filter", "test"])
def test_engine_knows_what_the_converter_lets_through(kind):
    names = sorted(converter.FILTERS if kind == "filter" else converter.TESTS)
    rest = [[], []] if kind == "filter" else [[]]
    for name in names:
        nodes = [["const", 1, "x"], [kind, 1, name, [0], *rest], ["output", 1, None, [1]], ["template", 1, None, [2]]]
        answers = evaluate({"tokens": {}, "templates": {"default": nodes}}, [{"messages": USER}])
        assert len(answers) == 1 and not answers[0].startswith("error 3"), name


def test_engine_knows_the_methods():
    for name in sorted(converter.METHODS):
        text = "{% for i in [1] %}{{ 'x'.NAME is defined or [].NAME is defined or {}.NAME is defined or loop.NAME is defined }}"
        assert "True" in one(text.replace("NAME", name) + "{% endfor %}"), name


DEFAULT = [["data", 1, "x"], ["output", 1, None, [0]], ["template", 1, None, [1]]]
BROKEN = [
    ([], "'chat.templates.default': found 0 nodes, expected a list of 1 to 200000"),
    ([3], "'chat.templates.default': node 0: expected [kind, line, value, children]"),
    ([["data", 1]], "'chat.templates.default': node 0: expected [kind, line, value, children]"),
    ([["data", -1, "x"]], "'chat.templates.default': node 0: expected [kind, line, value, children]"),
    ([["what", 1, None]], "'chat.templates.default': node 0: a kind that this version does not know"),
    ([["data", 1, None]], "'chat.templates.default': node 0: no text where one must stand"),
    ([["const", 1, {}]], "'chat.templates.default': node 0: no constant that a template has"),
    ([["data", 1, "x", [0]]], "'chat.templates.default': node 0: more than a node of its kind has"),
    ([["output", 1, "x", []]], "'chat.templates.default': node 0: a value where none must stand"),
    ([["output", 1, None]], "'chat.templates.default': node 0: lists of children are missing"),
    ([["output", 1, None, 3]], "'chat.templates.default': node 0: no list of children where one must stand"),
    ([["output", 1, None, [0]]], "'chat.templates.default': node 0: a child that is no node before it"),
    (
        [["data", 1, "x"], ["template", 1, None, [0]]],
        "'chat.templates.default': node 1: a child of a kind that cannot stand there",
    ),
    ([["data", 1, "x"], ["not", 1, None, []]], "'chat.templates.default': node 1: the wrong number of children"),
    (
        [["name", 1, "x"], ["filter", 1, "round", [0], [], []]],
        "'chat.templates.default': node 1: a filter that this version does not know",
    ),
    (
        [["name", 1, "x"], ["test", 1, "round", [0], []]],
        "'chat.templates.default': node 1: a test that this version does not know",
    ),
    ([["name", 1, "x"], ["operand", 1, "??", [0]]], "'chat.templates.default': node 1: an unknown operator"),
    (
        [["name", 1, "x"], ["dict", 1, None, [0], []]],
        "'chat.templates.default': node 1: as many values as keys are needed",
    ),
    (
        [["name", 1, "x"], ["macro", 1, "m", [], [0], []]],
        "'chat.templates.default': node 1: more defaults than parameters",
    ),
    (
        [["name", 1, "x"], *[["not", 1, None, [i]] for i in range(400)]],
        "'chat.templates.default': node 301: nested too deeply",
    ),
    (DEFAULT[:2], "'chat.templates.default': node 1: the last node is no template"),
]


@pytest.mark.parametrize(("tree", "error"), BROKEN)
def test_tree_is_checked(tree, error):
    assert evaluate({"tokens": {}, "templates": {"default": tree}}, []) == [f"error 3 chat: metadata: {error}"]


@pytest.mark.parametrize(
    ("chat", "error"),
    [
        ({"tokens": {}}, "'chat.templates' is missing"),
        ({"templates": {}}, "'chat.tokens' is missing"),
        ({"tokens": {}, "templates": {}}, "'chat.templates.default' is missing"),
        ({"tokens": {"bos_token": 3}, "templates": {"default": DEFAULT}}, "'chat.tokens': expected at most 32 strings"),
        (
            {"tokens": {}, "templates": {"default": DEFAULT, "other": DEFAULT}},
            "'chat.templates.other' is not known to this version",
        ),
        ({"tokens": {}, "refused": 3}, "'chat.refused': found a number, expected a string"),
        ({"tokens": {}, "templates": {"default": DEFAULT}, "more": 1}, "'chat.more' is not known to this version"),
    ],
)
def test_member_is_checked(chat, error):
    assert evaluate(chat, []) == [f"error 3 chat: metadata: {error}"]


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
            "stopped after 20000000 steps",
        ),
        (
            "{% set ns = namespace(t='x' * 1000) %}{% for i in range(99) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
            "more memory is needed than the 256 MiB",
        ),
        ("{{ 'x' * 999999999999 }}", "stopped after 20000000 steps"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "macros call each other too deeply"),
        ("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", "values are nested too deeply to be printed"),
        (
            "{% set l = [] %}{% set _ = l.append(l) %}{{ l | tojson }}",
            "values are nested too deeply to be written as JSON",
        ),
        (
            "{% set l = [] %}{% set _ = l.append(l) %}{% set m = [] %}{% set _ = m.append(m) %}{{ l == m }}",
            "values are nested too deeply to be compared",
        ),
        ("{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}", "stopped after 20000000 steps"),
        ("{{ 9007199254740991 * 9007199254740991 }}", "an integer that 64 bits do not hold"),
        # Long strings cost what looking through them costs.
        *(
            (
                "{% set x = 'é' * 4000000 %}{% set y = 'é' * 4000000 %}"
                "{% for i in range(90000) %}{% if " + look + " %}{% endif %}{% endfor %}",
                "stopped after 20000000 steps",
            )
            for look in (
                "x[3999999]",
                "x | length",
                "x == y",
                "x < y",
                "x.startswith(y)",
                "x in {y: 1}",
                "x.rsplit(y[:-1] ~ 'b')",
            )
        ),
    ],
)
def test_limits(text, error):
    found = one(text)
    assert found.startswith("error ") and error in found
