"""Tokenizers of GGUF files: each gives what the files that it was made from give."""

import base64
import json

import gguf_files
import hf
import pytest
from gguf_files import MERGES, TOKENS, TYPES, bpe, spm


def test_sentencepiece(convert, tmp_path):
    directory = hf.copy(hf.FABLE, tmp_path / "fable")
    (directory / "tokenizer.json").unlink()
    path = gguf_files.write(directory, tmp_path / "model.gguf", tokenizer=lambda w: spm(w, chat_template="{{ 1 }}"))
    wanted, found = convert(directory), convert(path)
    assert found[0]["tokenizer"] == wanted[0]["tokenizer"] and hf.contents(found[1]) == hf.contents(wanted[1])
    assert found[0]["config"] == wanted[0]["config"] and found[0]["chat_template"] == "{{ 1 }}"
    settings = {"add_space_prefix": False, "add_bos_token": False}
    path = gguf_files.write(directory, tmp_path / "plain.gguf", tokenizer=lambda w: spm(w, **settings))
    metadata, tensors, _ = convert(path)
    assert (metadata["tokenizer"]["prefix_space"], metadata["tokenizer"]["add_bos"]) == ("never", False)
    assert "tokenizer.flags" not in tensors


def test_phi_3s_tokens_take_white_space(tiny, convert, tmp_path):
    """<s> and <unk> do not, </s> and those of chats do: so they are in the model's own tokenizer.json."""
    directory = hf.make("tiny-phi3", tmp_path / "phi3", "--vocab", "4096")
    flags = convert(gguf_files.write(directory, tmp_path / "model.gguf", tokenizer=spm))[1]["tokenizer.flags"][1]
    assert flags[:4] == b"\0\0\2\0" and sum(flags) == 2


LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def test_byte_level(tiny, convert, tmp_path):
    """The file gives the tokenizer that the tokenizer.json which it was made from gives."""
    directory = hf.copy(tiny("tiny-llama"), tmp_path / "bpe")
    hf.edit_json(directory / "config.json", bos_token_id=0, eos_token_id=1)
    added = [
        {
            "id": n,
            "content": text,
            "special": n != 3,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
        }
        for n, text in enumerate(TOKENS[:4])
    ]
    root = {
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": LLAMA3_PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE", "ignore_merges": True, "merges": MERGES,
            "vocab": {text: n for n, text in enumerate(TOKENS) if TYPES[n] == 1},
        },
    }  # fmt: skip
    (directory / "tokenizer.json").write_text(json.dumps(root))
    hf.edit_json(directory / "tokenizer_config.json", bos_token="<s>", eos_token="</s>")

    def tokenizer(writer):
        bpe(writer, eot_token_id=2)

    path = gguf_files.write(directory, tmp_path / "model.gguf", tokenizer=tokenizer)
    wanted, found = convert(directory), convert(path)
    assert found[0]["tokenizer"] == wanted[0]["tokenizer"] and hf.contents(found[1]) == hf.contents(wanted[1])
    assert (found[0]["config"]["bos"], found[0]["config"]["eos"]) == (0, [1, 2])


@pytest.mark.parametrize(
    ("tokens", "ends"),
    [
        (["<|im_end|>", "<|endoftext|>", "end"], [1, 0, 2]),
        (["<|return|>", "<|end|>", "<|call|>"], [1, 0, 3]),
        (["<end_of_turn>", "<|eot_id|>", "<|im_start|>"], [1, 2, 0]),
    ],
)
def test_tokens_that_end_an_answer(tokens, ends, tiny, convert, tmp_path):
    """By their spelling, where they are no ordinary pieces: files name one of several."""

    def tokenizer(writer):
        spelled = [tokens[0], "</s>", tokens[1], tokens[2], *TOKENS[4:]]
        bpe(writer, token_list=spelled, token_types=[3, 3, 4, 3, *TYPES[4:]], eos_token_id=1)

    path = gguf_files.write(tiny("tiny-llama"), tmp_path / "model.gguf", tokenizer=tokenizer)
    assert convert(path)[0]["config"]["eos"] == ends


@pytest.mark.parametrize(
    ("pre", "normalizers", "patterns", "add_bos", "ignore_merges"),
    [
        ("qwen2", [{"type": "nfc"}], 1, False, False),
        ("qwen35", [{"type": "nfc"}], 1, False, False),
        ("smollm", None, 2, False, False),
        ("tekken", None, 1, True, True),
        ("gpt-4o", None, 1, False, False),
        ("deepseek-v3", None, 3, False, False),
        ("hunyuan-dense", None, 3, False, False),
        ("hunyuan", None, 1, False, False),
        ("afmoe", None, 3, False, False),
        ("gpt-2", None, 1, False, False),
        ("lfm2", None, 1, True, True),
        ("falcon-h1", None, 1, True, True),
        ("minimax-m2", None, 1, False, False),
        ("seed-coder", None, 1, False, False),
        ("bloom", None, 1, False, False),
        ("deepseek-llm", None, 6, False, False),
    ],
)
def test_pre_tokenizers(pre, normalizers, patterns, add_bos, ignore_merges, tiny, convert, tmp_path):
    path = gguf_files.write(tiny("tiny-llama"), tmp_path / "model.gguf", tokenizer=lambda w: bpe(w, pre))
    facts = convert(path)[0]["tokenizer"]
    assert facts.get("normalizers") == normalizers and len(facts["patterns"]) == patterns
    assert (facts["add_bos"], facts["ignore_merges"]) == (add_bos, ignore_merges)


@pytest.mark.parametrize("merged", [True, False])
def test_kimis(merged, convert, tmp_path):
    """The file gives what tiktoken.model gives, whether it has merges, as llama.cpp's converter finds them, or none."""
    letters = dict(zip([*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)], gguf_files.alphabet()))
    letters.update(zip((byte for byte in range(256) if byte not in letters), gguf_files.alphabet()[len(letters) :]))
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"he", b"the", b" t", b" the", b"ethe"]
    spelled = ["".join(letters[byte] for byte in token) for token in tokens]
    special = ["[EOS]", "[EOT]", *(f"<|reserved_token_{len(tokens) + i}|>" for i in range(2, 256))]
    directory = hf.make("tiny-llama", tmp_path / "kimi", "--vocab", str(len(tokens) + 256))
    lines = [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(tokens)]
    (directory / "tiktoken.model").write_text("\n".join(lines))
    named = {str(len(tokens) + i): {"content": special[i], "special": True} for i in range(2)}
    hf.edit_json(
        directory / "tokenizer_config.json",
        tokenizer_class="TikTokenTokenizer",
        added_tokens_decoder=named,
        eos_token="[EOS]",
    )
    hf.edit_json(directory / "config.json", bos_token_id=0, eos_token_id=[len(tokens), len(tokens) + 1])

    def tokenizer(writer):
        bpe(writer, "kimi-k2", [*spelled, *special], [*[1] * len(tokens), *[3] * 256])
        writer.kv_data[0]["tokenizer.ggml.merges"].value = ["t h", "h e", "th e", "Ġ t", "Ġ the", "e the"]
        if not merged:
            writer.kv_data[0].pop("tokenizer.ggml.merges")

    wanted = convert(directory)
    hf.edit_json(directory / "config.json", eos_token_id=len(tokens))
    found = convert(gguf_files.write(directory, tmp_path / "model.gguf", tokenizer=tokenizer))
    assert found[0]["tokenizer"] == wanted[0]["tokenizer"] and hf.contents(found[1]) == hf.contents(wanted[1])
    assert found[0]["config"]["eos"] == [len(tokens), len(tokens) + 1]


GEMMA_4 = [
    "<pad>",
    "<eos>",
    "<bos>",
    "<unk>",
    "<|tool_response>",
    "<turn|>",
    "</s>",
    "\n",
    "\n\n",
    "t",
    "h",
    "th",
    "\u2581",
    "\u2581th",
]


def test_gemma_4_merges_characters_by_rank(tiny, convert, tmp_path):
    """The file gives what the tokenizer.json gives, and says nothing of a pre-tokenizer."""
    tokens = [*GEMMA_4, *(f"<0x{byte:02X}>" for byte in range(256))]
    kinds = [*[3] * 4, 4, 3, *[1] * 8, *[6] * 256]
    merges = ["\n \n", "t h", "\u2581 th"]
    directory = hf.copy(tiny("tiny-llama"), tmp_path / "gemma")
    hf.edit_json(directory / "config.json", bos_token_id=2, eos_token_id=[1, 5, 4])
    root = {
        "added_tokens": [{"id": n, "content": tokens[n], "special": kinds[n] == 3} for n in range(6)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
        "pre_tokenizer": {
            "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
            "vocab": {text: n for n, text in enumerate(tokens)}, "merges": merges,
        },
    }  # fmt: skip
    (directory / "tokenizer.json").write_text(json.dumps(root))

    def tokenizer(writer):
        bpe(writer, None, tokens, kinds, token_scores=[-1000.0] * len(tokens), bos_token_id=2, eos_token_id=1)
        writer.kv_data[0]["tokenizer.ggml.model"].value = "gemma4"
        writer.kv_data[0]["tokenizer.ggml.merges"].value = merges
        writer.add_unk_token_id(3)
        writer.add_add_space_prefix(False)
        writer.add_add_bos_token(False)  # as early files say: nobody believes it

    wanted = convert(directory)
    found = convert(gguf_files.write(directory, tmp_path / "model.gguf", tokenizer=tokenizer))
    assert found[0]["tokenizer"] == wanted[0]["tokenizer"] and hf.contents(found[1]) == hf.contents(wanted[1])
    assert (found[0]["config"]["bos"], found[0]["config"]["eos"]) == (2, [1, 5, 4])
