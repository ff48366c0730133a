#!/usr/bin/env python3
"""Golden vectors and scores by Hugging Face transformers in float32, for the cases of tests/parity/embed_cases.py.

For development only: needs torch, transformers and tokenizers. Writes embed/CASE.npz with `out`, float32: (n_texts, dim) of
length 1, or the scores (n_texts) beside the query; and `ids`, the tokens of all texts in a row, with `ends`.

usage: make_embed_golden.py [CASE...]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
import embed_cases


def forward(model, encoded, case, dense):
    types = torch.tensor([encoded.type_ids]) if case.config.get("type_vocab_size", 0) > 1 else None
    with torch.no_grad():
        more = {} if types is None else {"token_type_ids": types}
        out = model(input_ids=torch.tensor([encoded.ids]), **more)
    if case.pooling is None:
        return out.logits[0]
    hidden = out.last_hidden_state[0]
    vector = hidden[0] if case.pooling == "cls_token" else hidden.mean(0)
    for weights in dense:
        vector = weights @ vector
    return torch.nn.functional.normalize(vector, dim=0)


def make(case):
    with tempfile.TemporaryDirectory() as temporary:
        folder = embed_cases.write(case, Path(temporary) / case.name)
        kind = transformers.AutoModel if case.pooling else transformers.AutoModelForSequenceClassification
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        dense = [load_file(path)["linear.weight"] for path in sorted(folder.glob("*_Dense/model.safetensors"))]
        tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    texts = embed_cases.TEXTS
    encoded = [tokenizer.encode(*([text] if case.pooling else [embed_cases.QUERY, text])) for text in texts]
    out = np.array([forward(model, one, case, dense).numpy() for one in encoded], np.float32)
    ids = np.array([token for one in encoded for token in one.ids], np.int32)
    print(f"{case.name}: {[len(one.ids) for one in encoded]} tokens, {out.std():.3f}")
    np.savez_compressed(
        embed_cases.GOLDEN / f"{case.name}.npz",
        out=out if case.pooling else out[:, 0],
        ids=ids,
        ends=np.cumsum([len(one.ids) for one in encoded]),
    )


cases = embed_cases.make_cases()
for name in sys.argv[1:] or cases:
    make(cases[name])
