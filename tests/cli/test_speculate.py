"""--speculate: the same text, to the byte, whatever is guessed; and what is refused."""

import re
import shutil

import hf
import pytest
from harness import ROOT, THOROUGH, convert_directory

PROMPT = "Once upon a time there was a little fox. The little fox was happy. The little fox"


def without_speed(done):
    """Text, the hash of the last logits, and why it stopped."""
    words = done.stderr.decode()
    return done.stdout, re.search(r"last logits: (\w+)", words).group(1), re.search(r"stopped by: (.+)", words).group(1)


@pytest.mark.parametrize(
    "args",
    [
        ("--temp", "0", "-n", 200),
        ("--seed", 3, "-n", 150),
        ("--seed", 3, "-n", 150, "--repeat-penalty", 1.2, "--top-k", 0),
        ("--temp", "0", "-n", 200, "-r", "fox was", "--set", "text.ignore_eos=on"),
        ("--temp", "0", "-n", 60, "-T", 64, "--set", "text.ignore_eos=on"),
        ("--temp", "0", "-n", -2, "-T", 90, "--set", "text.ignore_eos=on"),
        ("--temp", "0", "-n", 150, "-T", 64, "--set", "text.ignore_eos=on", "--kv", "int8"),
        ("--temp", "0", "-n", 80, "--attention", "sparq", "--set", "sparq.from=1"),
        ("--temp", "0", "-n", 80, "--set", "machine.pin=on", "--threads", 2),
    ],
    ids=lambda args: " ".join(map(str, args)),
)
def test_the_text_is_the_same(program, args):
    plain = without_speed(program("-i", PROMPT, *args, "--speculate", "off"))
    assert without_speed(program("-i", PROMPT, *args, "--speculate", "suffix")) == plain
    assert without_speed(program("-i", PROMPT, *args)) == plain


def test_a_grammar_is_followed_as_ever(program, tmp_path):
    grammar = tmp_path / "words.gbnf"
    grammar.write_text('root ::= ("the fox and the hen, " | "a fox, ")+ "."')
    args = ("-i", PROMPT, "--grammar", grammar, "-n", 80, "--seed", 4)
    assert without_speed(program(*args)) == without_speed(program(*args, "--speculate", "off"))


def test_a_model_drafts_for_itself(program):
    args = ("-i", PROMPT, "-n", 100, "--temp", "0", "--set", "text.ignore_eos=on")
    drafted = program(*args, "--speculate", f"draft={program.model}")
    assert without_speed(drafted) == without_speed(program(*args, "--speculate", "off"))
    assert re.search(rb"speculation: \d+ of \d+ guessed tokens came; 99 tokens took \d+ evaluations", drafted.stderr)


def test_a_draft_of_other_types_has_its_own_activations(program, tmp_path):
    small = convert_directory(ROOT / "models/fable-4m", tmp_path / "small.bin", "--dtype", "q8")
    args = ("-i", PROMPT, "-n", 60, "--temp", "0", "--set", "text.ignore_eos=on", "--activations", "fp32")
    drafted = program(*args, "--speculate", f"draft={small}")
    assert drafted.returncode == 0, drafted.stderr
    assert without_speed(drafted) == without_speed(program(*args, "--speculate", "off"))


def test_rows_beyond_the_vocabulary_do_not_count(program, tmp_path):
    """Models of one family share a tokenizer, and pad their embeddings to different sizes: Qwen2.5's have 151,936 or 152,064
    rows."""
    source = tmp_path / "padded"
    shutil.copytree(ROOT / "models/fable-4m", source, ignore=shutil.ignore_patterns("make", "reference", "heldout.txt"))
    hf.edit_json(source / "config.json", vocab_size=4096 + 64)
    tensors = hf.read_tensors(source)
    embedding = tensors["model.embed_tokens.weight"]
    embedding[1][0] += 64
    embedding[2] += bytes(64 * 256 * 2)
    hf.write_tensors(source / "model.safetensors", tensors)
    padded = convert_directory(source, tmp_path / "padded.bin")
    args = ("-i", PROMPT, "-n", 60, "--temp", "0", "--set", "text.ignore_eos=on")
    drafted = program(*args, "--speculate", f"draft={padded}")
    assert drafted.returncode == 0, drafted.stderr
    assert without_speed(drafted) == without_speed(program(*args, "--speculate", "off"))


@pytest.fixture(scope="module")
def headed(program, tmp_path_factory):
    """The program with the bundled model that has recurrent layers, experts and an MTP head."""
    file = tmp_path_factory.mktemp("mtp") / "hybrid.bin"
    return type(program)(program.binary, convert_directory(ROOT / "models/hybrid-6m", file))


@pytest.mark.parametrize(
    "args",
    [
        ("--temp", "0", "-n", 120),
        ("--seed", 3, "-n", 60, "--top-k", 2),
        ("--temp", "0", "-n", 90, "-T", 64),  # endless
        ("--temp", "0", "-n", 60, "--kv", "int8", "--set", "machine.chunk=5"),
    ],
    ids=lambda args: " ".join(map(str, args)),
)
def test_the_models_own_head(headed, args):
    args = ("-i", PROMPT, *args, "--set", "text.ignore_eos=on")
    plain = without_speed(headed(*args, "--speculate", "off"))
    guessed = headed(*args, "--speculate", "mtp")
    assert without_speed(guessed) == plain and re.search(rb"guessed tokens came", guessed.stderr)
    assert without_speed(headed(*args)) == plain


def test_a_head_that_cannot_be_had(program, headed):
    said = program.fails(2, "-i", "x", "--speculate", "mtp", "-q", "--no-echo")
    assert "mtp: fable-4m has no MTP head" in said
    said = headed.fails(2, "-i", "x", "--attention", "nomad", "--speculate", "mtp", "-q", "--no-echo")
    assert "an MTP head is of no use with --attention nomad" in said and said.endswith(": use dense")
    assert b"MTP head         yes" in headed.ok("-m", "info") and b"MTP" not in program.ok("-m", "info")


@pytest.mark.skipif(not THOROUGH, reason="it measures the machine for seconds")
def test_throughput_speculates_where_it_is_asked(headed):
    measured = ("-m", "throughput", "-t", 1, "-p", 0, "-n", 8, "--repetitions", 1, "-q")
    assert b"tg8" in headed.ok(*measured, "--speculate", "mtp")


def test_what_is_refused(program, ids_only, tmp_path):
    for value in ("often", "draft="):
        said = program.fails(2, "-i", "x", "--speculate", value)
        assert f"expected auto, off, suffix, mtp or draft=FILE, found '{value}'" in said
    assert "No such file" in program.fails(1, "-i", "x", "--speculate", f"draft={tmp_path}/none.bin")
    said = program.fails(2, "-i", "x", "--speculate", f"draft={ids_only.model}")
    assert "a draft must have the same" in said
    said = program.fails(
        2, "-i", "x", "--attention", "sparq", "--speculate", f"draft={program.model}", "-q", "--no-echo"
    )
    assert "a draft is of no use where tokens are evaluated one by one" in said
