"""/v1/completions and the tokenizer's routes: what they give, and that it is what the program itself gives."""

from __future__ import annotations

import math
import re
import subprocess

import pytest
from harness import HANG


@pytest.fixture(scope="module")
def model(yalm, fable):
    def run(*options, stdin=None):
        done = subprocess.run(
            [str(yalm), str(fable), *map(str, options)], input=stdin, capture_output=True, text=True, timeout=HANG
        )
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_text_is_the_programs(server, model):
    for seed in (1, 2):
        want = model("-i", "Once upon a time", "-n", 30, "--seed", seed, "--no-echo", "-q").stdout
        assert server.text("Once upon a time", max_tokens=30, seed=seed, cache_prompt=False) == want


def test_answer_has_the_apis_form(server):
    answer = server.complete("The king", max_tokens=3)
    assert answer["object"] == "text_completion" and re.match("cmpl-[0-9a-f]{24}$", answer["id"])
    assert answer["model"] == "fable-4m" and answer["created"] > 1.6e9
    (choice,) = answer["choices"]
    assert set(choice) == {"text", "index", "logprobs", "finish_reason"} and choice["finish_reason"] == "length"
    usage = answer["usage"]
    assert usage["completion_tokens"] == 3 and usage["total_tokens"] == usage["prompt_tokens"] + 3


def test_prompts_of_every_kind(server):
    ids = server.post("/tokenize", content="The king", add_special=True).json["tokens"]
    fields = {"max_tokens": 8, "temperature": 0, "cache_prompt": False}
    text = server.text("The king", **fields)
    assert server.text(ids, **fields) == text
    for prompts in (["The king", "Once upon"], [ids, ids]):
        choices = server.complete(prompts, **fields)["choices"]
        assert [choice["index"] for choice in choices] == [0, 1] and choices[0]["text"] == text


def test_how_much_is_written(server):
    assert server.complete("Once", ignore_eos=True)["usage"]["completion_tokens"] == 16
    assert server.complete("Once", ignore_eos=True, max_tokens=-1)["usage"]["total_tokens"] == 2048
    assert server.complete("Once", max_tokens=0)["choices"][0] == {
        "text": "",
        "index": 0,
        "logprobs": None,
        "finish_reason": "length",
    }


def test_several_choices(server):
    choices = server.complete(["The king", "Once"], n=3, max_tokens=10, seed=5, cache_prompt=False)["choices"]
    assert [choice["index"] for choice in choices] == list(range(6))
    assert len({choice["text"] for choice in choices[:3]}) == 3
    assert choices[0]["text"] == server.text("The king", max_tokens=10, seed=5, cache_prompt=False)


def test_stream_is_the_whole_in_pieces(server):
    fields = {"prompt": ["Once upon a time", "The king"], "n": 2, "max_tokens": 25, "seed": 3, "cache_prompt": False}
    whole = server.complete(**fields, logprobs=2)
    answer = server.post("/v1/completions", **fields, logprobs=2, stream=True, stream_options={"include_usage": True})
    assert answer.headers["Content-Type"] == "text/event-stream"
    *events, last = answer.events
    assert last["choices"] == [] and last["usage"] == whole["usage"]
    assert all(event["usage"] is None and len(event["choices"]) == 1 for event in events)
    assert len({event["id"] for event in events}) == 1
    for want in whole["choices"]:
        parts = [event["choices"][0] for event in events if event["choices"][0]["index"] == want["index"]]
        assert "".join(part["text"] for part in parts) == want["text"] and len(parts) > 10
        assert [part["finish_reason"] for part in parts] == [None] * (len(parts) - 1) + [want["finish_reason"]]
        for key, values in want["logprobs"].items():
            assert [value for part in parts for value in part["logprobs"][key]] == values
    assert "usage" not in server.post("/v1/completions", prompt="x", stream=True, max_tokens=2).events[-1]


def test_stop_strings(server):
    fields = {"max_tokens": 60, "seed": 4, "cache_prompt": False}
    text = server.text("Once upon a time", **fields)
    stop = text[20:26]
    found = server.complete("Once upon a time", stop=[stop, "never there"], **fields)["choices"][0]
    assert found["text"] == text[: text.index(stop)] and found["finish_reason"] == "stop"
    events = server.post("/v1/completions", prompt="Once upon a time", stop=stop, stream=True, **fields).events
    assert "".join(event["choices"][0]["text"] for event in events) == found["text"]
    # What might have begun a stop string, and did not, comes in the end.
    held = server.text("Once upon a time", stop=text[-1] + "\x01", **fields)
    assert held == text


def test_end_of_text(server):
    (eos,) = server.post("/tokenize", content="</s>").json["tokens"]
    answer = server.complete("The end.", logit_bias={str(eos): 100}, max_tokens=9)
    assert answer["choices"][0]["finish_reason"] == "stop" and answer["choices"][0]["text"] == ""
    assert answer["usage"]["completion_tokens"] == 1
    answer = server.complete("The end.", logit_bias={str(eos): 100}, max_tokens=9, ignore_eos=True)
    assert answer["choices"][0]["finish_reason"] == "length" and answer["usage"]["completion_tokens"] == 9


def test_biases_and_penalties_reach_the_sampler(server):
    fields = {"max_tokens": 12, "temperature": 0, "cache_prompt": False}
    first = server.text("The fox", **fields)
    token = server.post("/tokenize", content=first.split()[0]).json["tokens"][-1]
    assert server.text("The fox", logit_bias={str(token): -100}, **fields) != first
    loop = server.text("and and and and and and", repeat_penalty=50, **fields)
    assert loop != server.text("and and and and and and", **fields) and " and" not in loop


def test_echo_scores_the_prompt(server, model, tmp_path):
    """Log probabilities of a text's own tokens: their sum is the perplexity mode's."""
    text = "Once upon a time there was a king who had three daughters, and the youngest was the fairest of all."
    (tmp_path / "text").write_text(text)
    said = model("-m", "perplexity", "-f", tmp_path / "text", "--ctx", 512).stdout
    nll = float(re.search(r"nll: ([\d.]+)", said)[1])
    answer = server.complete(text, max_tokens=0, echo=True, logprobs=3)
    (choice,) = answer["choices"]
    scores = choice["logprobs"]
    assert choice["text"] == text and scores["token_logprobs"][0] is None and scores["top_logprobs"][0] is None
    assert len(scores["tokens"]) == answer["usage"]["prompt_tokens"] and answer["usage"]["completion_tokens"] == 0
    assert abs(sum(scores["token_logprobs"][1:]) + nll) < 1e-3 * nll
    for top in scores["top_logprobs"][1:]:
        assert len(top) == 3 and sorted(top.values(), reverse=True) == list(top.values())
    assert "".join(scores["tokens"][1:]).lstrip() == text
    # Again with one token more, as harnesses ask: the same scores.
    more = server.complete(text, max_tokens=1, temperature=0, echo=True, logprobs=3)["choices"][0]["logprobs"]
    assert more["token_logprobs"][:-1] == scores["token_logprobs"]
    assert more["token_logprobs"][-1] == max(more["top_logprobs"][-1].values())


def test_log_probabilities_are_of_all_tokens(start):
    """Also where the second answer goes on from what the first has read, by whatever instruction set: the same bits."""
    server = start("--set", "serve.exact=on")
    answer = server.complete("The king", max_tokens=1, logprobs=20, temperature=0)["choices"][0]["logprobs"]
    top = list(answer["top_logprobs"][0].values())
    assert answer["token_logprobs"] == top[:1] and sum(map(math.exp, top)) < 1
    # Sampling's changes do not show.
    token = next(iter(answer["top_logprobs"][0]))
    (banned,) = server.post("/tokenize", content=token).json["tokens"][-1:]
    again = server.complete("The king", max_tokens=1, logprobs=20, temperature=0, logit_bias={str(banned): -100})
    assert again["choices"][0]["logprobs"]["top_logprobs"] == answer["top_logprobs"]


def test_log_probabilities_without_alternatives(server):
    choice = server.complete("The king", max_tokens=2, logprobs=0, echo=True)["choices"][0]["logprobs"]
    assert choice["token_logprobs"][0] is None and all(value < 0 for value in choice["token_logprobs"][1:])


def test_tokenize_and_back(server):
    for text in ("Once upon a time", "é漢字🎉 \n\t x", "<s> is text"):
        ids = server.post("/tokenize", content=text, parse_special=False).json["tokens"]
        assert server.post("/detokenize", tokens=ids).json["content"].lstrip() == text.lstrip()
    plain = server.post("/tokenize", content="Once").json["tokens"]
    assert server.post("/tokenize", content="Once", add_special=True).json["tokens"] == [1, *plain]
    pieces = server.post("/tokenize", content="Once", with_pieces=True).json["tokens"]
    assert [piece["id"] for piece in pieces] == plain and all(isinstance(piece["piece"], str) for piece in pieces)
    pieces = server.post("/tokenize", content="🎉", with_pieces=True).json["tokens"][-4:]
    assert bytes(byte for piece in pieces for byte in piece["piece"]).decode() == "🎉"
    assert server.post("/tokenize").status == 400
    assert server.post("/detokenize", tokens=[4096]).status == 400


def test_models(server):
    (facts,) = server.get("/v1/models").json["data"]
    assert facts["id"] == "fable-4m" and facts["object"] == "model" and facts["meta"]["n_vocab"] == 4096
    assert server.get("/v1/models/fable-4m").json == server.get("/models/fable-4m").json == facts
    answer = server.get("/v1/models/gpt%2F5")
    assert answer.status == 404 and answer.error == "there is one model here, 'fable-4m'; found 'gpt/5'"
    assert answer.json["error"]["code"] == "model_not_found"


def test_embeddings_are_refused_by_name(server):
    answer = server.post("/v1/embeddings", input="x")
    assert answer.status == 501 and "/v1/embeddings is not offered" in answer.error
