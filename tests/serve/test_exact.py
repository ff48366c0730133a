"""With serve.exact=on a request's text and probabilities are those of a server that does nothing else and reads all anew."""

from __future__ import annotations

import concurrent.futures
import json
import random
import subprocess

import pytest
from harness import HANG
from test_reuse import gemma, recurrent, windowed  # noqa: F401

ON = ("--set", "serve.exact=on")


def make_prompt(chance, told):
    """A beginning that others share, and an end of its own; or a conversation that goes on, its text cut or not."""
    if told and chance.random() < 0.5:
        text = chance.choice(told)
        return text[: chance.randrange(len(text) // 2, len(text) + 1)] + chance.choice(
            (" And then", " But the king", ".")
        )
    house = "".join(f" The {i}th king had {i} daughters." for i in range(chance.choice((2, 9, 20))))
    return f"Once upon a time.{house} Tell me of the {chance.choice(('fox', 'cat', 'hare'))}"


def ask(server, prompt, chance, ids, alone):
    """Text and log probabilities; or None, where the client has gone before the end. ids: of a model without a tokenizer."""
    fields = {"prompt": [ord(letter) * 3 % 300 for letter in prompt] if ids else prompt, "logprobs": 0 if ids else 5}
    fields |= {"seed": chance.randrange(9), "temperature": chance.choice((0, 0.8, 1.5))}
    fields["max_tokens"] = chance.choice((1, 4, 12))
    if not alone and chance.random() < 0.2:
        connection = server.connect()
        connection.request("POST", "/v1/completions", json.dumps({**fields, "stream": True, "max_tokens": 200}))
        if chance.random() < 0.5:
            connection.getresponse().read(20)
        connection.close()
        return None
    choice = server.complete(**fields, cache_prompt=not alone)["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"], choice["logprobs"]["top_logprobs"]


def talk(server, beginning, ids):
    """One client's requests: what makes them anew, and what came."""
    chance, told, asked = random.Random(beginning), [], []
    for turn in range(6):
        prompt, draws = make_prompt(chance, told), (beginning, turn)
        answer = ask(server, prompt, random.Random(str(draws)), ids, alone=False)
        if answer:
            told.append(prompt + (answer[0] or " and so"))
            asked.append((prompt, draws, answer))
    return asked


@pytest.mark.parametrize("shape", ["dense", "windowed", "gemma", "recurrent"])
def test_whatever_else_goes_on(start, shape, request):
    ids = shape in ("gemma", "recurrent")
    model = {} if shape == "dense" else {"model": request.getfixturevalue(shape)}
    server = start(*ON, "--parallel", 3, "-T", 2048, "--set", "serve.cache_ram=8", **model)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        asked = [one for talked in pool.map(lambda i: talk(server, i, ids), range(5)) for one in talked]
    assert len(asked) > 12 and server.metric("prompt_tokens_total") > 0
    quiet = start(*ON, "--set", "machine.chunk=48", "--parallel", 1, "-T", 2048, "--speculate", "off", "-t", 1, **model)
    for prompt, draws, answer in asked:
        assert ask(quiet, prompt, random.Random(str(draws)), ids, alone=True) == answer, (prompt, draws)


def test_prompts_are_kept_and_answers_read_again(start):
    server = start(*ON, "--parallel", 2)
    prompt = "Once upon a time there was a king, and" + " a daughter" * 30
    answer = server.complete(prompt, max_tokens=40, ignore_eos=True)
    n, text = answer["usage"]["prompt_tokens"], answer["choices"][0]["text"]
    again = server.complete(prompt + text + " And then", max_tokens=1)["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] == n - 1
    once_more = server.complete(prompt + text + " And then", max_tokens=1)["usage"]
    assert once_more["prompt_tokens_details"]["cached_tokens"] == again["prompt_tokens"] - 1


def test_a_folder_has_them_apart(start, tmp_path):
    """What was read without exact bits is not gone on from; of what was, the length of pieces does not matter."""
    prompt = "Once upon a time there was a king, and" + " a daughter" * 60

    def cached(*options):
        server = start("--parallel", 1, "--set", f"serve.cache_dir={tmp_path}", *options)
        usage = server.complete(prompt, max_tokens=1)["usage"]
        assert server.stop() == 0
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached() == 0 and cached() > 60
    assert cached(*ON) == 0 and cached(*ON) > 60
    assert cached(*ON, "--set", "machine.chunk=32") > 60


def test_an_echo_changes_nothing(start):
    server = start(*ON, "--parallel", 1)
    fields = {"prompt": "The king and the fox", "max_tokens": 6, "logprobs": 3, "temperature": 0}
    told, echoed = (server.complete(**fields, **more)["choices"][0]["logprobs"] for more in ({}, {"echo": True}))
    assert echoed["token_logprobs"][-6:] == told["token_logprobs"] and len(echoed["tokens"]) > 6


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((*ON, "--attention", "sparq"), "exact bits: found attention sparq, expected dense"),
        (("--set", "serve.exact=yes"), "serve.exact"),
    ],
)
def test_what_has_no_exact_bits_is_refused(yalm, fable, options, line):
    command = [str(yalm), str(fable), "-m", "serve", "--port", "0", *options]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2 and line in done.stderr, done.stderr
