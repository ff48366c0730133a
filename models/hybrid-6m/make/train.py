#!/usr/bin/env python3
"""Trains a small hybrid on public-domain stories: three layers of four are recurrent (Gated DeltaNet), the fourth has
attention; two experts of eight are active beside a shared one; and an MTP head learns the token after the next. Torch
and transformers on a CPU, float32. The schedule runs by the processor's time, so a busy machine trains as well as an idle one.

usage: train.py --text FILE... --tokenizer ../../fable-4m --out DIR --minutes 50

FILE is plain text; a blank line ends a paragraph. What fable-4m was trained on is in its SOURCES.md; its make/prepare.py
cleans those texts. Writes a Hugging Face directory, as the converter reads it, every few minutes and at the end. What was
stopped goes on from DIR/state.pt.
"""

import argparse
import json
import math
import shutil
import time
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

LAYERS = 4
CONFIG = dict(
    vocab_size=4096, hidden_size=256, intermediate_size=256, num_hidden_layers=LAYERS, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=True,
    num_experts=8, num_experts_per_tok=2, moe_intermediate_size=96, shared_expert_intermediate_size=128,
    linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=64, linear_value_head_dim=64,
    linear_conv_kernel_dim=4, bos_token_id=1, eos_token_id=2, router_aux_loss_coef=0.01,
    layer_types=["full_attention" if (n + 1) % 4 == 0 else "linear_attention" for n in range(LAYERS)],
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5),
)  # fmt: skip
HEAD_WEIGHT = 0.3  # of the head's loss
LENGTHS = (256, 256, 512, 1024)  # tokens of a row, by quarters of the time
TOKENS = 2048  # a step
RATE, WARM_UP, LAST = 3e-3, 50, 0.02  # learning rate; steps; the end's part of it


class Hybrid(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**CONFIG))
        one = dict(CONFIG, num_hidden_layers=1, layer_types=["full_attention"])
        self.body = Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**one)).model  # its one layer, and its norm
        del self.body.embed_tokens
        dim, norm = CONFIG["hidden_size"], type(self.body.norm)
        self.fc = torch.nn.Linear(2 * dim, dim, bias=False)
        self.of_embedding, self.of_hidden = norm(dim, CONFIG["rms_norm_eps"]), norm(dim, CONFIG["rms_norm_eps"])

    def head(self, hidden, ids):
        """Logits (rows, tokens, vocabulary) of what follows `ids`, each of which follows a place of `hidden`."""
        e = self.of_embedding(self.model.get_input_embeddings()(ids))
        x = self.fc(torch.cat([e, self.of_hidden(hidden)], -1))
        return self.model.lm_head(self.body(inputs_embeds=x, use_cache=False).last_hidden_state)

    def both(self, ids):
        """The model's logits of ids[:, 1:], and the head's of ids[:, 2:]."""
        out = self.model(ids[:, :-1], output_hidden_states=True)
        return out.logits, self.head(out.hidden_states[-1][:, :-1], ids[:, 1:-1])

    def forward(self, ids):
        """The losses of both, in nats a token, and how often the head's likeliest token came."""
        out = self.model(ids[:, :-1], output_hidden_states=True, output_router_logits=True, labels=ids[:, :-1])
        loss = F.cross_entropy(out.logits.flatten(0, 1), ids[:, 1:].flatten())
        hidden = out.hidden_states[-1][:, :-1]  # which transformers gives behind the last norm
        logits, wanted = self.head(hidden, ids[:, 1:-1]), ids[:, 2:]
        head = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        return loss, head, out.aux_loss, (logits.argmax(-1) == wanted).float().mean()


def save(hybrid, out, tokenizer):
    out.mkdir(parents=True, exist_ok=True)
    tensors = {name: t for name, t in hybrid.model.state_dict().items() if name != "lm_head.weight"}
    tensors["mtp.fc.weight"] = hybrid.fc.weight
    tensors["mtp.pre_fc_norm_embedding.weight"] = hybrid.of_embedding.weight
    tensors["mtp.pre_fc_norm_hidden.weight"] = hybrid.of_hidden.weight
    for name, t in hybrid.body.state_dict().items():
        tensors["mtp." + name] = t
    half = {name: t.detach().to(torch.bfloat16).contiguous().clone() for name, t in tensors.items()}
    save_file(half, out / "model.safetensors", {"format": "pt"})
    config = dict(
        CONFIG, architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text", mtp_num_hidden_layers=1
    )
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for file in tokenizer.glob("*token*"):
        shutil.copy(file, out / file.name)


def rows(ids, length, generator):
    """Rows of the text from anywhere, for a step."""
    at = generator.integers(0, len(ids) - length - 1, TOKENS // length)
    return torch.tensor(np.stack([ids[a : a + length + 1] for a in at]), dtype=torch.long)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=50, help="of the processor's time, all threads together")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    pieces = sentencepiece.SentencePieceProcessor(str(arguments.tokenizer / "tokenizer.model"))
    ids = np.concatenate([[1, *pieces.encode(path.read_text(encoding="utf-8"))] for path in arguments.text])
    hybrid, generator = Hybrid(), np.random.default_rng(0)
    print(f"{sum(p.numel() for p in hybrid.parameters()) / 1e6:.2f} M parameters, {len(ids)} tokens", flush=True)
    flat = [p for p in hybrid.parameters() if p.dim() < 2]
    matrices = [p for p in hybrid.parameters() if p.dim() >= 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0}], betas=(0.9, 0.97)
    )
    before, step, mean = 0.0, 0, None  # minutes of earlier runs
    state = arguments.out / "state.pt"
    if state.exists():
        kept = torch.load(state, weights_only=False)
        hybrid.load_state_dict(kept["weights"]), optimizer.load_state_dict(kept["optimizer"])
        before, step, mean, generator = kept["passed"], kept["step"], kept["mean"], kept["generator"]
    shown = saved = before
    start = time.process_time()
    while (passed := before + (time.process_time() - start) / 60) < arguments.minutes:
        part = passed / arguments.minutes
        rate = RATE * min((step + 1) / WARM_UP, LAST + (1 - LAST) * (1 + math.cos(math.pi * part)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss, head, balance, right = hybrid(rows(ids, LENGTHS[int(part * len(LENGTHS))], generator))
        (loss + HEAD_WEIGHT * head + CONFIG["router_aux_loss_coef"] * balance).backward()
        torch.nn.utils.clip_grad_norm_(hybrid.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        now = np.array([loss.item(), head.item(), right.item()])
        mean, step = now if mean is None else 0.95 * mean + 0.05 * now, step + 1
        if passed - shown > 0.5:
            shown = passed
            print(
                f"{passed:6.1f} min, step {step}: {mean[0]:.3f} nats, head {mean[1]:.3f}, right {mean[2]:.2f}",
                flush=True,
            )
        if passed - saved > 3:
            saved = passed
            save(hybrid, arguments.out, arguments.tokenizer)
            kept = dict(
                weights=hybrid.state_dict(), optimizer=optimizer.state_dict(), passed=passed, step=step, mean=mean
            )
            torch.save(kept | dict(generator=generator), state.with_suffix(".new"))
            state.with_suffix(".new").replace(state)
    save(hybrid, arguments.out, arguments.tokenizer)
    print(f"{step} steps, {step * TOKENS} tokens: {mean[0]:.3f} nats, head {mean[1]:.3f}, right {mean[2]:.2f}")


if __name__ == "__main__":
    main()
