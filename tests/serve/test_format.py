"""Texts that must have a form: whatever the model would say, the document is valid."""

from __future__ import annotations

import concurrent.futures
import json

import jsonschema
import pytest

SHORT = {"type": "string", "maxLength": 8}
SCHEMAS = [
    {
        "type": "object",
        "properties": {"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
        "required": ["name", "age"],
    },
    {
        "type": "object",
        "properties": {k: SHORT for k in "abcde"},
        "required": ["b", "d"],
        "additionalProperties": False,
    },
    {
        "type": "array",
        "items": {"anyOf": [{"enum": ["x", 5, None]}, {"type": "boolean"}]},
        "minItems": 2,
        "maxItems": 5,
    },
    {
        "type": "object",
        "properties": {"id": {"type": "string", "format": "uuid"}, "on": {"type": "string", "format": "date"}},
        "required": ["id", "on"],
    },
    {"type": "string", "pattern": '^[A-Z]{2}-\\d{3,5}(é|")$'},
    {
        "type": "object",
        "properties": {
            "left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            "value": {"type": "integer", "maximum": 9, "minimum": 0},
        },
        "required": ["value"],
    },
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: json.dumps(schema)[:50])
@pytest.mark.parametrize("temperature", [0, 1, 5])
def test_documents_are_valid(server, schema, temperature):
    """Hot as it is, nothing else can come."""
    for seed in range(4):
        fields = {"temperature": temperature, "top_k": 0, "top_p": 1, "min_p": 0, "seed": seed, "max_tokens": 900}
        choice = server.complete("It is", json_schema=schema, **fields)["choices"][0]
        assert choice["finish_reason"] == "stop", choice
        jsonschema.validate(json.loads(choice["text"]), schema)


def test_chat_formats(talker):
    schema = SCHEMAS[0]
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    jsonschema.validate(
        json.loads(talker.chat(response_format=form, max_tokens=200)["choices"][0]["message"]["content"]), schema
    )
    text = talker.chat(response_format={"type": "json_object"}, max_tokens=40)["choices"][0]["message"]["content"]
    assert text.startswith("{")
    assert talker.chat(response_format={"type": "text"}, max_tokens=4)


def test_grammars(server):
    assert server.text("Well?", grammar='root ::= "yes" | "no"', max_tokens=9) in ("yes", "no")
    text = server.text(
        "Well?", grammar="root ::= [é-ü]{5} [0-9]{3}", temperature=3, top_k=0, top_p=1, min_p=0, max_tokens=40
    )
    assert len(text) == 8 and text[5:].isdigit() and all("é" <= c <= "ü" for c in text[:5])
    events = server.post(
        "/v1/completions", prompt="x", grammar='root ::= "aé" "🎉"+', stream=True, max_tokens=30, temperature=0
    ).events
    assert "".join(event["choices"][0]["text"] for event in events).startswith("aé🎉")


def test_a_form_among_others(server):
    """Masks of one request do not reach another's."""
    fields = {"max_tokens": 30, "seed": 7, "cache_prompt": False}
    choices = server.complete("Once", n=2, grammar="root ::= [a-z ]{20}", **fields)["choices"]
    assert all(len(choice["text"]) == 20 and choice["finish_reason"] == "stop" for choice in choices)
    assert server.text("Once", **fields) == server.text("Once", **fields)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"grammar": "root ::= x"}, "grammar, line 1: rule 'x'"),
        ({"grammar": 5}, "'grammar': expected a string"),
        ({"json_schema": {"not": {}}}, "schema: no document fits it"),
        ({"response_format": {"type": "json_schema"}}, "'response_format': expected"),
        ({"grammar": 'root ::= "x"', "json_schema": {}}, "exclude each other"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_forms_that_are_refused(server, fields, message):
    answer = server.post("/v1/completions", prompt="x", **fields)
    assert answer.status == 400 and message in answer.error


def test_a_grammar_that_is_too_large(server):
    grammar = 'root ::= "' + "x" * 1100000 + '"'
    answer = server.post("/v1/completions", prompt="x", grammar=grammar, max_tokens=5, temperature=0)
    assert answer.status == 400 and "more than 1048576 parts" in answer.error


def test_schemas_that_take_long_keep_nobody_waiting(server):
    """They are read one after the other, beside the connections: what needs no reading is answered before them."""
    slow = {f"p{i}": {"type": "string", "pattern": f"^[ab]*a[ab]{{12}}{i}$"} for i in range(40)}
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        asked = [
            pool.submit(server.post, "/v1/completions", prompt="It is", json_schema={"properties": slow})
            for _ in range(24)
        ]
        concurrent.futures.wait(asked, return_when=concurrent.futures.FIRST_COMPLETED)
        assert server.get("/health").status == 200 and server.post("/tokenize", content="It is").status == 200
        assert sum(answer.done() for answer in asked) < 12
        assert [answer.result().status for answer in asked] == [400] * 24
    assert "outgrow" in asked[0].result().error
    assert server.text("It is", max_tokens=3)
