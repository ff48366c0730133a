"""The models of the parity tests: each preset tiny-* of tools/random_hf_model.py, the bundled models, and options of
config.json that no preset has. Shared by the script that makes the golden logits and by the test that reads them."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import struct
import sys
from pathlib import Path
from unittest import mock

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import random_hf_classic as classic  # noqa: E402
import random_hf_mamba as mamba  # noqa: E402
import random_hf_model as generator  # noqa: E402

GOLDEN = ROOT / "tests/golden/logits"
BUNDLED = {"bundled": ROOT / "models/fable-4m", "bundled-hybrid": ROOT / "models/hybrid-6m"}
FABLE = BUNDLED["bundled"]
WHOLE_ROWS = 3  # positions of which the whole vocabulary is stored
IDS_PER_ROW = 8  # logits stored of every other position


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    config: dict | None = None  # None: a bundled model
    dtype: str = "fp32"
    n_tokens: int = 160
    drop: tuple = ()  # keys of config.json to leave out

    @property
    def vocab(self):
        return (self.config or json.loads((BUNDLED[self.name] / "config.json").read_text()))["vocab_size"]


def yarn(**more):
    return dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64, **more)


GEMMA3_ROPES = dict(
    pattern=2,
    final_logit_softcapping=2.0,
    rope_parameters=dict(
        full_attention=dict(rope_type="default", rope_theta=3e5),
        sliding_attention=dict(rope_type="default", rope_theta=700.0),
    ),
)
GEMMA4_ROPES = dict(
    pattern=2,
    rope_parameters=dict(
        full_attention=dict(rope_type="proportional", partial_rotary_factor=0.5, rope_theta=3e5, factor=4.0),
        sliding_attention=dict(rope_type="linear", rope_theta=700.0, factor=2.0),
    ),
)
LOCAL_ROPE = ("rope_theta", "rope_local_base_freq")
LONG = generator.long_rope(12)
ROWS = set(generator.rows())  # they compute what others do
SMALL = (96, 160, 2, 4, 2, 320, 256)


def newer(name, **rope):
    """The newer spelling: all about RoPE, theta too, in `rope_parameters`."""
    return Case(name, generator.llama(*SMALL, rope_parameters=rope), drop=("rope_theta",))


def make_cases():
    # Tokens go well past the windows and the original contexts of those that have one.
    lengths = {
        "tiny-linear-rope": 288,
        "tiny-yarn": 288,
        "tiny-window": 192,
        "tiny-ministral3": 256,
        "tiny-olmo3": 224,
        "tiny-gemma3": 224,
        "tiny-gpt-oss": 224,
        "tiny-gemma4": 192,
        "tiny-gemma4-e": 192,
        "tiny-lfm2": 304,
        "tiny-lfm2-moe": 304,
    }
    presets = {name: config for name, config in generator.PRESETS.items() if name.startswith("tiny-")}
    lengths |= dict.fromkeys([*ROWS, *classic.presets(), *mamba.presets()], 304)
    cases = [Case(name, config, n_tokens=lengths.get(name, 160)) for name, config in presets.items()]
    moe_step = generator.qwen3_moe(
        96, 200, 4, 4, 1, 320, 256, head_dim=24, experts=4, active=1, decoder_sparse_step=2, norm_topk_prob=True
    )
    rope_llama3 = generator.LLAMA3_ROPE | dict(factor=8.0, original_max_position_embeddings=64, rope_theta=500000.0)
    cases += [
        Case("bundled", None, "bf16", 192),
        Case("bundled-hybrid", None, "bf16", 304),
        Case("fp16-gqa", presets["tiny-gqa"], "fp16"),
        Case("bf16-bias", presets["tiny-bias"], "bf16"),
        Case("bf16-mixtral", presets["tiny-mixtral"], "bf16"),
        Case("attention-bias", generator.llama(*SMALL, attention_bias=True)),
        Case("mlp-bias", generator.llama(*SMALL, mlp_bias=True)),
        Case("headdim-80-mha", generator.llama(160, 200, 2, 2, 2, 320, 256)),
        Case("window-mqa", generator.mistral(96, 200, 3, 6, 1, 333, 256, head_dim=48, window=17)),
        Case("mixtral-3-of-5", generator.mixtral(96, 112, 2, 4, 2, 320, 256, experts=5, active=3)),
        Case("mixtral-window", generator.mixtral(*SMALL, experts=3, active=1) | dict(sliding_window=33)),
        newer("newer-default", rope_type="default", rope_theta=1e6),
        newer("newer-llama3", **rope_llama3),
        newer("newer-yarn", **yarn(rope_theta=10000.0)),
        Case("older-linear", generator.llama(*SMALL, rope_scaling=dict(type="linear", factor=2.5))),
        Case("yarn-attention-factor", generator.llama(*SMALL, rope_scaling=yarn(attention_factor=0.75))),
        Case("yarn-betas", generator.llama(*SMALL, rope_scaling=yarn(beta_fast=8.0, beta_slow=2.0, truncate=False))),
        Case(
            "qwen2-untied-window",
            generator.qwen2(*SMALL, sliding_window=40, use_sliding_window=True, max_window_layers=0),
        ),
        Case(
            "qwen2-two-windowed",
            generator.qwen2(
                96, 160, 4, 4, 2, 320, 256, sliding_window=40, use_sliding_window=True, max_window_layers=2
            ),
        ),
        Case("gemma2-bias", generator.gemma2(96, 160, 2, 4, 1, 320, 256, head_dim=64, attention_bias=True), "bf16"),
        Case("gemma3-parameters", generator.gemma3(*SMALL, head_dim=32, **GEMMA3_ROPES), "bf16", drop=LOCAL_ROPE),
        Case(
            "gemma4-bias",
            generator.gemma4(
                96,
                160,
                4,
                4,
                2,
                320,
                256,
                head_dim=32,
                full_dim=48,
                pattern=2,
                inputs=24,
                shared=2,
                attention_bias=True,
            ),
            "bf16",
        ),
        Case(
            "gemma4-values-are-keys-bias",
            generator.gemma4(
                96, 160, 4, 4, 2, 320, 256, head_dim=32, full_dim=48, full_kv=2, attention_bias=True, cap=None
            ),
        ),
        # Inputs, shared keys, experts and biases together, which no released model has.
        Case(
            "gemma4-all",
            generator.gemma4(
                96,
                112,
                8,
                6,
                3,
                320,
                256,
                window=19,
                pattern=2,
                head_dim=24,
                full_dim=40,
                full_kv=2,
                inputs=20,
                shared=3,
                experts=4,
                width=48,
                cap=None,
                attention_bias=True,
            ),
            "bf16",
        ),
        Case(
            "gemma4-stretched",
            generator.gemma4(
                96, 160, 4, 4, 2, 320, 256, head_dim=32, full_dim=32, inputs=16, wide=True, shared=1, **GEMMA4_ROPES
            ),
            "bf16",
        ),
        Case("olmo3-mqa", generator.olmo3(96, 160, 4, 4, 1, 320, 256, window=11), "bf16"),
        Case("phi3-short", generator.phi3(*SMALL, original_max_position_embeddings=60, rope_scaling=LONG), n_tokens=60),
        Case("phi3-long", generator.phi3(*SMALL, original_max_position_embeddings=60, rope_scaling=LONG), "bf16"),
        Case("glm4-no-bias", generator.glm4(*SMALL, head_dim=48, attention_bias=False, tied=True), "bf16"),
        Case("gpt-oss-mqa", generator.gpt_oss(96, 64, 4, 4, 1, 320, 256, head_dim=64, experts=3, active=2), "bf16"),
        Case(
            "glm4-moe-raw",
            generator.glm4_moe(
                96,
                160,
                3,
                4,
                2,
                320,
                256,
                norm_topk_prob=False,
                n_shared_experts=2,
                use_qk_norm=False,
                attention_bias=False,
                active=1,
                first_k_dense_replace=0,
            ),
            "bf16",
        ),
        Case("qwen3-bias", generator.qwen3(*SMALL, head_dim=40, attention_bias=True), "bf16"),
        Case(
            "granite-biases",
            generator.granite(*SMALL, embedding=1.0, attention=0.2, residual=1.0, attention_bias=True),
            "bf16",
        ),
        Case(
            "qwen3_5-bias",
            generator.qwen3_5(
                96,
                160,
                4,
                4,
                1,
                320,
                256,
                head_dim=32,
                key_heads=3,
                value_heads=3,
                key_dim=20,
                value_dim=24,
                conv=3,
                attention_bias=True,
                layer_types=["full_attention", *["linear_attention"] * 2, "full_attention"],
            ),
            "bf16",
        ),
        Case(
            "lfm2-bias",
            generator.lfm2(
                90, 160, 4, 3, 1, 320, 256, conv=5, conv_bias=True, tied=False, block_auto_adjust_ff_dim=False
            ),
            "bf16",
        ),
        Case("lfm2-indexes", generator.lfm2(*SMALL, conv=2, full_attn_idxs=[1]), drop=("layer_types",)),
        Case("lfm2-moe-raw", generator.lfm2_moe(96, 160, 4, 4, 2, 320, 256, norm_topk_prob=False, dense=2), "bf16"),
        Case(
            "kimi-linear-queries",
            generator.kimi_linear(
                96,
                160,
                6,
                4,
                4,
                320,
                512,
                kda=(4, 33, 4),
                full=(1, 5),
                q_rank=28,
                rank=36,
                active=1,
                norm_topk_prob=False,
            ),
            "bf16",
            304,
        ),
        Case("olmo2-mqa", generator.olmo2(96, 160, 2, 4, 1, 320, 256, attention_bias=True), "bf16"),
        Case("phi3-window", generator.phi3(*SMALL) | dict(sliding_window=47), "bf16"),
        Case(
            "smollm3-interval",
            generator.smollm3(
                96, 160, 4, 4, 2, 320, 256, no_rope_layer_interval=2, rope_scaling=yarn(), pad_token_id=0
            ),
        ),
        Case("qwen3-yarn", generator.qwen3(*SMALL, head_dim=16, rope_scaling=yarn())),
        Case("qwen3-moe-raw", generator.qwen3_moe(*SMALL, head_dim=32, experts=5, active=2, norm_topk_prob=False)),
        Case("qwen3-moe-step", moe_step, "bf16"),
        Case("stablelm-parallel", classic.stablelm(use_parallel_residual=True), "bf16"),
        Case("gpt-neox-one-by-one", classic.gpt_neox(use_parallel_residual=False, attention_bias=False), "bf16"),
        Case("falcon-two-norms", classic.falcon(new_decoder_architecture=True, num_kv_heads=2), "bf16"),
        Case("falcon-one-by-one", classic.falcon(multi_query=False, parallel_attn=False, bias=True)),
        Case("gpt-bigcode-heads", classic.bigcode() | dict(multi_query=False), "fp16"),
        Case("yarn-mscale", generator.llama(*SMALL, rope_scaling=yarn(mscale=0.9, mscale_all_dim=0.5))),
    ]
    return {case.name: case for case in cases}


def has_experts(case):
    return bool({"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"} & set(case.config or {}))


CASES = make_cases()


def token_ids(case):
    """Seeded ids, the same for whoever asks; they begin with bos, as texts do."""
    seed = int.from_bytes(hashlib.sha256(case.name.encode()).digest()[:4], "little")
    ids = np.random.default_rng(seed).integers(0, case.vocab, case.n_tokens)
    ids[0] = 1
    return ids.astype(np.int32)


def stored_positions(case):
    """Positions whose whole rows are stored: the second, the middle one, and the last."""
    return [1, case.n_tokens // 2, case.n_tokens - 1]


def stored_ids(case):
    """(n_tokens, IDS_PER_ROW) ids whose logits are stored: other ones at each position, so that all are met."""
    step = np.arange(IDS_PER_ROW) * case.vocab // IDS_PER_ROW
    return (step[None, :] + 37 * np.arange(case.n_tokens)[:, None]) % case.vocab


def write_model(case, out):
    """Writes the case's Hugging Face directory at `out`; a bundled one stays where it is. Returns the directory."""
    if case.config is None:
        return BUNDLED[case.name]
    arguments = ["random_hf_model.py", case.name, str(out), "--dtype", case.dtype]
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(generator.PRESETS, {case.name: case.config}))
        stack.enter_context(mock.patch.object(sys, "argv", arguments))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        generator.main()
    path = Path(out) / "config.json"
    config = {key: value for key, value in json.loads(path.read_text()).items() if key not in case.drop}
    path.write_text(json.dumps(config, indent=2) + "\n")
    return Path(out)


def weights_digest(directory):
    """SHA-256 of the tensors' bytes: the header is left out, so that only weights count."""
    data = (Path(directory) / "model.safetensors").read_bytes()
    (header,) = struct.unpack("<Q", data[:8])
    return hashlib.sha256(data[8 + header :]).hexdigest()
