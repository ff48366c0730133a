"""/v1/responses, by plain HTTP."""

from __future__ import annotations

import json

import pytest

PARAMETERS = {"type": "object", "properties": {"b": {"enum": ["x", "y"]}}, "required": ["b"]}
LOOK = {"type": "function", "name": "look", "parameters": PARAMETERS}
FIXED = {"seed": 3, "cache_prompt": False}


def events(answer):
    assert answer.status == 200, answer.body
    parts = [part for part in answer.body.decode().split("\n\n")[:-1] if not part.startswith(":")]
    found = [json.loads(part.split("\ndata: ")[1]) for part in parts]
    assert [part.split("\n")[0] for part in parts] == [f"event: {event['type']}" for event in found]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def test_a_stream_is_the_whole_in_pieces(talker):
    fields = {"input": "Hello", "max_output_tokens": 12, **FIXED}
    whole = talker.post("/v1/responses", **fields).json
    assert whole["status"] == "incomplete" and whole["usage"]["output_tokens"] == 12
    found = events(talker.post("/v1/responses", stream=True, **fields))
    text = "".join(event["delta"] for event in found if event["type"] == "response.output_text.delta")
    assert text == whole["output"][0]["content"][0]["text"]
    assert text == talker.chat(max_tokens=12, **FIXED)["choices"][0]["message"]["content"]
    assert [found[0]["type"], found[-1]["type"]] == ["response.created", "response.incomplete"]
    (item,) = found[-1]["response"]["output"]
    assert item["content"] == whole["output"][0]["content"] and item["role"] == "assistant"


def test_calls_and_their_outputs(talker):
    tools = [LOOK, {"type": "custom", "name": "patch"}, {"type": "web_search"}]
    answer = talker.post(
        "/v1/responses", input="a", tools=tools, tool_choice={"type": "function", "name": "look"}, **FIXED
    )
    assert answer.headers["Warning"] == '299 yalm "not followed: tools: web_search"' and answer.json["tools"] == tools
    (call,) = answer.json["output"]
    assert call["type"] == "function_call" and json.loads(call["arguments"])["b"] in ("x", "y")
    choice = {"type": "custom", "name": "patch"}
    found = events(talker.post("/v1/responses", input="a", tools=tools, tool_choice=choice, stream=True, seed=5))
    (patch,) = found[-1]["response"]["output"]
    if found[-1]["type"] == "response.completed":
        assert patch["type"] == "custom_tool_call" and isinstance(patch["input"], str)
    items = [{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]}, call, patch]
    items += [{"type": "function_call_output", "call_id": call["call_id"], "output": "5"}]
    assert talker.post("/v1/responses", input=items, instructions="Be brief.", max_output_tokens=1).status == 200


def test_a_response_goes_on_from_another(talker):
    first = talker.post("/v1/responses", input="One", max_output_tokens=6, **FIXED).json
    assert talker.get(f"/v1/responses/{first['id']}").json == first
    second = talker.post(
        "/v1/responses", input="Two", previous_response_id=first["id"], max_output_tokens=1, **FIXED
    ).json
    text = first["output"][0]["content"][0]["text"]
    messages = [("user", "One"), ("assistant", text), ("user", "Two")]
    messages = [{"role": role, "content": content} for role, content in messages]
    count = talker.post("/v1/chat/completions/input_tokens", messages=messages).json["input_tokens"]
    assert second["usage"]["input_tokens"] == count and second["previous_response_id"] == first["id"]
    assert talker.ask("DELETE", f"/v1/responses/{first['id']}").json["deleted"] is True
    assert talker.get(f"/v1/responses/{first['id']}").status == 404
    answer = talker.post("/v1/responses", input="Two", previous_response_id=first["id"])
    assert answer.status == 404 and answer.json["error"]["code"] == "previous_response_not_found"
    forgotten = talker.post("/v1/responses", input="One", max_output_tokens=1, store=False).json["id"]
    assert talker.get(f"/v1/responses/{forgotten}").status == 404


def test_a_document_of_a_schema(talker):
    form = {"format": {"type": "json_schema", "name": "it", "schema": PARAMETERS}}
    answer = talker.post("/v1/responses", input="a", text=form, **FIXED).json
    assert json.loads(answer["output"][0]["content"][0]["text"])["b"] in ("x", "y") and answer["status"] == "completed"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"input": 5}, "'input': expected"),
        ({"input": [5]}, "'input', number 1"),
        (
            {"input": [{"role": "user", "content": 5}]},
            "'input', number 1: 'content': expected a text or a list of parts",
        ),
        ({"input": [{"role": "user", "content": [5]}]}, "number 1: expected parts that are objects"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "one of a text has a 'text'"),
        ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "'name': expected a tool's name"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": 5}]}, "'arguments': expected a text of JSON"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": None}]}, "'output': expected a text"),
        ({"background": True}, "'background'"),
        ({"conversation": "c"}, "'conversation'"),
        ({"input": []}, "'input': expected"),
        ({"text": {"format": {"type": "yaml"}}}, "'text.format': expected"),
        ({"max_output_tokens": "x"}, "'max_output_tokens': expected"),
    ],
    ids=str,
)
def test_what_is_refused(talker, fields, message):
    answer = talker.post("/v1/responses", **{"input": "a", **fields})
    assert answer.status == 400 and message in answer.error


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": {}},
        {"tools": "x"},
        {"text": 3},
        {"reasoning": 3},
        {"truncation": 4},
        {"background": True},
        {"metadata": 3},
        {"input": [{"type": "item_reference", "id": "x"}]},
    ],
    ids=str,
)
def test_types_of_fields(talker, fields):
    answer = talker.post("/v1/responses", **{"input": "a", "max_output_tokens": 1, **fields})
    assert answer.status == 400 and f"'{next(iter(fields))}" in answer.error


def test_members_of_an_inner_form_do_not_take_over(talker):
    fields = {"input": "Say blue", "max_output_tokens": 1}
    alone = talker.post("/v1/responses", **fields)
    both = talker.post("/v1/responses", messages=[{"role": "user", "content": "Say a b c d e f"}], **fields)
    assert both.json["usage"]["input_tokens"] == alone.json["usage"]["input_tokens"]
    assert "not followed: messages" in both.headers["Warning"]


def test_a_tools_own_grammar_is_named(talker):
    form = {"type": "grammar", "syntax": "regex", "definition": "^[0-9]+$"}
    tools = [{"type": "custom", "name": "patch", "format": form}]
    answer = talker.post("/v1/responses", input="a", tools=tools, max_output_tokens=1)
    assert "tools: the format of patch" in answer.headers["Warning"]
