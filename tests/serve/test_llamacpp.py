"""/completion: llama.cpp's own form. The texts are those of /v1/completions."""

from __future__ import annotations

import json
from unittest.mock import ANY

import pytest

SAME = {"seed": 3, "cache_prompt": False}


def test_text_is_that_of_completions(server):
    answer = server.post("/completion", prompt="The king said", n_predict=12, **SAME).json
    assert answer["content"] == server.text("The king said", max_tokens=12, **SAME)
    assert answer["stop"] is True and answer["stop_type"] == "limit" and answer["stopping_word"] == ""
    assert answer["index"] == 0 and answer["model"] == "fable-4m" and answer["truncated"] is False
    assert answer["tokens_predicted"] == 12 and answer["tokens_cached"] == 0
    timings = answer["timings"]
    assert timings["prompt_n"] == answer["tokens_evaluated"] and timings["predicted_n"] == 12
    assert timings["predicted_per_second"] > 0 and timings["prompt_ms"] > 0


def test_stream_is_the_whole_in_pieces(server):
    fields = {"prompt": "The king said", "n_predict": 12, **SAME}
    parts = server.post("/completion", stream=True, **fields).body.decode().split("\n\n")
    assert parts.pop() == "" and all(part.startswith("data: ") for part in parts)  # and no [DONE]
    events = [json.loads(part[6:]) for part in parts]
    assert "".join(event["content"] for event in events) == server.post("/completion", **fields).json["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True] and len(events) > 5
    assert "timings" in events[-1] and "timings" not in events[0]


def test_how_it_ends(server):
    word = server.post("/completion", prompt="The king said", n_predict=200, stop=[" the"], **SAME).json
    assert word["stop_type"] == "word" and word["stopping_word"] == " the" and " the" not in word["content"]
    eos = server.post("/completion", prompt="The king", n_predict=40, logit_bias={"2": 100}, **SAME).json
    assert eos["stop_type"] == "eos" and eos["tokens_predicted"] == 1
    none = server.post("/completion", prompt="The king", n_predict=0).json
    assert none["content"] == "" and none["stop_type"] == "limit" and none["tokens_predicted"] == 0
    whole = server.post("/completion", prompt="The king", ignore_eos=True).json
    assert whole["tokens_predicted"] + whole["tokens_evaluated"] == 2048


def test_fields_as_clients_send_them(server):
    unused = {"grammar": "", "json_schema": None, "n_probs": 0, "samplers": ["top_k"], "mirostat": 0, "id_slot": -1}
    answer = server.post("/completion", prompt="The king", n_predict=4, **unused, **SAME).json
    assert answer["content"] == server.text("The king", max_tokens=4, **SAME)


def test_biases_are_lists_too(server):
    fields = {"prompt": "The king", "n_predict": 4, **SAME}
    assert server.post("/completion", logit_bias=[[300, 100]], **fields).json == {
        **server.post("/completion", logit_bias={"300": 100}, **fields).json,
        "timings": ANY,
    }
    first = server.post("/tokenize", content=server.post("/completion", **fields).json["content"]).json["tokens"][0]
    banned = server.post("/completion", logit_bias=[[first, False]], **fields).json["content"]
    assert banned == server.post("/completion", logit_bias={str(first): -100}, **fields).json["content"]
    assert server.post("/completion", logit_bias=[], **fields).status == 200
    for wrong in ([5], [[5]], [[5, "x"]], [[5000, 1]], [[1.5, 1]], [["x", 1]], [[5, True]], [[5, 101]], {"5": False}):
        answer = server.post("/completion", logit_bias=wrong, **fields)
        assert answer.status == 400 and "'logit_bias', number 1: expected" in answer.error


def test_several_prompts_make_a_list(server):
    answers = server.post("/completion", prompt=["The king", [1, 5, 7]], n_predict=3, **SAME).json
    assert [answer["index"] for answer in answers] == [0, 1] and answers[1]["tokens_evaluated"] == 3


def test_a_form(server):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    answer = server.post("/completion", prompt="x", json_schema=schema, n_predict=60, **SAME).json
    assert isinstance(json.loads(answer["content"])["a"], int)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({}, "'prompt': expected a string"),
        ({"prompt": "x", "n_predict": -2}, "'n_predict': expected an integer from -1"),
        ({"prompt": "x", "n_probs": 5}, "'n_probs': here log probabilities come by /v1/completions"),
        ({"prompt": "x", "n_predict": 5000}, "the context holds 2048 tokens"),
    ],
)
def test_what_is_refused(server, fields, message):
    answer = server.post("/completion", **fields)
    assert answer.status == 400 and message in answer.error
