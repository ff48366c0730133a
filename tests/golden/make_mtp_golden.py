#!/usr/bin/env python3
"""Golden guesses of MTP heads, in torch with float32, for the models of tests/parity/mtp_cases.py.

For development only: needs torch and transformers. The head's layer, its rotation and its mask are transformers' own;
what goes in and comes out is written here from the published formula. Writes mtp/CASE.npz:
    guesses (n_tokens - 1, 3) int32   the likeliest tokens behind positions 0 … and the next one, each behind the one before
    lead    (n_tokens - 1, 3)         how far the likeliest is ahead of the second, in units of the range of logits
    some    (n_tokens - 1, 8)         the first guess's logits of the ids of cases.stored_ids()
    low, high (n_tokens - 1)          its smallest and largest logit
and `weights`, the SHA-256 of the tensors that they were made with.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
import cases
import mtp_cases

PARTS = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head.norm"}


def rms(x, weight, eps):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


class Head:
    def __init__(self, directory, model):
        stored, config = load_file(directory / "model.safetensors"), model.config
        tensors = {name: tensor.float() for name, tensor in stored.items()}
        self.qwen = "mtp.fc.weight" in tensors
        at = "mtp." if self.qwen else f"model.layers.{config.num_hidden_layers}."
        plus = 1.0 if self.qwen else 0.0  # Qwen's norms are stored less by 1
        names = PARTS if self.qwen else {ours: theirs for ours, theirs in PARTS.items()}
        parts = {ours: tensors[f"{at}{ours if self.qwen else theirs}.weight"] for ours, theirs in names.items()}
        self.fc = parts["fc"]
        self.norms = {name: parts[name] + plus for name in PARTS if name != "fc"}
        one = dict(config.to_dict(), num_hidden_layers=1, first_k_dense_replace=0)
        one.pop("layer_types", None)
        if self.qwen:
            one["layer_types"] = ["full_attention"]
        self.body = type(model)(type(config)(**one)).eval().model
        self.body.config._attn_implementation = "eager"
        inner = "mtp.layers.0." if self.qwen else at
        state = {name[len(inner) :]: t for name, t in tensors.items() if name.startswith(inner)}
        state = {name: t for name, t in state.items() if not name.startswith(tuple(PARTS.values()))}
        self.body.layers[0].load_state_dict(self.together(state))
        self.body.norm = torch.nn.Identity()
        self.model, self.eps = model, config.rms_norm_eps

    def together(self, state):
        """Experts in one tensor, as transformers has them."""
        own = self.body.layers[0].state_dict()
        if "mlp.experts.gate_up_proj" in own and "mlp.experts.gate_up_proj" not in state:
            n = own["mlp.experts.gate_up_proj"].shape[0]
            of = lambda e, part: state.pop(f"mlp.experts.{e}.{part}_proj.weight")  # noqa: E731
            both = torch.stack([torch.cat([of(e, "gate"), of(e, "up")]) for e in range(n)])
            state |= {
                "mlp.experts.gate_up_proj": both,
                "mlp.experts.down_proj": torch.stack([of(e, "down") for e in range(n)]),
            }
        return state

    def __call__(self, tokens, hidden):
        """(rows, vocab) logits, and what the next guess reads; tokens (rows): each row's next one."""
        e = rms(self.model.get_input_embeddings()(tokens), self.norms["pre_fc_norm_embedding"], self.eps)
        h = rms(hidden, self.norms["pre_fc_norm_hidden"], self.eps)
        x = torch.cat([e, h], -1) @ self.fc.T
        out = self.body(inputs_embeds=x[None], use_cache=False).last_hidden_state[0]
        normed = rms(out, self.norms["norm"], self.eps)
        return self.model.lm_head(normed), normed if self.qwen else out


def make(case):
    ids = torch.tensor(cases.token_ids(case), dtype=torch.long)
    with tempfile.TemporaryDirectory() as temporary, torch.no_grad():
        directory = cases.write_model(case, Path(temporary) / case.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
        ).eval()
        head = Head(directory, model)
        hidden = model.model(ids[None], use_cache=False).last_hidden_state[0]
        guesses, lead, first = [], [], []
        for p in range(len(ids) - 1):
            tokens, states = ids[1 : p + 2], hidden[: p + 1]
            row = []
            for step in range(mtp_cases.GUESSES):
                logits, own = head(tokens, states)
                best = logits[-1].topk(2)
                row.append(
                    (
                        int(best.indices[0]),
                        float((best.values[0] - best.values[1]) / (logits[-1].max() - logits[-1].min())),
                    )
                )
                if step == 0:
                    first.append(logits[-1].numpy())
                tokens, states = torch.cat([tokens, best.indices[:1]]), torch.cat([states, own[-1:]])
            guesses.append([token for token, _ in row])
            lead.append([ahead for _, ahead in row])
        digest = cases.weights_digest(directory)
    first = np.stack(first)
    np.savez_compressed(
        mtp_cases.GOLDEN / f"{case.name}.npz",
        guesses=np.array(guesses, np.int32),
        lead=np.array(lead, np.float32),
        some=np.take_along_axis(first, cases.stored_ids(case)[:-1], 1),
        low=first.min(-1),
        high=first.max(-1),
        weights=digest,
    )
    print(f"{case.name}: {len(first)} positions, smallest lead {np.min(lead):.1e}")


if __name__ == "__main__":
    mtp_cases.GOLDEN.mkdir(exist_ok=True)
    for name in sys.argv[1:] or mtp_cases.CASES:
        make(mtp_cases.CASES[name])
