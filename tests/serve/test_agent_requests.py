"""Whole requests in the shape that coding agents send: Codex's by /v1/responses, Claude Code's by /v1/messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .test_responses import events

FOLDER = Path(__file__).parent / "requests"
HEADERS = {
    "Content-Type": "application/json",
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14",
    "x-api-key": "none",
}


@pytest.fixture
def codex():
    return json.loads((FOLDER / "codex.json").read_text())


@pytest.fixture
def claude():
    return json.loads((FOLDER / "claude_code.json").read_text())


def prompt_of_items(server, request):
    """What the model reads: the items as messages, which a response that is kept shows by its count of tokens alone."""
    return server.post("/v1/responses", **{**request, "stream": False, "max_output_tokens": 1}).json["usage"][
        "input_tokens"
    ]


def test_codex_is_answered(talker, codex):
    answer = talker.post("/v1/responses", **codex, max_output_tokens=24, seed=3)
    found = events(answer)
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    assert found[-1]["type"] in ("response.completed", "response.incomplete")
    response = found[-1]["response"]
    assert response["usage"]["output_tokens"] > 0 and response["store"] is False and response["tools"] == codex["tools"]
    opened = [event["item"]["id"] for event in found if event["type"] == "response.output_item.added"]
    closed = [event["item"] for event in found if event["type"] == "response.output_item.done"]
    assert opened == [item["id"] for item in closed] and closed == response["output"] != []
    for part in (
        "tools: web_search",
        "tools: local_shell",
        "the format of apply_patch",
        "input: web_search_call",
        "include",
    ):
        assert part in answer.headers["Warning"], part


def test_every_item_of_codex_is_read(talker, codex):
    """Without any one of them the prompt is shorter; but for a search that a server made, and thoughts, which this template
    does not show."""
    whole = prompt_of_items(talker, codex)
    for i, item in enumerate(codex["input"]):
        without = prompt_of_items(talker, {**codex, "input": codex["input"][:i] + codex["input"][i + 1 :]})
        unread = item["type"] in ("web_search_call", "reasoning")
        assert without == whole if unread else without < whole, item


def test_codex_goes_on_by_what_it_was_answered(talker, codex):
    """A call that must come, its output, and the answer to that."""
    tools = {"tools": codex["tools"][:2], "tool_choice": "required", "reasoning": {"effort": "none"}}
    for _ in range(3):
        found = events(talker.post("/v1/responses", **{**codex, **tools}, max_output_tokens=200, seed=3))
        calls = [item for item in found[-1]["response"]["output"] if item["type"] == "function_call"]
        assert calls
        for call in calls:
            assert json.loads(call["arguments"]).keys() <= {"command", "step"} and call["id"].startswith("fc_")
            pieces = [event for event in found if event.get("item_id") == call["id"]]
            told = "".join(event["delta"] for event in pieces if event["type"].endswith("arguments.delta"))
            assert told == call["arguments"] == pieces[-1]["arguments"]
        codex["input"] = [codex["input"][2], *calls]
        codex["input"] += [
            {"type": "function_call_output", "call_id": call["call_id"], "output": "ok"} for call in calls
        ]


def messages(server, request, **more):
    """The blocks of a streamed answer, put together, and the last delta."""
    answer = server.ask("POST", "/v1/messages?beta=true", json.dumps({**request, **more}), HEADERS)
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream", answer.body
    parts = [part for part in answer.body.decode().split("\n\n")[:-1] if not part.startswith("event: ping")]
    found = [json.loads(part.split("\ndata: ")[1]) for part in parts]
    assert [part.split("\n")[0] for part in parts] == [f"event: {event['type']}" for event in found]
    assert found[0]["type"] == "message_start" and found[0]["message"]["usage"]["input_tokens"] > 0
    assert [event["type"] for event in found[-2:]] == ["message_delta", "message_stop"]
    blocks, inputs = [], []
    for event in found[1:-2]:
        if event["type"] == "content_block_start":
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"])
            inputs.append("")
            continue
        assert event["index"] == len(blocks) - 1
        delta = event.get("delta", {})
        if delta.get("type") == "input_json_delta":
            inputs[-1] += delta["partial_json"]
        elif "text" in delta or "thinking" in delta:
            key = "text" if "text" in delta else "thinking"
            blocks[-1][key] += delta[key]
    for block, text in zip(blocks, inputs):
        if block["type"] == "tool_use":
            block["input"] = json.loads(text)
    return blocks, found[-2]["delta"], answer


def test_claude_code_is_answered(talker, claude):
    blocks, delta, answer = messages(talker, claude, max_tokens=24, seed=3)
    assert blocks and delta["stop_reason"] in ("max_tokens", "end_turn", "tool_use")
    for part in (
        "tools: web_search_20250305",
        "tools: tool_search_tool",
        "context_management",
        "thinking.budget_tokens",
    ):
        assert part in answer.headers["Warning"], part
    count = talker.ask("POST", "/v1/messages/count_tokens?beta=true", json.dumps(claude), HEADERS)
    assert count.status == 200 and count.json == {"input_tokens": prompt_of_messages(talker, claude)}


def prompt_of_messages(server, request):
    usage = server.post("/v1/messages", **{**request, "stream": False, "max_tokens": 1}).json["usage"]
    return usage["input_tokens"] + usage["cache_read_input_tokens"]


def test_every_block_of_claude_code_is_read(talker, claude):
    whole = prompt_of_messages(talker, claude)
    for i, message in enumerate(claude["messages"]):
        for j, block in enumerate(message["content"]):
            rest = message["content"][:j] + message["content"][j + 1 :]
            without = [*claude["messages"]]
            without[i] = {**message, "content": rest}
            n = prompt_of_messages(talker, {**claude, "messages": without})
            unread = block["type"] in ("thinking", "redacted_thinking")  # this template shows no thoughts
            assert n == whole if unread else n < whole, block


def test_claude_code_goes_on_by_what_it_was_answered(talker, claude):
    claude["thinking"], claude["output_config"] = {"type": "disabled"}, {}  # this model would think until its end
    for _ in range(3):
        blocks, delta, _ = messages(talker, claude, max_tokens=200, seed=3, tool_choice={"type": "any"})
        calls = [block for block in blocks if block["type"] == "tool_use"]
        assert calls and delta["stop_reason"] == "tool_use"
        assert all(call["name"] in ("Bash", "Ask") and call["input"] for call in calls)
        results = [{"type": "tool_result", "tool_use_id": call["id"], "content": "ok"} for call in calls]
        claude["messages"] = [claude["messages"][0], {"role": "assistant", "content": blocks}]
        claude["messages"] += [{"role": "user", "content": results}]


def test_small_requests_of_claude_code(talker):
    """The first one asks whether there is quota; another for a conversation's title."""
    quota = {"max_tokens": 1, "messages": [{"role": "user", "content": "quota"}], "metadata": {"user_id": "u"}}
    assert talker.ask("POST", "/v1/messages?beta=true", json.dumps(quota), HEADERS).json["stop_reason"] == "max_tokens"
    schema = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 9}}, "required": ["title"]}
    fields = {**quota, "max_tokens": 200, "output_config": {"format": {"type": "json_schema", "schema": schema}}}
    answer = talker.ask("POST", "/v1/messages?beta=true", json.dumps(fields), HEADERS).json
    assert list(json.loads(answer["content"][0]["text"])) == ["title"]
    unknown = talker.ask("POST", "/v1/messages/batches", json.dumps(quota), HEADERS)
    assert unknown.status == 404 and unknown.json["type"] == "error"
