#!/usr/bin/env python3
"""Makes real-NAME.json.xz: what transformers makes, in float32, of real models in GGUF files. tests/real/test_real.py
compares yalm with it.

    make_real_golden.py NAME FILE.gguf        NAME: smollm2, qwen2.5-coder, or gemma-3-270m

For development only: needs torch, transformers, accelerate and gguf. The weights are transformers' own reading of the
file, dequantised to float32. So is Gemma's tokenizer. Its reading of the others is not used, for it does not heed the
file's pre-tokenizer: here tokens and merges are put behind what the model's own tokenizer.json has.

The text is the beginning of the bundled model's heldout.txt, which is in the public domain; the strings are every
fourth of tokenizer.json.xz.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import sys
from pathlib import Path

import gguf
import tokenizers
import torch
import transformers

HERE = Path(__file__).resolve().parent
N_TOKENS, N_GREEDY, N_TEXTS = 600, 48, 500
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
# As the tokenizer.json of HuggingFaceTB/SmolLM2-135M-Instruct and of Qwen/Qwen2.5-Coder-0.5B-Instruct have it.
KNOWN = {
    "smollm2": {
        "normalizer": None,
        "pre": [{"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True}],
    },
    "qwen2.5-coder": {
        "normalizer": {"type": "NFC"},
        "pre": [
            {"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "Isolated", "invert": False},
            {**BYTES, "use_regex": False},
        ],
    },
}
CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [{"role": "system", "content": "Answer in one word."},
     {"role": "user", "content": "Is 1001 = 7 * 11 * 13?\n\nSay yes or no."}],
    [
        {"role": "user", "content": "Héllo <|im_end|> 你好"},
        {"role": "assistant", "content": " Hi! "},
        {"role": "user", "content": "for (int i = 0; i < 10; i++)\n\tputs(\"x\");"},
    ],
]  # fmt: skip
TURNS = ["What is the capital of France? Answer shortly.", "And of Italy?",
         "Write one sentence about the sea, naïve 🦙 style.", "Now in two words."]  # fmt: skip
N_ANSWER = 40  # tokens


def tokenizer_of(name: str, path: Path) -> transformers.PreTrainedTokenizerFast:
    if name not in KNOWN:
        return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    fields = gguf.GGUFReader(path).fields
    tokens, kinds = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type"))
    special = [n for n, kind in enumerate(kinds) if kind in (3, 4)]
    root = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": n, "content": tokens[n], "special": kinds[n] == 3, "normalized": False}
            | dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
            for n in special
        ],
        "normalizer": KNOWN[name]["normalizer"],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": KNOWN[name]["pre"]},
        "post_processor": None,
        "decoder": {**BYTES, "use_regex": True},
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "vocab": {token: n for n, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"].contents(),
        },
    }  # fmt: skip
    made = tokenizers.Tokenizer.from_str(json.dumps(root))
    template = fields["tokenizer.chat_template"].contents()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template)


def answers(path: Path, ids: list) -> dict:
    """Of a float32 model: the loss of each of ids, after those before it, and what greedy choice goes on with."""
    torch.set_num_threads(2)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    assert next(model.parameters()).dtype == torch.float32
    all_ids, margins = list(ids), []
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=True)
        losses = torch.nn.functional.cross_entropy(out.logits[0, :-1].double(), torch.tensor(ids[1:]), reduction="sum")
        for _ in range(N_GREEDY):
            best = torch.topk(out.logits[0, -1], 2)
            margins.append(float(best.values[0] - best.values[1]))
            all_ids.append(int(best.indices[0]))
            out = model(torch.tensor([all_ids[-1:]]), past_key_values=out.past_key_values, use_cache=True)
    assert min(margins) > 2e-3, f"a choice by {min(margins)} would be a toss-up"
    return {"nll": float(losses), "greedy": all_ids[len(ids) :], "margin": min(margins)}


def talk(path: Path, tokenizer: object) -> list:
    """Messages of a conversation in which the float32 model answers greedily: each answer from the whole, rendered anew."""
    model = transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    ends = gguf.GGUFReader(path).fields["tokenizer.ggml.eos_token_id"].contents()
    messages = []
    for turn in TURNS:
        messages.append({"role": "user", "content": turn})
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(rendered, return_tensors="pt", add_special_tokens=False)["input_ids"]
        made = model.generate(ids, do_sample=False, max_new_tokens=N_ANSWER, repetition_penalty=1.0, eos_token_id=ends)
        answer = [token for token in made[0, ids.shape[1] :].tolist() if token != ends]
        messages.append({"role": "assistant", "content": tokenizer.decode(answer)})
    return messages


def main() -> None:
    name, path = sys.argv[1], Path(sys.argv[2])
    tokenizer = tokenizer_of(name, path)
    text = (HERE.parents[1] / "models/fable-4m/heldout.txt").read_text(encoding="utf-8")
    ids = tokenizer(text[: 12 * N_TOKENS], add_special_tokens=True)["input_ids"][:N_TOKENS]
    texts = json.loads(lzma.decompress((HERE / "tokenizer.json.xz").read_bytes()))["texts"][:: 2000 // N_TEXTS]
    assert len(ids) == N_TOKENS and len(texts) == N_TEXTS
    chats = []
    for messages in CHATS if tokenizer.chat_template else []:
        rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        chats.append(
            {"messages": messages, "text": rendered, "ids": tokenizer(rendered, add_special_tokens=False)["input_ids"]}
        )
    golden = {
        "made_with": {m.__name__: m.__version__.split("+")[0] for m in (torch, transformers, tokenizers)},
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "ids": ids,
        **answers(path, ids),
        "strings": [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts],
        "chats": chats,
        "talk": talk(path, tokenizer) if chats else [],
    }
    packed = lzma.compress(json.dumps(golden, separators=(",", ":")).encode(), preset=9)
    (HERE / f"real-{name}.json.xz").write_bytes(packed)
    print(
        f"{name}: nll {golden['nll']}, smallest margin {golden['margin']:.3f}, {len(packed)} bytes: "
        f"{tokenizer.decode(golden['greedy'])!r}"
    )


if __name__ == "__main__":
    main()
