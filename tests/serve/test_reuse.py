"""What was read before is not read again: within a session, among sessions, beyond them, and behind sliding windows. The texts
stay the same."""

from __future__ import annotations

import concurrent.futures
import itertools
import json
import shutil
import subprocess
import sys

import pytest
from harness import HANG, ROOT, convert_directory

SYSTEM = " ".join(
    f"The {i}th rule of the house is to tell of {i} kings and queens, and of their daughters." for i in range(30)
)


@pytest.fixture(scope="session")
def windowed(tmp_path_factory):
    """The bundled model with a sliding window of 96 positions in all of its layers."""
    source = tmp_path_factory.mktemp("windowed") / "fable-4m"
    shutil.copytree(ROOT / "models/fable-4m", source)
    config = json.loads((source / "config.json").read_text())
    changes = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 96}
    (source / "config.json").write_text(json.dumps({**config, **changes}))
    return convert_directory(source, source.parent / "windowed.bin")


@pytest.fixture(scope="session")
def gemma(tmp_path_factory):
    """Random weights of Gemma 3's form: two layers of three have a window, of 24 positions."""
    source = tmp_path_factory.mktemp("gemma") / "tiny-gemma3"
    subprocess.run([sys.executable, ROOT / "tools/random_hf_model.py", "tiny-gemma3", source], check=True)
    return convert_directory(source, source.parent / "gemma.bin")


@pytest.fixture(scope="session")
def recurrent(tmp_path_factory):
    """The bundled model of whose layers three in four are recurrent."""
    return convert_directory(ROOT / "models/hybrid-6m", tmp_path_factory.mktemp("recurrent") / "hybrid.bin")


def ask(server, prompt, **fields):
    """The text, the prompt's tokens, and how many of these were not read again; all of which the server's counters confirm."""
    read = server.metric("prompt_tokens_total")
    answer = server.complete(prompt, **{"max_tokens": 8, "seed": 7, **fields})
    n, cached = answer["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert server.metric("prompt_tokens_total") - read == n - cached
    return answer["choices"][0]["text"], n, cached


def fresh(server, prompt, **fields):
    """The text of a prompt that is read as a whole."""
    text, _, cached = ask(server, prompt, cache_prompt=False, **fields)
    assert cached == 0
    return text


def test_a_document_is_read_once(start):
    """The second question about it finds its tokens; so does the next turn of a conversation, and one that was edited."""
    server = start("--parallel", 2, "-T", 8192)
    document = " ".join(f"The {i}th king of the land had {i} daughters." for i in range(400))
    _, n, cached = ask(server, document + " How many?")
    assert n > 6000 and cached == 0
    text, n, cached = ask(server, document + " And who was the fairest?")
    assert n - 20 < cached < n
    _, n, cached = ask(server, document + " And who was the fairest?" + text + " And then?")
    assert cached >= n - 8
    edited = document[:-9000] + " But then"
    text, n, cached = ask(server, edited)
    assert n - 16 < cached and text == fresh(server, edited)
    assert ask(server, document + " How many?")[2] > 6000  # what the edit has taken the session's place of is kept


def test_conversations_keep_their_sessions(start):
    """As many as there are sessions, by turns, with a beginning in common."""
    server = start("--parallel", 3, "--set", "serve.cache_ram=0")
    talks = [
        f"You are a teller of fairy tales. Tell of the {animal}" + " again" * 40 for animal in ("fox", "cat", "hare")
    ]
    for turn in range(3):
        for i, talk in enumerate(talks):
            _, n, cached = ask(server, talk, max_tokens=2)
            if turn:
                assert cached > n - 6
            talks[i] += f" and then {turn}"
    assert server.metric("kept_bytes") == 0


def test_more_conversations_than_sessions(start):
    """Each finds what it had, though other conversations have taken the sessions; the text is what it would be anyhow."""
    server = start("--parallel", 2)
    talks = [f"Of the {i}th house. {SYSTEM[: 400 + 60 * i]}" for i in range(7)]
    for turn in range(3):
        for i, talk in enumerate(talks):
            text, n, cached = ask(server, talk)
            assert cached >= n - 30 if turn else cached < 16, (turn, i, n, cached)
            if i % 3 == 0:
                assert text == fresh(server, talk)
            talks[i] += f"{text} and the {turn}th time"
    assert server.metric("kept_bytes") > 0


@pytest.mark.parametrize("together", [False, True], ids=["in turn", "at once"])
def test_a_system_prompt_is_read_once(start, together):
    """Conversations that go on side by side, in sessions of their own, share the reading of what they begin with, even while it
    is being read."""
    server = start("--parallel", 4)
    prompts = [f"{SYSTEM} And now tell of the {animal}." for animal in ("fox", "cat", "hare", "wolf")]
    alone = [fresh(server, prompt, max_tokens=30) for prompt in prompts]
    server = start("--parallel", 4, "--set", "machine.chunk=16")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        asked = [
            pool.submit(server.complete, prompt, max_tokens=30, seed=7) for prompt in prompts[: 4 if together else 1]
        ]
        if not together:
            asked[0].result()
            asked += [pool.submit(server.complete, prompt, max_tokens=30, seed=7) for prompt in prompts[1:]]
        answers = [each.result() for each in asked]
    assert [answer["choices"][0]["text"] for answer in answers] == alone
    usages = [answer["usage"] for answer in answers]
    n = usages[0]["prompt_tokens"]
    read = sum(usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    assert n > 500 and read < n + 4 * 30, usages
    assert server.metric("prompt_tokens_total") == read


def test_windows(start, windowed):
    """Behind a window, too: the same document, a conversation's next turns, an edit in the middle, and other sessions."""
    server = start("--parallel", 2, "-T", 4096, model=windowed)
    document = " ".join(f"The {i}th king of the land had {i} daughters." for i in range(120))
    _, n, cached = ask(server, document + " How many?")
    assert n > 1000 and cached == 0
    talk = document + " And who was the fairest?"
    for turn in range(3):
        text, n, cached = ask(server, talk, max_tokens=100)
        assert cached > n - 30 and text == fresh(server, talk, max_tokens=100), (turn, n, cached)
        talk += f"{text} And the {turn}th time?"
    edited = document[:2000] + " But then"
    text, n, cached = ask(server, edited)
    assert n - 30 < cached < n and text == fresh(server, edited)


def test_kinds_of_layers(start, gemma):
    """Windows in some layers only, on token ids: the same log probabilities."""
    server = start("--parallel", 2, "-T", 512, "--set", "machine.chunk=16", model=gemma)
    prompt = [(7 * i * i + i) % 300 for i in range(300)]
    want = server.complete(prompt, max_tokens=20, temperature=0, logprobs=0, ignore_eos=True)["choices"][0]["logprobs"]
    for others in range(3):
        ask(server, [5 + others] * 300, max_tokens=20)
        answer = server.complete(prompt, max_tokens=20, temperature=0, logprobs=0, ignore_eos=True)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= 284
        assert answer["choices"][0]["logprobs"]["token_logprobs"] == pytest.approx(want["token_logprobs"], abs=1e-4)


def test_recurrent_layers(start, recurrent):
    """A conversation goes on where it ended, or from the last checkpoint before a change; what comes is what a whole reading
    gives."""
    server = start("--parallel", 2, "-T", 512, "--set", "machine.chunk=64", model=recurrent)
    prompt = [3 + (7 * i * i + i) % 300 for i in range(300)]
    fields = {"max_tokens": 20, "temperature": 0, "logprobs": 0, "ignore_eos": True}

    def check(ids, least):
        whole = server.complete(ids, cache_prompt=False, **fields)["choices"][0]["logprobs"]
        server.complete(prompt, **fields)
        answer = server.complete(ids, **fields)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == least
        assert answer["choices"][0]["logprobs"]["token_logprobs"] == pytest.approx(whole["token_logprobs"], abs=1e-4)

    check(prompt, 288)
    check([*prompt[:290], 1, 2, 3], 288)
    check([*prompt[:200], 1, 2, 3], 192)  # where the whole reading came near its end
    drawn = server.post("/completion", prompt=prompt, n_predict=20, temperature=0, return_tokens=True, ignore_eos=True)
    answer = server.complete(prompt + drawn.json["tokens"] + [5, 6], **fields)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 319


def test_checkpoints_of_conversations(start, recurrent):
    """More conversations than sessions, and a recurrent model: each turn reads what is new and at most 64 tokens more, also
    behind a message that has changed, and of answers whose beginning is left out later."""
    exact = ("--kv", "fp32", "--activations", "fp32")
    server = start("--parallel", 2, "-T", 4096, *exact, model=recurrent)
    shared = message(3, range(10, 300))
    talks = [[shared, message(4, range(300 + i, 400 + 3 * i))] for i in range(4)]
    seen = []
    for turn in range(4):
        for i, talk in enumerate(talks):
            if turn == 3:
                talk[3] = message(6, range(900 + i, 990))
            prompt = [*itertools.chain(*talk), 1, 5]
            answer = server.post("/completion", prompt=prompt, n_predict=70, temperature=0, return_tokens=True).json
            new = len(prompt) - max((common(prompt, text) for text in seen), default=0)
            assert answer["timings"]["prompt_n"] <= new + 64, (turn, i, new)
            seen.append(prompt + answer["tokens"][:-1])
            talk += [message(5, answer["tokens"][40 * (i % 2) :]), message(6, range(1000 + turn, 1150 - 40 * i))]
    edited = [*itertools.chain(*talks[0]), 1, 5]
    fields = {"max_tokens": 9, "temperature": 0, "logprobs": 0, "ignore_eos": True}
    found = server.complete(edited, **fields)
    assert found["usage"]["prompt_tokens_details"]["cached_tokens"] > 700
    whole = server.complete(edited, cache_prompt=False, **fields)["choices"][0]["logprobs"]["token_logprobs"]
    assert found["choices"][0]["logprobs"]["token_logprobs"] == pytest.approx(whole, abs=1e-4)


@pytest.mark.parametrize("kind", ["dense", "recurrent"])
def test_a_folder_outlives_the_server(start, yalm, fable, recurrent, tmp_path, kind):
    """What one server has read the next one finds, on the same model and settings; damage is said, and costs time alone."""
    model = {"dense": fable, "recurrent": recurrent}[kind]
    options = ("--parallel", 1, "-T", 2048, "--set", f"serve.cache_dir={tmp_path}")
    prompt = [*message(3, range(10, 500)), *message(4, range(600, 640)), 1, 5]

    def again(*more):
        server = start(*options, *more, model=model)
        text, _, cached = ask(server, prompt, temperature=0)
        assert server.stop() == 0
        return text, cached, server.lines

    first, cached, _ = again()
    assert cached == 0
    text, cached, lines = again()
    assert text == first and cached > len(prompt) - 64
    assert any(" MiB of what was read before come from " in line for line in lines)
    assert again("--kv", "int8")[1] == 0  # in a file of its own
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2 and all(file.suffix == ".pages" for file in files)
    for file in files:
        file.write_bytes(file.read_bytes()[:-9])
        file.with_name(f"{file.name}.{1 << 30}.tmp").write_bytes(
            b"x"
        )  # by a process that was killed: none has that number
    text, cached, lines = again()
    assert (
        text == first and cached < len(prompt) and len(list(tmp_path.iterdir())) == 3
    )  # the one of the int8 cache stays
    assert any("damaged behind page" in line for line in lines), lines
    assert again()[1] > len(prompt) - 64


def test_a_folder_that_cannot_be_used(yalm, fable, tmp_path):
    def refused(*options):
        command = [yalm, fable, "-m", "serve", "--port", "0", *options]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=HANG)
        assert done.returncode == 2, done.stderr
        return done.stderr

    missing = ("--set", f"serve.cache_dir={tmp_path}/none")
    assert f"serve.cache_dir: {tmp_path}/none: No such file or directory: name a folder" in refused(*missing)
    none_kept = ("--set", f"serve.cache_dir={tmp_path}", "--set", "serve.cache_ram=0")
    assert "serve.cache_dir: nothing is kept beyond sessions" in refused(*none_kept)


def message(role, content):
    """Tokens as chat templates have them: control tokens begin and end it."""
    return [1, role, *content, 2]


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def test_what_may_be_kept_is_said_where_anything_is(start):
    for options, said in (
        (("--set", "serve.cache_ram=8"), True),
        (("--set", "serve.cache_ram=0"), False),
        (("--set", "serve.cache_ram=8", "--attention", "sparq"), False),
    ):
        server = start("--parallel", 1, *options)
        assert any("at most 8 MiB of what was read before" in line for line in server.lines) == said, server.lines
        assert any("of what was read" in line for line in server.lines) == said


def test_memory_has_a_limit(start):
    """What was used longest ago goes; the beginning that all have in common stays."""
    server = start("--parallel", 1, "--set", "serve.cache_ram=8")
    for i in range(40):
        ask(server, f"{SYSTEM[:800]} Tell of the {i}th. " + f"{i} and " * 80, max_tokens=2)
        assert server.metric("kept_bytes") <= 8 << 20
    assert server.metric("kept_bytes") > 7 << 20
    assert ask(server, f"{SYSTEM[:800]} Tell of the first. ")[2] > 200
    last, first = [f"{SYSTEM[:800]} Tell of the {i}th. " + f"{i} and " * 80 for i in (39, 0)]
    _, n, cached = ask(server, last)
    assert cached > n - 30
    _, n, cached = ask(server, first)
    assert cached < n - 100


def test_scoring_reads_all(server):
    """Log probabilities of a prompt cannot be had without its evaluation."""
    server.complete(SYSTEM, max_tokens=1)
    answer = server.complete(SYSTEM, max_tokens=0, echo=True, logprobs=0)
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
