#!/usr/bin/env python3
"""Golden logits by Hugging Face transformers in float32, eager attention, for the cases of tests/parity/cases.py.

For development only: needs torch and transformers (made with the versions named in logits/VERSIONS). Writes
logits/CASE.npz with, float32:
    some   (n_tokens, 8)      logits of the ids of cases.stored_ids()
    low, high, logsumexp      (n_tokens): smallest and largest logit, logsumexp over the vocabulary
    argmax (n_tokens) int32   the first of the largest
    rows   (3, vocab_size)    all logits of cases.stored_positions()
and `weights`, the SHA-256 of the tensors that they were made with.

usage: make_logits_golden.py [CASE...]
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
import cases

# Whose logits of routers decide which experts are chosen; transformers gives them out.
ROUTERS = (
    "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_5_moe_text", "qwen3_next", "gpt_oss", "granitemoe", "granitemoeshared",
    "olmoe", "mellum", "flex_olmo", "hunyuan_v1_moe",
)  # fmt: skip


def forward(directory, ids, dtype):
    named = json.loads((directory / "config.json").read_text())["architectures"][0]  # Mistral 4 has no Auto class
    model = (
        getattr(transformers, named)
        .from_pretrained(directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager")
        .eval()
    )
    more = (
        {"output_router_logits": True}
        if model.config.model_type in ROUTERS or getattr(model.config, "enable_moe_block", False)
        else {}
    )
    with torch.no_grad():
        out = model(torch.tensor(ids, dtype=torch.long)[None], use_cache=False, **more)
    return out.logits[0].numpy(), margin(out, model.config) if more else np.inf


def margin(out, config):
    """The smallest distance, over layers and positions, between the last expert chosen and the first that was not."""
    k = getattr(config, "top_k_experts", None) or config.num_experts_per_tok
    k = k[0] if isinstance(k, list) else k  # HunYuan's, of each layer
    ordered = [torch.sort(layer, dim=-1, descending=True).values for layer in out.router_logits]
    return min(float((layer[..., k - 1] - layer[..., k]).min()) for layer in ordered)


def make(case):
    ids = cases.token_ids(case)
    with tempfile.TemporaryDirectory() as temporary:
        directory = cases.write_model(case, Path(temporary) / case.name)
        logits, gap = forward(directory, ids, torch.float32)
        exact, _ = forward(directory, ids, torch.float64)
        digest = cases.weights_digest(directory)
    spread = logits.max(-1) - logits.min(-1)
    own = (np.abs(logits - exact).max(-1) / spread).max()
    print(
        f"{case.name:24} {len(ids)} tokens, range {spread.min():.2f} to {spread.max():.2f}, float32 - float64 {own:.1e} of it"
        + (f", router margin {gap:.1e}" if np.isfinite(gap) else "")
    )
    # Experts chosen by less than rounding would make the comparison a toss-up, and float32 itself must be well within
    # the bound.
    assert gap > 1e-5 and own < 2e-5, case.name
    top = logits.max(-1, keepdims=True)
    np.savez_compressed(
        cases.GOLDEN / f"{case.name}.npz",
        some=np.take_along_axis(logits, cases.stored_ids(case), 1),
        low=logits.min(-1),
        high=logits.max(-1),
        argmax=logits.argmax(-1).astype(np.int32),
        logsumexp=(top[:, 0] + np.log(np.exp((logits - top).astype(np.float64)).sum(-1))).astype(np.float32),
        rows=logits[cases.stored_positions(case)],
        weights=digest,
    )


def main():
    names = sys.argv[1:] or list(cases.CASES)
    cases.GOLDEN.mkdir(parents=True, exist_ok=True)
    for name in names:
        make(cases.CASES[name])
    versions = (
        f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}, numpy {np.__version__}"
    )
    path = cases.GOLDEN / "VERSIONS"
    kept = path.read_text() if sys.argv[1:] and path.exists() else ""
    path.write_text(f"{kept}{', '.join(sys.argv[1:]) + ': ' if kept else ''}{versions}\n")


if __name__ == "__main__":
    main()
