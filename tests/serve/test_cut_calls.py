"""Calls that must come and that the limit cuts off, in the forms beside OpenAI's chat: calls without an end, never text."""

import json

import pytest

from .test_chat import CLAUDE_TOOLS, TOOLS
from .test_ollama import lines
from .test_responses import events

FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]
HELLO = [{"role": "user", "content": "Hello"}]
LIMITS = (1, 3, 7, 12, 18, 24)  # in the name, behind it, within the arguments


def whole_or_beginning(text):
    """Of a text of JSON: whether it is whole. It begins as one in any case."""
    try:
        json.loads(text)
    except ValueError:
        assert text == "" or text.startswith("{")
        return False
    return True


@pytest.mark.parametrize("limit", LIMITS)
def test_responses(talker, limit):
    fields = {"input": "Hello", "tools": FLAT[1:], "tool_choice": "required", "max_output_tokens": limit, "seed": 3}
    answer = talker.post("/v1/responses", **fields).json
    assert answer["status"] == "incomplete" and answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in answer["output"]] == ["function_call"]
    (call,) = answer["output"]
    assert call["name"] == "second" and call["status"] == "incomplete" and not whole_or_beginning(call["arguments"])
    found = events(talker.post("/v1/responses", **fields, stream=True))
    last = found[-1]
    assert last["type"] == "response.incomplete" and not any("output_text" in event["type"] for event in found)
    pieces = [event["delta"] for event in found if event["type"] == "response.function_call_arguments.delta"]
    assert "".join(pieces) == call["arguments"] == last["response"]["output"][0]["arguments"]
    assert last["response"]["output"][0]["status"] == "incomplete"


@pytest.mark.parametrize("limit", LIMITS)
def test_anthropic(talker, limit):
    fields = {
        "messages": HELLO,
        "tools": CLAUDE_TOOLS[1:],
        "tool_choice": {"type": "any"},
        "max_tokens": limit,
        "seed": 3,
    }
    answer = talker.post("/v1/messages", **fields).json
    assert answer["stop_reason"] == "max_tokens" and [block["type"] for block in answer["content"]] == ["tool_use"]
    assert answer["content"][0]["name"] == "second" and isinstance(answer["content"][0]["input"], dict)
    body = talker.post("/v1/messages", **fields, stream=True).body.decode()
    found = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: ")]
    begun = [event["content_block"] for event in found if event["type"] == "content_block_start"]
    assert [(block["type"], block["name"]) for block in begun] == [("tool_use", "second")]
    deltas = [event["delta"] for event in found if event["type"] == "content_block_delta"]
    assert {delta["type"] for delta in deltas} <= {"input_json_delta"}
    assert not whole_or_beginning("".join(delta["partial_json"] for delta in deltas))
    assert [e["delta"]["stop_reason"] for e in found if e["type"] == "message_delta"] == ["max_tokens"]


@pytest.mark.parametrize("limit", LIMITS)
def test_ollama(talker, limit):
    """Whose arguments are an object: without what is not whole."""
    fields = {"messages": HELLO, "tools": TOOLS[1:], "tool_choice": "required"}
    fields["options"] = {"num_predict": limit, "seed": 3}
    whole = talker.post("/api/chat", **fields, stream=False).json
    streamed = lines(talker.post("/api/chat", **fields))
    assert whole["done_reason"] == streamed[-1]["done_reason"] == "length"
    calls = [call for line in streamed for call in line["message"].get("tool_calls", [])]
    assert not whole["message"]["content"] and not any(line["message"]["content"] for line in streamed)
    assert calls == whole["message"]["tool_calls"]
    assert [call["function"]["name"] for call in calls] == ["second"]
    assert isinstance(calls[0]["function"]["arguments"], dict)
