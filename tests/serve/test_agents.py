"""What agents send and wait for: blocks that a model cannot read, thinking, fields that are not followed, long prompts."""

from __future__ import annotations

import json

import pytest

CALL = {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": "x"}}


def messages_prompt(server, messages, **fields):
    """What the model reads of Anthropic's messages: the count of tokens alone tells, so the prompt comes by /completion."""
    answer = server.post("/v1/messages", max_tokens=1, messages=messages, **fields)
    assert answer.status == 200, answer.body
    return answer


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}],
        [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}}],
        [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "image", "source": {}}]}],
        [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "look"}]}],
        [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "x"}}],
        [{"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]}],
        [{"type": "container_upload", "file_id": "f"}, {"type": "text", "text": "Hello"}],
    ],
    ids=lambda content: content[0]["type"],
)
def test_a_conversation_goes_on_with_what_cannot_be_read(talker, content):
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [CALL]}]
    messages += [{"role": "user", "content": content}, {"role": "system", "content": "Be brief."}]
    messages_prompt(talker, messages)


def test_tools_of_other_servers_are_left_out_and_named(talker):
    tools = [
        {"type": "web_search_20250305", "name": "web_search"},
        {"name": "look", "input_schema": {"type": "object"}},
    ]
    answer = messages_prompt(talker, [{"role": "user", "content": "a"}], tools=tools)
    assert answer.headers["Warning"] == '299 yalm "not followed: tools: web_search_20250305"'


def test_fields_that_are_not_followed_are_named(talker):
    hello = [{"role": "user", "content": "Hello"}]
    fields = {
        "mirostat": 2,
        "dry_multiplier": 0,
        "best_of": 3,
        "user": "me",
        "typical_p": None,
    }
    answer = talker.post("/v1/chat/completions", messages=hello, max_tokens=1, **fields)
    assert answer.headers["Warning"] == '299 yalm "not followed: mirostat, best_of"'
    assert talker.post("/v1/chat/completions", messages=hello, max_tokens=1).headers["Warning"] is None
    hostile = talker.ask("POST", "/v1/completions", json.dumps({"prompt": "a", 'x"\r\nSet-Cookie: y': 1}))
    assert hostile.status == 200 and hostile.headers["Warning"].endswith('x???Set-Cookie: y"')
    assert hostile.headers["Set-Cookie"] is None


def test_thinking_switches_the_templates_variable(talker):
    def prompt(**fields):
        return talker.post("/apply-template", messages=[{"role": "user", "content": "Hi"}], **fields).json["prompt"]

    assert "<think>" not in prompt() and "<think>" in prompt(reasoning_effort="high")
    assert "<think>" in prompt(thinking={"type": "enabled"}) and "<think>" in prompt(think=True)
    assert "<think>" not in prompt(reasoning_effort="none")
    assert "<think>" not in prompt(think=True, chat_template_kwargs={"thinking": False})


def test_a_stream_begins_before_the_prompt_is_read(seeded_talker):
    whole = seeded_talker.post("/v1/messages", messages=[{"role": "user", "content": "a"}], max_tokens=2, stream=True)
    first = whole.body.decode().split("\n\n")[0]
    assert (
        first.startswith("event: message_start")
        and json.loads(first.split("data: ")[1])["message"]["usage"]["input_tokens"] > 0
    )
    answer = seeded_talker.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "a"}], max_tokens=2, stream=True
    )
    assert answer.events[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}


def test_an_answer_goes_on_where_the_last_text_ends(talker):
    def prompt(content, **more):
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content, **more}]
        fields = {"messages": messages, "continue_final_message": True, "add_generation_prompt": False}
        return talker.post("/apply-template", **fields)

    assert prompt("It is ").json["prompt"] == "[user] Hi\n[assistant] It is "
    assert prompt(" Hi").json["prompt"] == "[user] Hi\n[assistant]  Hi"


def test_penalties_count_what_is_generated(server):
    """A prompt's token is not penalised by OpenAI's penalties, and is by llama.cpp's."""
    fields = {"prompt": "The king said the king", "seed": 3, "temperature": 0, "cache_prompt": False}
    plain = server.complete(**fields, max_tokens=1)["choices"][0]["text"]
    assert server.complete(**fields, max_tokens=1, presence_penalty=100)["choices"][0]["text"] == plain
    ids = server.post("/tokenize", content=fields["prompt"] + plain).json["tokens"]
    fields["prompt"] = [*ids, ids[-1]]  # the likeliest token is among these
    banned = server.post(
        "/completion", **fields, n_predict=8, presence_penalty=100, repeat_last_n=-1, return_tokens=True
    )
    assert not set(banned.json["tokens"]) & set(ids)
    tokens = server.complete(**fields, max_tokens=8, presence_penalty=100, logprobs=0)["choices"][0]["logprobs"][
        "tokens"
    ]
    assert len(set(tokens)) == len(tokens)


def test_a_client_that_waits_hears_of_it(start):
    """The second request waits for the only session: its stream says so meanwhile. Then the first one leaves."""
    busy = start("--parallel", 1)
    fields = {"stream": True, "prompt": "The king", "max_tokens": 2000, "ignore_eos": True, "n": 16}
    first, second = busy.connect(), busy.connect()
    first.request("POST", "/v1/completions", json.dumps(fields))
    first.getresponse().readline()
    second.request("POST", "/v1/completions", json.dumps({"stream": True, "prompt": "a", "max_tokens": 1}))
    response = second.getresponse()
    heard = response.readline()
    first.close()
    assert heard.startswith(b": ") and heard.endswith(b" tokens read\n")
    assert b"data: [DONE]" in response.read()
    second.close()


def test_anthropics_form_of_an_answer(talker):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    fields = {"max_tokens": 40, "temperature": 0, "messages": [{"role": "user", "content": "x"}]}
    answer = talker.post("/v1/messages", output_config={"format": {"type": "json_schema", "schema": schema}}, **fields)
    assert answer.status == 200 and isinstance(json.loads(answer.json["content"][0]["text"])["a"], bool)
    for bad in ({"output_config": 3}, {"output_config": {"format": {"type": "yaml"}}}, {"thinking": 3}):
        answer = talker.post("/v1/messages", **bad, **fields)
        assert answer.status == 400 and f"'{next(iter(bad))}'" in answer.json["error"]["message"]
