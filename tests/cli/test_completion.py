"""Mode completion: what it writes where, when it stops, and what it says at the end."""

import json
import re
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parents[2] / "models" / "fable-4m"
GREEDY = json.loads((MODEL / "reference" / "greedy.json").read_text())["prompts"]
PROMPT = "Once upon a time"


def greedy(program, *args, **more):
    return program.ok("-i", PROMPT, "--temp", "0", "-q", *args, **more)


@pytest.mark.parametrize("case", GREEDY, ids=lambda case: case["prompt"][:20])
def test_greedy_text_is_the_reference(program, case):
    """Near ties may fall either way in another arithmetic: up to there the text must be the same."""
    safe = next((i for i, gap in enumerate(case["gaps"]) if gap < 0.002), len(case["gaps"]))
    ids = " ".join(map(str, case["prompt_ids"] + case["ids"][:safe]))
    expected = program.ok("--detokenize", "-i", ids)
    assert safe > 5
    assert program.ok("-i", case["prompt"], "--temp", "0", "-n", safe, "-q", "--kv", "fp32") == expected


def test_stdout_is_the_text_and_nothing_else(program):
    text = greedy(program, "-n", 40)
    assert text.startswith(PROMPT.encode()) and not text.endswith(b"\n")
    assert greedy(program, "-n", 40, "--no-echo") == text[len(PROMPT) :]
    assert greedy(program, "-n", 0) == PROMPT.encode()


def test_quiet_says_nothing(program):
    assert program("-i", PROMPT, "-n", 5, "-q").stderr == b""


def test_memory_is_said_first_and_statistics_last(program):
    lines = program("-i", PROMPT, "-n", 20, "--seed", 5, "--set", "text.ignore_eos=on").stderr.decode().splitlines()
    assert re.match(r"memory: weights 8\.4 MB, cache \S+ \S+, scratch \S+ \S+; \S+ \S+ available$", lines[0])
    assert re.match(r"cpu: \d+ threads?, \w+, context 24, cache fp16$", lines[1])
    assert re.match(r"prefill: 5 tokens in \d+\.\d+ s, \d+\.\d tok/s$", lines[2])
    assert re.match(r"decode: 19 tokens in \d+\.\d+ s, \d+\.\d tok/s, \d+\.\d+ GB/s$", lines[3])
    assert re.match(r"speculation: \d+ of \d+ guessed tokens came; 19 tokens took \d+ evaluations$", lines[4])
    assert re.match(r"generated: 20 tokens, the first after \d+\.\d+ s; seed 5; stopped by: limit$", lines[5])
    assert re.match(r"last logits: [0-9a-f]{16}$", lines[6])
    assert len(lines) == 7


def test_memory_is_measured_where_more_is_asked_for(program):
    words = program("-i", PROMPT, "-n", 20, "--seed", 5, "-v").stderr.decode()
    assert re.search(
        r"^decode: .* tok/s, \d+\.\d+ GB/s "
        r"\((\d+ % of the \d+\.\d+ GB/s that this machine reads|from the caches: memory reads \d+\.\d+ GB/s)\)$",
        words,
        flags=re.M,
    )


def last_logits(done):
    return re.search(rb"last logits: (\w+)", done.stderr).group(1)


def test_seed_repeats_the_text(program):
    one, two = (program("-i", PROMPT, "-n", 30, "--seed", 11) for _ in range(2))
    assert one.stdout == two.stdout and last_logits(one) == last_logits(two)
    assert program.ok("-i", PROMPT, "-n", 30, "--seed", 12, "-q") != one.stdout


def test_a_random_seed_is_said(program):
    one = program("-i", PROMPT, "-n", 20, "--temp", "1.5")
    seed = re.search(rb"seed (\d+)", one.stderr).group(1).decode()
    assert program.ok("-i", PROMPT, "-n", 20, "--temp", "1.5", "--seed", seed, "-q") == one.stdout
    assert program.ok("-i", PROMPT, "-n", 20, "--temp", "1.5", "-q") != one.stdout


def test_stop_string_across_tokens(program):
    text = greedy(program, "-n", 40).decode()
    rest = text[len(PROMPT) :]
    for stop in (rest[7:12], rest[3:20], rest[-6:]):
        assert greedy(program, "-n", 40, "--stop", stop).decode() == PROMPT + rest[: rest.index(stop)]
    done = program("-i", PROMPT, "--temp", "0", "-n", 40, "--stop", rest[3:20])
    assert b"stopped by: stop string" in done.stderr


def test_the_first_of_several_stop_strings_wins(program):
    rest = greedy(program, "-n", 40, "--no-echo").decode()
    assert (
        greedy(program, "-n", 40, "--no-echo", "--stop", rest[25:30], "-r", rest[10:14]).decode()
        == rest[: rest.index(rest[10:14])]
    )


def test_text_held_back_comes_out_where_nothing_matched(program):
    text = greedy(program, "-n", 40)
    for stop in (text[-5:].decode() + "~", text[20:28].decode() + "~"):
        assert greedy(program, "-n", 40, "--stop", stop) == text


def test_stop_string_in_the_prompt_does_not_stop(program):
    assert greedy(program, "-n", 10, "--stop", PROMPT) == greedy(program, "-n", 10)


def test_input_from_file_stdin_and_ids(program, tmp_path):
    expected = greedy(program, "-n", 10)
    (tmp_path / "prompt").write_text(PROMPT)
    ids = program.ok("-m", "tokenize", "-i", PROMPT)
    (tmp_path / "ids").write_bytes(ids)
    rest = ("--temp", "0", "-n", 10, "-q")
    assert program.ok("-f", tmp_path / "prompt", *rest) == expected
    assert program.ok("-f", "-", *rest, stdin=PROMPT.encode()) == expected
    assert program.ok("-", *rest, stdin=PROMPT.encode()) == expected
    assert program.ok("-i", "-", *rest, stdin=PROMPT.encode()) == expected
    assert program.ok("--tokens", tmp_path / "ids", *rest) == expected
    assert program.ok("--tokens", "-", *rest, stdin=ids) == expected


def test_any_bytes_are_a_prompt(program):
    prompt = b"a\0b\xff\xfe caf\xc3\xa9 \xe2\x82"
    assert program.ok("-f", "-", "-n", 0, "-q", stdin=prompt) == prompt
    assert program.ok("-f", "-", "-n", 4, "--temp", "0", "-q", stdin=prompt).startswith(prompt)


def test_empty_prompt_begins_a_text(program):
    text = program.ok("-i", "", "-n", 8, "--temp", "0", "-q")
    assert text and not text.startswith(b" ")
    assert "the prompt has no tokens" in program.fails(2, "-i", "", "--set", "text.bos=off")


def test_special_tokens_only_where_allowed(program):
    plain = program.ok("-m", "tokenize", "-i", "<s>x</s>").split()
    special = program.ok(
        "-m", "tokenize", "-i", "<s>x</s>", "--set", "text.special=on", "--set", "text.bos=off"
    ).split()
    assert plain[0] == b"1" and b"2" not in plain
    assert special[0] == b"1" and special[-1] == b"2"


def test_eos_ends_the_text(program):
    biased = ("-i", PROMPT, "--temp", "0", "-n", 5, "--set", "sampling.logit_bias=2+1000")
    done = program(*biased)
    assert done.stdout == PROMPT.encode() and b"stopped by: end of text" in done.stderr
    assert b"generated: 1 tokens" in done.stderr
    assert b"stopped by: limit" in program(*biased, "--set", "text.ignore_eos=on").stderr


def test_logit_bias_bans(program):
    first = program.ok("-i", PROMPT, "-n", 1, "--temp", "0", "-q", "--no-echo")
    token = GREEDY[0]["ids"][0]
    assert GREEDY[0]["prompt"] == PROMPT
    assert (
        program.ok("-i", PROMPT, "-n", 1, "--temp", "0", "-q", "--no-echo", "--set", f"sampling.logit_bias={token}-inf")
        != first
    )
    assert "4096" in program.fails(2, "-i", PROMPT, "--set", "sampling.logit_bias=4096+1")


def test_repeat_penalty_changes_the_text(program):
    assert greedy(program, "-n", 60, "--repeat-penalty", "1.5") != greedy(program, "-n", 60)


def test_prompt_longer_than_the_context(program):
    prompt = "the king " * 30
    n = len(program.ok("-m", "tokenize", "-i", prompt).split())
    line = program.fails(2, "-i", prompt, "-T", 20, "-n", 5)
    assert f"{n} tokens, and 20 fit" in line
    cut = program("-i", prompt, "-T", 20, "-n", 5, "--set", "text.truncate=on")
    assert cut.returncode == 0 and f"first {n - 15} tokens are cut off, its last 14 are kept".encode() in cut.stderr
    assert b"generated: 5 tokens" in cut.stderr
    long = ("word " * 3000).encode()
    assert re.search(r"\d+ tokens, and 2048 fit", program.fails(2, "-f", "-", stdin=long))


def test_the_default_length_ends_with_the_context(program):
    done = program("-i", PROMPT, "-T", 30, "--set", "text.ignore_eos=on")
    assert b"generated: 26 tokens" in done.stderr and b"stopped by: full context" in done.stderr


def test_an_asked_length_goes_on_past_the_context(program):
    done = program("-i", PROMPT, "-T", 30, "-n", 100, "--set", "text.ignore_eos=on", "--seed", 1)
    assert done.returncode == 0 and b"generated: 100 tokens" in done.stderr
    assert b"past the context of 30 positions" in done.stderr and b"(endless)" in done.stderr


@pytest.mark.parametrize("kv", ["fp16", "fp32", "int8"])
@pytest.mark.parametrize("isa", ["scalar", "auto"])
def test_cache_types_and_instruction_sets(program, kv, isa):
    text = greedy(
        program, "-n", 12, "--kv", kv, "--set", f"machine.isa={isa}", "--threads", 1, "--set", "machine.chunk=3"
    )
    assert text == greedy(program, "-n", 12)


def test_bad_ids(program, tmp_path):
    (tmp_path / "ids").write_text("1 5 4096\n")
    assert "token 2 is 4096, expected an id below 4096" in program.fails(2, "--tokens", tmp_path / "ids")
    (tmp_path / "ids").write_text("1 5 x9\n")
    assert "byte 4: expected token ids with blanks between them, found 'x9" in program.fails(
        2, "--tokens", tmp_path / "ids"
    )
    (tmp_path / "ids").write_text("1 -5\n")
    assert "byte 2" in program.fails(2, "--tokens", tmp_path / "ids")
    (tmp_path / "ids").write_text("1 99999999999999999999999\n")
    assert "expected an id below 4096" in program.fails(2, "--tokens", tmp_path / "ids")
    (tmp_path / "ids").write_text(" \n")
    assert "no token ids" in program.fails(2, "--tokens", tmp_path / "ids")
