"""Modes tokenize, info and verify."""

import json
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parents[2] / "models" / "fable-4m"
REFERENCE = json.loads((MODEL / "reference" / "tokenizer.json").read_text())


def test_ids_on_one_line(program):
    assert program.ok("-m", "tok", "-i", "Once upon a time") == b"1 2613 597 261 541\n"
    assert program.ok("-m", "tokenize", "-i", "Once upon a time", "--set", "text.bos=off") == b"2613 597 261 541\n"
    assert program.ok("-m", "tokenize", "-f", "-", "--set", "text.bos=off", stdin=b"") == b"\n"
    assert program("-m", "tokenize", "-i", "x").stderr == b""


def test_pieces_show_every_byte(program):
    lines = program.ok("-m", "tokenize", "--pieces", "-f", "-", stdin=b'a"\\\xff\n').decode().splitlines()
    ids = [line.split("\t")[0] for line in lines]
    assert " ".join(ids) == program.ok("-m", "tokenize", "-f", "-", stdin=b'a"\\\xff\n').decode().strip()
    assert lines[0] == '1\t"<s>"\tcontrol'
    text = "".join(line.split("\t")[1][1:-1] for line in lines[1:])
    assert '\\"' in text and "\\\\" in text and "\\xff" in text and "\\n" in text


@pytest.mark.parametrize(
    "text", [b"Once upon a time", b"  two  spaces ", b"caf\xc3\xa9 \xf0\x9f\xa6\x8a\n\n", b"a\0b\xff\xc3(", b"<s></s>"]
)
def test_detokenize_gives_the_bytes_back(program, text):
    ids = program.ok("-m", "tokenize", "-f", "-", stdin=text)
    assert program.ok("--detokenize", "-f", "-", stdin=ids) == text
    assert program.ok("--detokenize", "-i", ids.decode()) == text
    assert program.ok("--detokenize", "--tokens", "-", stdin=ids) == text


def test_detokenize_refuses(program):
    assert "expected an id below 4096" in program.fails(2, "--detokenize", "-i", "1 70000")
    assert "-i: byte 2: expected token ids" in program.fails(2, "--detokenize", "-i", "1 king")


def test_reference_ids(program):
    cases = REFERENCE["cases"] if isinstance(REFERENCE, dict) and "cases" in REFERENCE else REFERENCE["texts"]
    for case in cases:
        ids = program.ok("-m", "tokenize", "--set", "text.bos=off", "-f", "-", stdin=case["text"].encode())
        assert list(map(int, ids.split())) == case["ids"], case["text"]


def test_info(program):
    text = program.ok("-m", "info").decode()
    for part in ("LlamaForCausalLM", "parameters       4196608", "weights          bf16, 8.4 MB",
                 "heads            4 query, 2 key/value, of 64", "tensors          42 (-v lists them)",
                 "context          2048 positions"):  # fmt: skip
        assert part in text
    assert (
        "layers.0.attention_norm" not in text and "layers.0.attention_norm" in program.ok("-m", "info", "-v").decode()
    )
    facts = json.loads(program.ok("-m", "info", "-o", "json"))
    assert facts["n_params"] == 4196608 and facts["eos"] == [2] and facts["vocab_size"] == 4096
    memory = {row["attention"]: row for row in facts["session_memory"]}
    assert memory["dense"]["beside"] == 0 < memory["sparq"]["beside"] and "sparq attention: cache" in text
    tensors = {tensor["name"]: tensor for tensor in facts["tensors"]}
    assert tensors["embedding"]["shape"] == [4096, 256] and tensors["embedding"]["dtype"] == "bf16"
    assert facts["checksum"] in text and tensors["norm"]["checksum"] in program.ok("-m", "info", "-v").decode()


def test_verify(program, bare, fable, tmp_path):
    assert b"every checksum is right" in program.ok("-m", "verify")
    facts = json.loads(program.ok("-m", "info", "-o", "json"))
    tensor = next(tensor for tensor in facts["tensors"] if tensor["name"] == "layers.2.o")
    data = bytearray(Path(fable).read_bytes())
    data[tensor["offset"] + 17] ^= 4
    (tmp_path / "bad.bin").write_bytes(data)
    done = bare(tmp_path / "bad.bin", "-m", "verify")
    assert done.returncode == 3 and b"layers.2.o" in done.stderr and done.stdout == b""
