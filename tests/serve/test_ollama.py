"""Ollama's routes, llama.cpp's /infill and /props, by plain HTTP."""

from __future__ import annotations

import json

import pytest

PARAMETERS = {"type": "object", "properties": {"b": {"enum": ["x", "y"]}}, "required": ["b"]}
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]
HELLO = [{"role": "user", "content": "Hello"}]
FIXED = {"options": {"seed": 3, "num_predict": 12}, "cache_prompt": False}


def lines(answer):
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/x-ndjson", answer.body
    return [json.loads(line) for line in answer.body.decode().splitlines()]


def test_a_stream_is_the_whole_in_lines(talker):
    whole = talker.post("/api/chat", messages=HELLO, stream=False, **FIXED).json
    *parts, last = lines(talker.post("/api/chat", messages=HELLO, **FIXED))
    assert "".join(part["message"]["content"] for part in parts) == whole["message"]["content"] != ""
    assert (
        whole["message"]["content"]
        == talker.chat(seed=3, max_tokens=12, cache_prompt=False)["choices"][0]["message"]["content"]
    )
    assert [part["done"] for part in parts] == [False] * len(parts) and len(parts) > 5
    assert last["done"] is True and last["done_reason"] == whole["done_reason"] == "length" and last["eval_count"] == 12
    assert last["prompt_eval_count"] == whole["prompt_eval_count"] > 0 and last["eval_duration"] > 0


def test_generate_reads_the_template_unless_raw(talker, server):
    raw = talker.post("/api/generate", prompt="The king", raw=True, stream=False, **FIXED).json["response"]
    assert raw == talker.text("The king", seed=3, max_tokens=12, cache_prompt=False)
    answer = talker.post("/api/generate", prompt="Hello", stream=False, **FIXED).json
    assert (
        answer["response"] == talker.post("/api/chat", messages=HELLO, stream=False, **FIXED).json["message"]["content"]
    )
    without = server.post("/api/generate", prompt="The king", stream=False, **FIXED).json["response"]
    assert without == server.text("The king", seed=3, max_tokens=12, cache_prompt=False)


def test_forms_and_calls(talker):
    schema = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}
    fields = {"stream": False, "options": {"seed": 3, "num_predict": 300}}
    document = talker.post("/api/chat", messages=HELLO, format=schema, **fields).json["message"]["content"]
    assert json.loads(document)["a"] in (1, 2)
    whole = talker.post("/api/chat", messages=HELLO, tools=TOOLS, tool_choice="required", **fields).json["message"]
    assert isinstance(whole["tool_calls"][0]["function"]["arguments"], dict)
    fields["stream"] = True
    streamed = lines(talker.post("/api/chat", messages=HELLO, tools=TOOLS, tool_choice="required", **fields))
    assert (
        next(part["message"]["tool_calls"] for part in streamed if "tool_calls" in part["message"])
        == whole["tool_calls"]
    )
    reply = [*HELLO, {"role": "assistant", "content": "", **whole}, {"role": "tool", "tool_name": "x", "content": "5"}]
    assert talker.post("/api/chat", messages=reply, **FIXED).status == 200


def test_what_a_model_is(talker):
    (model,) = talker.get("/api/tags").json["models"]
    assert model["name"] == talker.get("/v1/models").json["data"][0]["id"] and model["size"] > 0
    shown = talker.post("/api/show", model=model["name"]).json
    assert (
        shown["capabilities"] == ["completion", "tools", "thinking"] and shown["model_info"]["yalm.context_length"] > 0
    )
    (loaded,) = talker.get("/api/ps").json["models"]
    assert loaded == {**model, "expires_at": loaded["expires_at"]}
    assert list(talker.get("/api/nothing").json) == ["error"]  # in Ollama's form
    assert talker.get("/api/version").json == talker.get("/version").json and talker.get("/v1/health").status == 200
    assert talker.post("/api/chat", model=model["name"], messages=[]).json["done_reason"] == "load"
    assert talker.post("/api/generate", model=model["name"]).json["done_reason"] == "load"
    props = talker.get("/props").json
    assert props["total_slots"] == 3 and props["default_generation_settings"]["n_ctx"] == 2048


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"options": 5}, "'options': expected an object"),
        ({"options": {"temperature": -1}}, "'temperature': expected"),
        ({"messages": [{"role": "user", "content": "x", "images": ["AAAA"]}]}, "number 1: 'images'"),
        ({"messages": [{"role": "user", "content": "word " * 5000}]}, "prompt is too long"),
        ({"think": 5}, "'think': expected"),
        ({"options": {"num_predict": "x"}}, "'num_predict': expected"),
    ],
    ids=str,
)
def test_what_is_refused(talker, fields, message):
    answer = talker.post("/api/chat", **{"messages": HELLO, **fields})
    assert answer.status == 400 and list(answer.json) == ["error"] and message in answer.json["error"]


def test_options_that_are_not_followed_are_named(talker):
    options = {"num_ctx": 10**6, "num_gpu": 9, "mirostat": 0, "num_predict": -2}
    answer = talker.post("/api/chat", messages=HELLO, options={**options, "stop": ["e"]}, format="yaml")
    assert answer.headers["Warning"] == '299 yalm "not followed: num_ctx, format, num_gpu"'


def test_infill(server, inserter):
    assert "no tokens for text in the middle" in server.post("/infill", input_prefix="a", input_suffix="b").error
    fields = {"n_predict": 4, "seed": 3, "cache_prompt": False}
    extra = [{"filename": "other.py", "text": "b = 2"}]
    answer = inserter.post(
        "/infill", input_prefix="def f", input_suffix="return", prompt="x", input_extra=extra, **fields
    ).json
    files = "<|file_sep|>other.py\nb = 2\n<|file_sep|>"
    assert (
        answer["prompt"].replace("> ", ">").endswith(files + "<|fim_prefix|>def f<|fim_suffix|>return<|fim_middle|>x")
    )
    text = inserter.post("/infill", input_prefix="def f", input_suffix="return", **fields).json["content"]
    assert text == inserter.text("def f", suffix="return", max_tokens=4, seed=3, cache_prompt=False)
    options = {"num_predict": 4, "seed": 3}
    generated = inserter.post(
        "/api/generate", prompt="def f", suffix="return", options=options, stream=False, cache_prompt=False
    )
    assert text == generated.json["response"]
    spelled = {"input_prefix": "<|fim_middle|>", "input_suffix": "<|fim_prefix|>", "prompt": "<|fim_suffix|>"}
    spelled["input_extra"] = [{"filename": "<|file_sep|>", "text": "<|fim_middle|>"}]
    read = inserter.post("/infill", **spelled, n_predict=0).json
    words = ["<|file_sep|>\n<|fim_middle|>\n", "<|fim_middle|>", "<|fim_prefix|>", "<|fim_suffix|>"]
    texts = [inserter.post("/tokenize", content=word, parse_special=False).json["tokens"] for word in words]
    assert read["tokens_evaluated"] == sum(map(len, texts)) + 6  # bos, and what yalm means as marks
    assert "insert" in inserter.post("/api/show", model="x").json["capabilities"]
    many = inserter.post("/infill", input_extra=[{"text": "the king said " * 999}] * 999)
    assert many.status == 400 and "exceeds the available context size" in many.json["error"]["message"]
    assert "'input_extra'" in inserter.post("/infill", input_prefix="a", input_extra=[{"text": 5}]).error
