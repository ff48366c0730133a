"""Conversations in the forms of OpenAI and Anthropic: templates, reasoning, calls of tools, streams. What the model "says" is
forced by a grammar."""

from __future__ import annotations

import json

import pytest

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Does it",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer", "minimum": 0, "maximum": 99}, "b": {"enum": ["x", "y"]}},
                "required": ["a", "b"],
            },
        },
    }
    for name in ("first", "second")
]
CLAUDE_TOOLS = [
    {"name": t["function"]["name"], "description": "Does it", "input_schema": t["function"]["parameters"]}
    for t in TOOLS
]
CALL = '<tool_call>\n{"name": "first", "arguments": {"a": [1, "}\\""], "b": {}}}\n</tool_call>'
# What is said; the reasoning, the text and the calls in it.
SAID = [
    ("Yes, of course.", "", "Yes, of course.", []),
    ("  blanks around  ", "", "  blanks around  ", []),
    (CALL, "", "", [("first", '{"a": [1, "}\\""], "b": {}}')]),
    ("I see.\n\n" + CALL + "\n" + CALL.replace("first", "second"), "", "I see.", [("first", None), ("second", None)]),
    ('<tool_call>{"arguments": {"a": 1}, "name": "first"}</tool_call>', "", "", [("first", '{"a": 1}')]),
    ('<tool_call>{"name": "first"}</tool_call>', "", "", [("first", "{}")]),
    # Without a mark, in a fence or behind words: where name and arguments fit a tool.
    ('{"name": "first", "parameters": {"a": 1, "b": "x"}}', "", "", [("first", '{"a": 1, "b": "x"}')]),
    ('So: {"name": "first", "arguments": {"a": 1, "b": "x"}}', "", "So:", [("first", None)]),
    (
        'As follows:\n```json\n{"name": "first", "arguments": {"a": 1, "b": "x"}}\n```\n',
        "",
        "As follows:",
        [("first", None)],
    ),
    ('{"name": "first", "arguments": {"a": 1}}', "", '{"name": "first", "arguments": {"a": 1}}', []),
    (
        '{"name": "first", "arguments": {"a": "1", "b": "x"}}',
        "",
        '{"name": "first", "arguments": {"a": "1", "b": "x"}}',
        [],
    ),
    ('{"name": "Alice", "age": 3}', "", '{"name": "Alice", "age": 3}', []),
    ('```json\n{"name": 1}\n``` {', "", '```json\n{"name": 1}\n``` {', []),
    (
        '<tool_call>{"name": "third", "arguments": {}}</tool_call>',
        "",
        '<tool_call>{"name": "third", "arguments": {}}</tool_call>',
        [],
    ),
    (
        '{"name": "first", "arguments": {"a": 1, "b": "x"}}\n{"name": "second", "arguments": {"a": 2, "b": "y"}}',
        "",
        "",
        [("first", None), ("second", '{"a": 2, "b": "y"}')],
    ),
    ("<think>\nIs it <b>?\n</think>\n\nIt is.", "Is it <b>?", "It is.", []),
    ("<think>Well</think>" + CALL, "Well", "", [("first", None)]),
    ("<think>without an end", "without an end", "", []),
    ("a <tool_cap> and [TOOLS", "", "a <tool_cap> and [TOOLS", []),
    ("a <tool_call>no call</tool_call> b", "", "a <tool_call>no call</tool_call> b", []),
    ('{"answer": 42}', "", '{"answer": 42}', []),
    ('{"name": "nobody"', "", '{"name": "nobody"', []),
    ("see <tool", "", "see <tool", []),
]
SAID_IDS = [said[:40] for said, *_ in SAID]


def only(text):
    """A grammar of one text."""
    return "root ::= " + json.dumps(text, ensure_ascii=False).replace("\\/", "/")


def forced(text, **fields):
    return {"grammar": only(text), "tools": TOOLS, "max_tokens": 300, **fields}


def check_calls(found, wanted):
    assert [name for name, _ in found] == [name for name, _ in wanted]
    for (_, arguments), (_, text) in zip(found, wanted):
        assert isinstance(json.loads(arguments), dict) and (text is None or arguments == text)


# ------------------------------------------------------------------------------------------- OpenAI


def test_the_template_makes_the_prompt(talker):
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "One, "}, {"type": "text", "text": "two?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "first", "arguments": '{"a": 5}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "55"},
    ]
    prompt = talker.post("/apply-template", messages=messages).json["prompt"]
    call = '<tool_call>\n{"name": "first", "arguments": {"a": 5}}\n</tool_call>\n'
    assert prompt == f"[system] Be brief.\n[user] One, two?\n[assistant] {call}[tool] 55\n[assistant] "
    assert (
        talker.post("/apply-template", messages=messages, tools=TOOLS)
        .json["prompt"]
        .startswith('Tools: [{"type": "function"')
    )
    assert (
        "Tools" not in talker.post("/apply-template", messages=messages, tools=TOOLS, tool_choice="none").json["prompt"]
    )
    kwargs = {"thinking": True, "messages": 5}
    assert (
        talker.post("/apply-template", messages=messages, chat_template_kwargs=kwargs)
        .json["prompt"]
        .endswith("<think>\n")
    )
    # And the prompt is what the model reads.
    usage = talker.post("/v1/chat/completions", messages=messages, max_tokens=1).json["usage"]
    assert usage["prompt_tokens"] == len(talker.post("/tokenize", content=prompt).json["tokens"])


def test_arguments_of_a_call_keep_to_the_limits_of_bodies(talker):
    """JSON within a string nests and numbers no more than JSON does; what does stays a string."""
    for arguments in ("[" * 100 + "]" * 100, "[" + "0," * (1 << 20) + "0]"):
        call = {"function": {"name": "first", "arguments": arguments}}
        answer = talker.post("/apply-template", messages=[{"role": "assistant", "tool_calls": [call]}])
        assert answer.json["prompt"] == (
            f'[assistant] <tool_call>\n{{"name": "first", "arguments": "{arguments}"}}\n</tool_call>\n[assistant] '
        )


def test_an_answer_that_has_begun(talker):
    messages = [{"role": "user", "content": "One?"}, {"role": "assistant", "content": "It is"}]
    assert talker.post("/apply-template", messages=messages).json["prompt"] == "[user] One?\n[assistant] It is"
    goes_on = {"add_generation_prompt": False, "continue_final_message": True}
    assert talker.post("/apply-template", messages=messages, **goes_on).json["prompt"].endswith("[assistant] It is")
    rendered = talker.post("/apply-template", messages=messages, add_generation_prompt=False).json["prompt"]
    assert rendered == "[user] One?\n[assistant] It is\n"
    count = talker.post("/v1/chat/completions/input_tokens", messages=messages).json
    usage = talker.post("/v1/chat/completions", messages=messages, max_tokens=1).json["usage"]
    assert count == {"input_tokens": usage["prompt_tokens"]}
    fields = {"max_tokens": 6, "temperature": 0, "cache_prompt": False}
    answer = talker.post("/v1/chat/completions", messages=messages, **fields).json["choices"][0]["message"]["content"]
    ids = talker.post("/tokenize", content="[user] One?\n[assistant] It is").json["tokens"]
    assert answer == talker.text(ids, **fields)
    assert claude(talker, messages=messages, **fields).json["content"][0]["text"] == answer


@pytest.mark.parametrize("said, reasoning, content, calls", SAID, ids=SAID_IDS)
def test_what_is_said_is_taken_apart(talker, said, reasoning, content, calls):
    answer = talker.chat(**forced(said))
    (choice,) = answer["choices"]
    message = choice["message"]
    assert answer["object"] == "chat.completion" and message["role"] == "assistant"
    assert message.get("reasoning_content", "") == reasoning and (message["content"] or "") == content
    found = message.get("tool_calls", [])
    assert all(call["type"] == "function" and len(call["id"]) == 9 for call in found)
    check_calls([(call["function"]["name"], call["function"]["arguments"]) for call in found], calls)
    assert choice["finish_reason"] == ("tool_calls" if calls else "stop")


@pytest.mark.parametrize("said, reasoning, content, calls", SAID, ids=SAID_IDS)
def test_a_stream_brings_the_same(talker, said, reasoning, content, calls):
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    *events, last = talker.post("/v1/chat/completions", **body, **forced(said)).events
    assert last["choices"] == [] and last["usage"]["completion_tokens"] > 0
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0] == {"role": "assistant", "content": None} and deltas[-1] == {}
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == reasoning
    assert "".join(delta.get("content") or "" for delta in deltas) == content
    found = []
    for delta in deltas:
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(found)
                found.append([call["function"]["name"], ""])
            found[call["index"]][1] += call["function"]["arguments"]
    check_calls(found, calls)
    reasons = [event["choices"][0]["finish_reason"] for event in events]
    assert reasons == [None] * (len(events) - 1) + ["tool_calls" if calls else "stop"]


def test_reasoning_that_the_prompt_has_begun(talker):
    fields = {"chat_template_kwargs": {"thinking": True}, "max_tokens": 60}
    message = talker.chat(logit_bias={}, **fields)["choices"][0]["message"]
    assert message["reasoning_content"] and message["content"] == ""
    # A form binds what comes after it; here nothing does.
    message = talker.chat(response_format={"type": "json_object"}, **fields)["choices"][0]["message"]
    assert message["reasoning_content"] and message["content"] == ""


def test_channels(harmonist):
    """A template that names channels: what must be a call is written in one, and a form begins with the last of them."""
    answer = harmonist.chat(tools=TOOLS, tool_choice="required", max_tokens=300, seed=3)["choices"][0]
    (call,) = answer["message"]["tool_calls"]
    assert set(json.loads(call["function"]["arguments"])) == {"a", "b"} and answer["finish_reason"] == "tool_calls"
    message = harmonist.chat(response_format={"type": "json_object"}, max_tokens=40)["choices"][0]["message"]
    assert message["content"]  # this model never comes to that channel, so all is text


GEMMA_SAID = """<|channel>thought
Well.
<channel|>I look.<|tool_call>call:first{a:7,b:<|"|>x "y"<|"|>}<tool_call|><|tool_call>call:second{}<tool_call|>"""


def test_gemmas_calls(gemmist):
    """Arguments that are nearly JSON come as JSON, also in a stream, and in Anthropic's form."""
    calls = [("first", {"a": 7, "b": 'x "y"'}), ("second", {})]
    (choice,) = gemmist.chat(**forced(GEMMA_SAID))["choices"]
    message = choice["message"]
    found = [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in message["tool_calls"]]
    assert (message["reasoning_content"], message["content"], found) == ("Well.", "I look.", calls)
    assert choice["finish_reason"] == "tool_calls"
    body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, **forced(GEMMA_SAID)}
    deltas = [event["choices"][0]["delta"] for event in gemmist.post("/v1/chat/completions", **body).events]
    streamed = []
    for call in [call for delta in deltas for call in delta.get("tool_calls", [])]:
        if "id" in call:
            streamed.append([call["function"]["name"], ""])
        streamed[call["index"]][1] += call["function"]["arguments"]
    assert [(name, json.loads(arguments)) for name, arguments in streamed] == calls
    required = gemmist.chat(tools=TOOLS, tool_choice="required", max_tokens=600, seed=3)["choices"][0]
    for call in required["message"]["tool_calls"]:
        assert set(json.loads(call["function"]["arguments"])) == {"a", "b"}


def test_without_tools_nothing_is_a_call(talker):
    message = talker.chat(grammar=only(CALL), max_tokens=200)["choices"][0]["message"]
    assert message["content"] == CALL and "tool_calls" not in message


@pytest.mark.parametrize("seed", range(3))
def test_a_call_that_must_come(talker, seed):
    fields = {"tools": TOOLS, "max_tokens": 1500, "seed": seed}
    for choice, names in (
        ("required", {"first", "second"}),
        ({"type": "function", "function": {"name": "second"}}, {"second"}),
    ):
        answer = talker.chat(tool_choice=choice, **fields)["choices"][0]
        calls = answer["message"]["tool_calls"]
        assert answer["finish_reason"] == "tool_calls" and {call["function"]["name"] for call in calls} <= names
        for call in calls:
            arguments = json.loads(call["function"]["arguments"])
            assert set(arguments) == {"a", "b"} and 0 <= arguments["a"] <= 99 and arguments["b"] in "xy"
    one = talker.chat(tool_choice="required", parallel_tool_calls=False, **fields)["choices"][0]
    assert len(one["message"]["tool_calls"]) == 1


@pytest.mark.parametrize("limit", range(1, 12))
def test_a_call_that_must_come_and_is_cut(talker, limit):
    """What has begun is a call without its end, never text; without a name it is nothing."""
    named = {"type": "function", "function": {"name": "second"}}
    for choice, tools in ((named, TOOLS), ("required", TOOLS[1:]), ("required", TOOLS)):
        fields = {"tools": tools, "tool_choice": choice, "max_tokens": limit, "seed": 3}
        answer = talker.chat(**fields)["choices"][0]
        message = answer["message"]
        assert answer["finish_reason"] == "length" and not message["content"], message
        calls = message.get("tool_calls", [])
        assert len(calls) == 1 if choice == named or len(tools) == 1 else len(calls) <= 1
        assert {call["function"]["name"] for call in calls} <= {tool["function"]["name"] for tool in tools}
        body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True, **fields}
        deltas = [event["choices"][0]["delta"] for event in talker.post("/v1/chat/completions", **body).events]
        names = [call["function"]["name"] for delta in deltas for call in delta.get("tool_calls", []) if "id" in call]
        assert names == [call["function"]["name"] for call in calls]
        assert not any(delta.get("content") for delta in deltas)


def test_log_probabilities(talker):
    whole = talker.chat(max_tokens=8, seed=1, logprobs=True, top_logprobs=2, cache_prompt=False)["choices"][0]
    tokens = whole["logprobs"]["content"]
    assert "".join(bytes(token["bytes"]).decode() for token in tokens) == whole["message"]["content"]
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in tokens)
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "stream": True,
        "max_tokens": 8,
        "seed": 1,
        "cache_prompt": False,
    }
    events = talker.post("/v1/chat/completions", logprobs=True, top_logprobs=2, **body).events
    parts = [event["choices"][0]["logprobs"] for event in events]
    assert [token for part in parts if part for token in part["content"]] == tokens


def test_log_probabilities_of_no_token(talker):
    choice = talker.chat(logprobs=True, top_logprobs=2, max_tokens=0)["choices"][0]
    assert choice["logprobs"] == {"content": []} and choice["finish_reason"] == "length"
    assert talker.chat(max_tokens=0)["choices"][0]["logprobs"] is None


def test_a_role_that_the_template_names(calling):
    answer = calling("{{ 'wizard' }}").post("/apply-template", messages=[{"role": "wizard", "content": "x"}])
    assert answer.status == 200 and "[wizard] x" in answer.json["prompt"]


def test_several_choices_and_limits(talker):
    answer = talker.chat(n=3, max_tokens=5, seed=2)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert talker.chat(max_completion_tokens=4)["usage"]["completion_tokens"] <= 4
    for limit in ({}, {"max_completion_tokens": -1}):
        whole = talker.chat(ignore_eos=True, **limit)  # to the context's end
        assert whole["usage"]["total_tokens"] == 2048 and whole["choices"][0]["finish_reason"] == "length"
    assert talker.chat(max_completion_tokens=0)["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"messages": []}, "'messages': expected a list"),
        ({"messages": [5]}, "'messages', number 1: expected an object with a 'role'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "number 1: 'content' is a string, or a list of parts of type text",
        ),
        ({"messages": [{"role": "assistant", "tool_calls": 5}]}, "'tool_calls': expected"),
        ({"messages": [{"role": "user"}]}, "number 1: expected a 'content'"),
        (
            {"messages": [{"role": "wizard", "content": ""}]},
            "number 1: role 'wizard': expected system, developer, user",
        ),
        ({"messages": [{"role": "", "content": ""}]}, "number 1: role '': expected"),
        ({"logit_bias": {str(token): -100 for token in range(4096)}}, "'logit_bias': it bans every token"),
        ({"tools": 5}, "'tools': expected a list"),
        ({"functions": [{"name": "first"}]}, "'functions': an older form of 'tools'"),
        ({"tools": [{"type": "function"}]}, "'tools', number 1: expected"),
        ({"tool_choice": "required"}, "there are no 'tools'"),
        ({"tools": TOOLS, "tool_choice": "perhaps"}, "'tool_choice': expected"),
        ({"tools": TOOLS, "tool_choice": {"function": {"name": "third"}}}, "names 'third', which is not among"),
        ({"top_logprobs": 3}, "goes with 'logprobs'"),
        ({"chat_template_kwargs": 5}, "'chat_template_kwargs': expected an object"),
        ({"response_format": {"type": "xml"}}, "'response_format': expected"),
        ({"response_format": {"type": "json_object"}, "grammar": "x"}, "exclude each other"),
        ({"add_generation_prompt": True, "continue_final_message": True}, "'continue_final_message' goes on with one"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_is_refused(talker, fields, message):
    body = {"messages": [{"role": "user", "content": "Hello"}], **fields}
    answer = talker.post("/v1/chat/completions", **body)
    assert answer.status == 400 and message in answer.error


def test_a_model_without_a_template(server):
    answer = server.post("/v1/chat/completions", messages=[{"role": "user", "content": "Hello"}])
    assert answer.status == 400 and "template" in answer.error


# ------------------------------------------------------------------------------------------- Anthropic


def claude(server, content="Hello", **fields):
    answer = server.post(
        "/v1/messages", **{"max_tokens": 300, "messages": [{"role": "user", "content": content}], **fields}
    )
    assert answer.status == 200, answer.body
    return answer


def blocks_of(reasoning, content, calls):
    return ["thinking"] * bool(reasoning) + ["text"] * bool(content) + ["tool_use"] * len(calls)


@pytest.mark.parametrize("said, reasoning, content, calls", SAID, ids=SAID_IDS)
def test_messages(talker, said, reasoning, content, calls):
    answer = claude(talker, grammar=only(said), tools=CLAUDE_TOOLS).json
    assert answer["type"] == "message" and answer["role"] == "assistant" and answer["id"].startswith("msg_")
    assert [block["type"] for block in answer["content"]] == blocks_of(reasoning, content, calls)
    for block in answer["content"]:
        assert block.get("text", content) == content and block.get("thinking", reasoning) == reasoning
    found = [(b["name"], json.dumps(b["input"])) for b in answer["content"] if b["type"] == "tool_use"]
    check_calls(found, [(name, None) for name, _ in calls])
    assert answer["stop_reason"] == ("tool_use" if calls else "end_turn") and answer["stop_sequence"] is None


@pytest.mark.parametrize("said, reasoning, content, calls", SAID, ids=SAID_IDS)
def test_messages_streamed(talker, said, reasoning, content, calls):
    text = claude(talker, grammar=only(said), tools=CLAUDE_TOOLS, stream=True).body.decode()
    events = []
    for part in text.removesuffix("\n\n").split("\n\n"):
        kind, data = part.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert kind == "event: " + events[-1]["type"]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [block["type"] for block in blocks] == blocks_of(reasoning, content, calls)
    parts = [""] * len(blocks)
    for event in events:
        if event["type"] == "content_block_delta":
            delta = event["delta"]
            parts[event["index"]] += delta.get("text") or delta.get("thinking") or delta.get("partial_json")
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == len(blocks)
    tools = [(block["name"], part or "{}") for block, part in zip(blocks, parts) if block["type"] == "tool_use"]
    check_calls(tools, calls)
    assert parts[: len(parts) - len(calls)] == [part for part in (reasoning, content) if part]
    assert events[-2]["delta"]["stop_reason"] == ("tool_use" if calls else "end_turn")


def test_messages_of_every_kind_of_block(talker):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "One?"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "See."},
                {"type": "tool_use", "id": "t", "name": "first", "input": {"a": 5}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "55"}]},
                {"type": "text", "text": "And?"},
            ],
        },
    ]
    want = "[system] Be brief.\n[user] One?\n[assistant] See."
    want += '<tool_call>\n{"name": "first", "arguments": {"a": 5}}\n</tool_call>\n'
    want += "[tool] 55\n[user] And?\n[assistant] "
    count = talker.post("/v1/messages/count_tokens", system="Be brief.", messages=messages).json["input_tokens"]
    assert count == len(talker.post("/tokenize", content=want).json["tokens"])
    usage = claude(talker, messages=messages, system=[{"type": "text", "text": "Be brief."}], max_tokens=1).json[
        "usage"
    ]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count and usage["output_tokens"] == 1


def test_messages_end(talker):
    answer = claude(talker, max_tokens=2).json
    assert answer["stop_reason"] in ("max_tokens", "end_turn")
    answer = claude(talker, grammar=only("one STOP two"), stop_sequences=["STOP"]).json
    assert answer["stop_reason"] == "stop_sequence" and answer["stop_sequence"] == "STOP"
    assert answer["content"] == [{"type": "text", "text": "one "}]


def test_messages_tool_choice(talker):
    for choice in ({"type": "any"}, {"type": "tool", "name": "second"}):
        answer = claude(talker, tools=CLAUDE_TOOLS, tool_choice=choice, max_tokens=1500).json
        assert answer["stop_reason"] == "tool_use" and answer["content"][0]["input"]["b"] in "xy"


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"max_tokens": None}, "'max_tokens': expected"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "expected the role user, assistant"),
        ({"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "a list of blocks with a type"),
        ({"system": 5}, "'system': expected"),
        ({"tools": [{"name": ""}]}, "'tools', number 1: expected"),
        ({"tool_choice": {"type": "some"}}, "'tool_choice': expected type"),
        ({"stop_sequences": [5]}, "'stop_sequences': expected strings"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_messages_that_are_refused(talker, fields, message):
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hello"}], **fields}
    answer = talker.post("/v1/messages", **body)
    assert answer.status == 400 and answer.json["type"] == "error"
    assert answer.json["error"]["type"] == "invalid_request_error" and message in answer.json["error"]["message"]
