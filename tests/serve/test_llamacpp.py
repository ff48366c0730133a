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
    parts = [part for part in parts if not part.startswith(":")]  # a comment, where the prompt takes long
    assert parts.pop() == "" and all(part.startswith("data: ") for part in parts)  # and no [DONE]
    events = [json.loads(part[6:]) for part in parts]
    assert "".join(event["content"] for event in events) == server.post("/completion", **fields).json["content"]
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True] and len(events) > 5
    assert "timings" in events[-1] and "timings" not in events[0]


def test_how_it_ends(server, short_talker):
    word = server.post("/completion", prompt="The king said", n_predict=200, stop=[" the"], **SAME).json
    assert word["stop_type"] == "word" and word["stopping_word"] == " the" and " the" not in word["content"]
    eos = server.post("/completion", prompt="The king", n_predict=40, logit_bias={"2": 100}, **SAME).json
    assert eos["stop_type"] == "eos" and eos["tokens_predicted"] == 1
    none = server.post("/completion", prompt="The king", n_predict=0).json
    assert none["content"] == "" and none["stop_type"] == "limit" and none["tokens_predicted"] == 0
    whole = short_talker.post("/completion", prompt="The king", ignore_eos=True).json
    assert whole["tokens_predicted"] + whole["tokens_evaluated"] == 96


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
    word = server.post("/tokenize", content=" daughters").json["tokens"]
    assert {**server.post("/completion", logit_bias=[[" daughters", 50]], **fields).json, "timings": 0} == {
        **server.post("/completion", logit_bias=[[token, 50] for token in word], **fields).json,
        "timings": 0,
    }
    for wrong in ([5], [[5]], [[5, "x"]], [[5000, 1]], [[1.5, 1]], [[[], 1]], [[5, True]], [[5, 101]], {"5": False}):
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
        ({"prompt": "x", "n_probs": 21}, "'n_probs': expected an integer from 0 to 20"),
        ({"prompt": [5] * 2049}, "the prompt has 2049 tokens and exceeds the available context size, which is 2048"),
    ],
)
def test_what_is_refused(server, fields, message):
    answer = server.post("/completion", **fields)
    assert answer.status == 400 and message in answer.json["error"]["message"]


def test_tokens_and_their_probabilities(server):
    fields = {"prompt": "The king said", "n_predict": 6, "n_probs": 3, "temperature": 0}
    answer = server.post("/completion", return_tokens=True, **fields).json
    probabilities = answer["completion_probabilities"]
    assert [each["id"] for each in probabilities] == answer["tokens"] and len(answer["tokens"]) == 6
    assert all(each["top_logprobs"][0]["id"] == each["id"] and len(each["top_logprobs"]) == 3 for each in probabilities)
    assert server.post("/detokenize", tokens=answer["tokens"]).json["content"] == answer["content"]
    want = server.complete("The king said", max_tokens=6, temperature=0, logprobs=0)["choices"][0]["logprobs"]
    assert [each["logprob"] for each in probabilities] == pytest.approx(want["token_logprobs"], abs=1e-3)
    parts = server.post("/completion", stream=True, **fields).body.decode().split("\n\n")[:-1]
    events = [json.loads(part[6:]) for part in parts if not part.startswith(":")]  # a comment, where it takes long
    assert [token for event in events for token in event["tokens"]] == answer["tokens"]
    assert [each["id"] for event in events for each in event["completion_probabilities"]] == answer["tokens"]
    assert server.post("/completion", prompt="x", n_predict=1).json["tokens"] == []


def test_what_the_end_tells(server, short_talker):
    fields = {"prompt": "The king", "temperature": 0.5, "stop": ["never"], "seed": 5}
    answer = server.post("/completion", n_predict=3, **fields).json
    settings = answer["generation_settings"]
    assert settings["n_predict"] == 3 and settings["seed"] == 5 and settings["temperature"] == 0.5
    assert settings["stop"] == ["never"] and answer["prompt"] == "<s> The king" and answer["truncated"] is False
    assert answer["has_new_line"] == ("\n" in answer["content"])
    assert short_talker.post("/completion", prompt="x", n_predict=5000, ignore_eos=True).json["truncated"] is True


def test_texts_among_token_ids(server):
    ids = server.post("/tokenize", content="The king", add_special=True).json["tokens"]
    more = server.post("/tokenize", content="said").json["tokens"]
    for prompt, want in (
        (["The king", 7, "said", 8, 9], [*ids, 7, *more, 8, 9]),
        ([7, 8, "said", "said"], [7, 8, *more, *more]),
        ({"prompt_string": "The king"}, ids),
    ):
        whole = server.post("/completion", prompt=prompt, n_predict=5, **SAME).json
        assert whole["content"] == server.post("/completion", prompt=want, n_predict=5, **SAME).json["content"]
        assert whole["tokens_evaluated"] == len(want)
    answers = server.post(
        "/completion", prompt=[{"prompt_string": "The king"}, ids, "The king"], n_predict=5, **SAME
    ).json
    assert len({answer["content"] for answer in answers}) == 1
