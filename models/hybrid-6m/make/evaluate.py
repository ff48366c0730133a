#!/usr/bin/env python3
"""What the trained model's weights give on held-out text, by torch in float32: nats a token, and how often the MTP head's
likeliest token is the one that comes, and the one that the model itself finds likeliest.

usage: evaluate.py DIR ../../fable-4m/heldout.txt [TOKENS]
"""

import sys
from pathlib import Path

import sentencepiece
import torch
from safetensors.torch import load_file
from train import Hybrid

LENGTH = 512


def main():
    directory, text = Path(sys.argv[1]), Path(sys.argv[2])
    most = int(sys.argv[3]) if len(sys.argv) > 3 else 20000
    stored, hybrid = load_file(directory / "model.safetensors"), Hybrid()
    parts = {"mtp.fc.": "fc.", "mtp.pre_fc_norm_embedding.": "of_embedding.", "mtp.pre_fc_norm_hidden.": "of_hidden."}
    state = {"model.lm_head.weight": stored["model.embed_tokens.weight"]}
    for name, tensor in stored.items():
        ours = next((to + name[len(part) :] for part, to in parts.items() if name.startswith(part)), None)
        state[ours or ("body." + name[4:] if name.startswith("mtp.") else "model." + name)] = tensor.float()
    hybrid.load_state_dict(state)
    hybrid.eval()
    pieces = sentencepiece.SentencePieceProcessor(str(directory / "tokenizer.model"))
    ids = torch.tensor(pieces.encode(text.read_text(encoding="utf-8"))[:most])
    nats = head_nats = right = same = n = 0
    with torch.no_grad():
        for row in ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH):
            row = torch.cat([torch.tensor([1]), row])[None]
            logits, guesses = hybrid.both(row)
            loss = torch.nn.functional.cross_entropy
            nats += loss(logits[0], row[0, 1:], reduction="sum").item()
            head_nats += loss(guesses[0], row[0, 2:], reduction="sum").item()
            right += (guesses.argmax(-1) == row[:, 2:]).sum().item()
            same += (guesses.argmax(-1) == logits[:, 1:].argmax(-1)).sum().item()
            n += LENGTH
    rows = n // LENGTH
    print(
        f"{n} tokens in windows of {LENGTH}: {nats / n:.3f} nats a token; the head's guesses {head_nats / (n - rows):.3f},"
    )
    print(f"right {right / (n - rows):.3f}, the model's own likeliest token {same / (n - rows):.3f}")


if __name__ == "__main__":
    main()
