#!/usr/bin/env python3
"""Writes rope_golden.h: inverse frequencies as Hugging Face transformers computes them, and exact cosines and sines.

Needs torch, transformers and mpmath; the tests need only the file that it writes:

    python tests/model/rope_golden.py > tests/model/rope_golden.h
"""

import textwrap

import mpmath
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.0, 1.1, 1.2, 1.3, 2.0, 2.5, 3.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 48.0, 64.0],
    "original_max_position_embeddings": 4096,
    "factor": 32.0,
}
CASES = [  # head_dim, theta, parameters as in config.json
    (64, 10000.0, {"rope_type": "default"}),
    (48, 10000.0, {"rope_type": "linear", "factor": 4.0}),
    (128, 500000.0, LLAMA3),
    (64, 500000.0, {**LLAMA3, "factor": 32.0}),
    (128, 1000000.0, YARN),
    (128, 1000000.0, {**YARN, "truncate": False}),
    (96, 10000.0, {**YARN, "beta_fast": 48.0, "beta_slow": 2.0, "attention_factor": 1.25}),
    (16, 10000.0, {**YARN, "factor": 2.0, "original_max_position_embeddings": 32}),
    (16, 10000.0, {**YARN, "original_max_position_embeddings": 4, "truncate": False}),
    (16, 10000.0, {**YARN, "original_max_position_embeddings": 6}),  # low = high = 0
    (16, 2.0, {**YARN, "original_max_position_embeddings": 1000000}),
    (32, 10000.0, {**YARN, "beta_fast": 2.0, "beta_slow": 2.0, "truncate": False}),
    (32, 10000.0, {"rope_type": "default", "partial_rotary_factor": 0.5}),
    (48, 10000.0, {**YARN, "partial_rotary_factor": 0.75}),
    (16, 10000.0, LONG),
    (16, 10000.0, {**LONG, "seq_len": 5000}),
    (
        24,
        10000.0,
        {**LONG, "partial_rotary_factor": 0.75, "short_factor": [1.5, 2, 2.5] * 3, "long_factor": [9, 8, 7] * 3},
    ),
]
POSITIONS = [0, 1, 4095, 131071, 3000001, 268435455]


def frequencies(head_dim, theta, parameters):
    original = parameters.get("original_max_position_embeddings", 2048)
    context = int(original * parameters.get("factor", 1.0))
    config = LlamaConfig(
        hidden_size=head_dim * 2,
        num_attention_heads=2,
        head_dim=head_dim,
        max_position_embeddings=context,
        rope_parameters={**parameters, "rope_theta": theta},
    )
    kind = parameters["rope_type"]
    compute = Phi3RotaryEmbedding.compute_default_rope_parameters if kind == "default" else ROPE_INIT_FUNCTIONS[kind]
    values, scale = compute(config, device="cpu", seq_len=parameters.get("seq_len"))
    return [float(v) for v in values], float(scale)


def main():
    print(f"// Written by rope_golden.py with transformers {transformers.__version__}.")
    print("// clang-format off")
    print("static const struct rope_golden {")
    print(
        "    int head_dim, context;\n    struct rope_config rope;\n    double scale, frequencies[64];\n} rope_golden[] = {"
    )
    for head_dim, theta, p in CASES:
        values, scale = frequencies(head_dim, theta, p)
        fields = [
            f".type = ROPE_{p['rope_type'].upper()}",
            f".theta = {theta!r}",
            f".factor = {p.get('factor', 1.0)!r}",
        ]
        if "partial_rotary_factor" in p:
            fields.append(f".rotary_dim = {int(head_dim * p['partial_rotary_factor'])}")
        if p["rope_type"] in ("llama3", "yarn", "longrope"):
            fields.append(f".original_context = {p['original_max_position_embeddings']}")
        if p["rope_type"] == "llama3":
            fields += [f".{key} = {p[key]!r}" for key in ("low_freq_factor", "high_freq_factor")]
        if p["rope_type"] == "longrope":
            fields[0] = ".type = ROPE_LONG"
            fields.append(f".attention_factor = {scale!r}")
            for key in ("short", "long"):
                fields.append(f".{key}_factors = {{{', '.join(map(str, p[f'{key}_factor']))}}}")
        if p["rope_type"] == "yarn":
            fields += [f".beta_fast = {p.get('beta_fast', 32.0)!r}", f".beta_slow = {p.get('beta_slow', 1.0)!r}"]
            fields += [f".attention_factor = {scale!r}", f".truncate = {str(p.get('truncate', True)).lower()}"]
        head = f"    {{{head_dim}, {p.get('seq_len', 4096)}, {{{', '.join(fields)}}}, {scale!r},"
        body = ", ".join(f"{value:.9g}" for value in values)
        print(textwrap.fill(head, 128, subsequent_indent="     "))
        print(textwrap.fill(f"     {{{body}}}}},", 128, subsequent_indent="      "))
    print("};\n")

    mpmath.mp.prec = 300
    print(
        "// theta 10000, head_dim 64, component 3; the angle is formed from the double that is nearest to the frequency."
    )
    print("static const struct {\n    int64_t position;\n    double cos, sin;\n} angle_golden[] = {")
    frequency = mpmath.mpf(float(mpmath.power(10000, mpmath.mpf(-6) / 64)))
    for position in POSITIONS:
        print(
            f"    {{{position}, {float(mpmath.cos(position * frequency))!r}, {float(mpmath.sin(position * frequency))!r}}},"
        )
    print("};")


if __name__ == "__main__":
    main()
