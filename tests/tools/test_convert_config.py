"""What a directory's configuration becomes: RoPE, windows, defaults, and the facts of later families."""

import json
import math

import hf
import pytest


def config_of(convert, directory, **changes):
    hf.edit_json(directory / "config.json", **changes)
    return convert(directory)[0]["config"]


def rope_of(convert, directory, **changes):
    return config_of(convert, directory, **changes)["rope"]


@pytest.fixture
def plain(tiny, tmp_path):
    return hf.copy(tiny("tiny-gqa"), tmp_path / "plain")


@pytest.mark.parametrize("preset", ["tiny-gqa", "tiny-linear-rope", "tiny-llama3rope", "tiny-yarn"])
def test_spellings_of_rope_are_equal(preset, tiny, convert, tmp_path):
    directory = hf.copy(tiny(preset), tmp_path / preset)
    wanted = rope_of(convert, directory)
    source = json.loads((directory / "config.json").read_text())
    scaling = source.get("rope_scaling") or {"rope_type": "default"}
    legacy = {"type" if k == "rope_type" else k: v for k, v in scaling.items()}
    newer = dict(scaling, rope_theta=source["rope_theta"])
    assert rope_of(convert, directory, rope_scaling=legacy) == wanted
    assert rope_of(convert, directory, rope_scaling=..., rope_theta=..., rope_parameters=newer) == wanted


def test_yarn_as_transformers_resolves_it(plain, convert):
    yarn = {"rope_type": "yarn", "factor": 4.0}
    rope = rope_of(convert, plain, rope_scaling=yarn)
    assert rope["attention_factor"] == pytest.approx(0.1 * math.log(4) + 1)
    assert (rope["beta_fast"], rope["beta_slow"], rope["truncate"], rope["original_context"]) == (32, 1, True, 256)
    rope = rope_of(
        convert, plain, rope_scaling=dict(yarn, mscale=0.7, mscale_all_dim=1.1, truncate=False, beta_fast=16)
    )
    assert rope["attention_factor"] == pytest.approx((0.07 * math.log(4) + 1) / (0.11 * math.log(4) + 1))
    assert (rope["beta_fast"], rope["truncate"]) == (16, False)
    assert rope_of(convert, plain, rope_scaling=dict(yarn, attention_factor=1.5))["attention_factor"] == 1.5
    rope = rope_of(convert, plain, rope_scaling={"rope_type": "yarn", "original_max_position_embeddings": 64})
    assert rope["factor"] == 4


def test_missing_keys_have_transformers_values(tiny, convert, tmp_path):
    llama = hf.copy(tiny("tiny-llama"), tmp_path / "llama")
    absent = {
        k: ... for k in ("rope_theta", "rms_norm_eps", "num_key_value_heads", "tie_word_embeddings", "hidden_act")
    }
    c = config_of(convert, llama, max_position_embeddings=..., head_dim=None, **absent)
    assert (c["rope"]["theta"], c["norm_eps"], c["n_kv_heads"]) == (10000, 1e-6, 4)
    assert (c["context_length"], c["tied_embeddings"], c["head_dim"]) == (2048, False, 32)
    mistral = hf.copy(tiny("tiny-window"), tmp_path / "mistral")
    c = config_of(convert, mistral, sliding_window=..., rope_theta=..., max_position_embeddings=...)
    assert (c["sliding_window"], c["rope"]["theta"], c["context_length"]) == (4096, 10000, 131072)
    assert config_of(convert, mistral, sliding_window=None)["sliding_window"] == 0
    mixtral = hf.copy(tiny("tiny-mixtral"), tmp_path / "mixtral")
    c = config_of(convert, mixtral, rope_theta=..., sliding_window=..., num_experts_per_tok=...)
    assert (c["rope"]["theta"], c["sliding_window"], c["n_active_experts"]) == (1e6, 0, 2)


def test_windows_that_are_off(plain, tiny, convert, tmp_path):
    """Settings of other families that many tools leave in config.json."""
    c = config_of(convert, plain, use_sliding_window=False, sliding_window=None, max_window_layers=28)
    assert c["sliding_window"] == 0
    qwen = hf.copy(tiny("tiny-qwen2"), tmp_path / "qwen")
    assert config_of(convert, qwen, sliding_window=..., use_sliding_window=...)["sliding_window"] == 0
    assert (
        config_of(convert, qwen, use_sliding_window=True, sliding_window=9, max_window_layers=3)["sliding_window"] == 0
    )
    assert config_of(convert, qwen, max_window_layers=0)["sliding_window"] == 9
    hf.edit_json(qwen / "config.json", max_window_layers=1, sliding_window=256)
    metadata, _, err = convert(qwen)
    assert metadata["config"]["sliding_window"] == 0 and "no less than the context: left out" in err


def test_facts_of_later_families(tiny, convert, tmp_path):
    later = ("qkv_bias", "qk_norm", "expert_ffn_dim", "dense_layers", "raw_expert_weights", "unrotated_layers")
    later += ("attention_scale", "embedding_scale", "norms_after", "whole_qk_norm", "query_growth")
    later += ("norms_around", "attention_softcap", "logits_softcap", "router_bias", "sink_logits")
    later += ("sigmoid_router", "expert_scale", "shared_ffn_dim")
    facts = {}
    for preset in (
        "tiny-gqa",
        "tiny-qwen2",
        "tiny-qwen3",
        "tiny-qwen3-moe",
        "tiny-phi3",
        "tiny-smollm3",
        "tiny-granite",
        "tiny-olmo2",
        "tiny-ministral3",
        "tiny-glm4",
        "tiny-glm4-moe",
        "tiny-granite-moe",
        "tiny-gpt-oss",
        "tiny-olmo3",
        "tiny-gemma2",
        "tiny-gemma3",
    ):
        metadata, _, err = convert(tiny(preset))
        assert "warning" not in err.replace("model will take token ids only", "").replace("convert.py: warning", "", 1)
        facts[preset] = {key: metadata["config"][key] for key in later if key in metadata["config"]}
    assert facts == {
        "tiny-gqa": {},
        "tiny-qwen2": {"qkv_bias": True},
        "tiny-qwen3": {"qk_norm": True},
        "tiny-qwen3-moe": {"qk_norm": True, "expert_ffn_dim": 80, "dense_layers": [1]},
        "tiny-phi3": {},
        "tiny-smollm3": {"unrotated_layers": [1]},
        "tiny-ministral3": {"query_growth": 0.3},
        "tiny-olmo2": {"norms_after": True, "whole_qk_norm": True},
        "tiny-gpt-oss": {"router_bias": True, "sink_logits": True},
        "tiny-granite-moe": {"attention_scale": 0.03, "embedding_scale": 12 / 0.22},
        "tiny-glm4-moe": {
            "qkv_bias": True,
            "qk_norm": True,
            "expert_ffn_dim": 80,
            "dense_layers": [0],
            "sigmoid_router": True,
            "expert_scale": 1.5,
            "shared_ffn_dim": 80,
        },
        "tiny-glm4": {"norms_around": True, "qkv_bias": True},
        "tiny-olmo3": {"norms_after": True, "whole_qk_norm": True},
        "tiny-gemma2": {
            "attention_softcap": 2,
            "logits_softcap": 3,
            "norms_around": True,
            "embedding_scale": 128**0.5,
        },
        "tiny-gemma3": {
            "norms_around": True,
            "qk_norm": True,
            "embedding_scale": 128**0.5,
            "attention_scale": 40**-0.5,
        },
        "tiny-granite": {"attention_scale": 0.03, "embedding_scale": 12 / 0.22},
    }
    other = hf.copy(tiny("tiny-qwen3-moe"), tmp_path / "moe")
    assert config_of(convert, other, norm_topk_prob=...)["raw_expert_weights"] is True
    assert config_of(convert, other, num_local_experts=6, num_experts=...)["n_experts"] == 6
    other = hf.copy(tiny("tiny-smollm3"), tmp_path / "smollm3")
    assert config_of(convert, other, no_rope_layers=None)["unrotated_layers"] == [3]
    assert config_of(convert, other, no_rope_layer_interval=2)["unrotated_layers"] == [1, 3]
    assert "unrotated_layers" not in config_of(convert, other, no_rope_layer_interval=5)


def test_heads_that_rotate_in_part(tiny, convert, tmp_path):
    phi = hf.copy(tiny("tiny-phi4-mini"), tmp_path / "phi")
    rope = rope_of(convert, phi)
    assert (rope["type"], rope["rotary_dim"], len(rope["short_factors"]), rope["original_context"]) == (
        "longrope",
        24,
        12,
        64,
    )
    assert rope["attention_factor"] == pytest.approx(math.sqrt(1 + math.log(4) / math.log(64)))
    factors = {"short_factor": [1] * 16, "long_factor": [2.5] * 16}
    for name in ("su", "yarn", "longrope"):
        rope = rope_of(
            convert, phi, partial_rotary_factor=..., rope_scaling={"type": name, "attention_factor": 1.5, **factors}
        )
        assert (rope["type"], rope["attention_factor"], rope["long_factors"]) == ("longrope", 1.5, [2.5] * 16)
        assert "rotary_dim" not in rope
    glm = hf.copy(tiny("tiny-glm4"), tmp_path / "glm4")
    assert rope_of(convert, glm, partial_rotary_factor=...)["rotary_dim"] == 20
    assert "rotary_dim" not in rope_of(convert, glm, partial_rotary_factor=1.0)
    assert "qkv_bias" in config_of(convert, glm, attention_bias=...)


def test_layers_of_two_kinds(tiny, convert, tmp_path):
    plain, scaled = {"type": "default", "theta": 10000}, {"type": "linear", "theta": 1e6, "factor": 4}
    gemma = hf.copy(tiny("tiny-gemma3"), tmp_path / "gemma3")
    c = config_of(convert, gemma)
    assert (c["sliding_window"], c["rope"]) == (0, scaled)
    assert c["kinds"] == [{"layers": [0, 1, 3], "sliding_window": 24, "rope": plain}]
    # By the pattern alone; of its own value where there is none.
    c = config_of(convert, gemma, layer_types=..., sliding_window_pattern=2)
    assert c["kinds"][0]["layers"] == [0, 2]
    c = config_of(convert, gemma, sliding_window_pattern=..., num_hidden_layers=4)
    assert "kinds" not in c and (c["sliding_window"], c["rope"]) == (24, plain)
    # The newer spelling has both in one place.
    both = {"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_type": "linear", "factor": 2}}
    c = config_of(convert, gemma, rope_theta=..., rope_scaling=..., rope_local_base_freq=..., rope_parameters=both)
    assert c["rope"] == {"type": "linear", "theta": 10000, "factor": 2}
    c = config_of(convert, gemma, layer_types=["full_attention"] * 4)
    assert "kinds" not in c and c["sliding_window"] == 0 and c["rope"] == {"type": "default", "theta": 5e5}
    qwen = hf.copy(tiny("tiny-qwen2"), tmp_path / "qwen2")
    c = config_of(convert, qwen, use_sliding_window=True, sliding_window=9, max_window_layers=1)
    assert c["kinds"] == [{"layers": [1, 2], "sliding_window": 9, "rope": c["rope"]}] and c["sliding_window"] == 0


def test_eos(plain, convert):
    assert config_of(convert, plain, eos_token_id=[2, 7, 7])["eos"] == [2, 7]
    hf.edit_json(plain / "generation_config.json", eos_token_id=[5, 6])
    assert config_of(convert, plain)["eos"] == [5, 6]
    hf.edit_json(plain / "generation_config.json", eos_token_id=8)
    assert config_of(convert, plain)["eos"] == [8]
    hf.edit_json(plain / "generation_config.json", eos_token_id=...)
    c = config_of(convert, plain, eos_token_id=None, bos_token_id=None)
    assert (c["bos"], c["eos"]) == (-1, [])


def test_unknown_keys_that_say_nothing_of_the_computation_are_warned_of(plain, convert):
    hf.edit_json(plain / "config.json", favourite_colour="blue", use_cache=False, qk_norm=False, pretraining_tp=2)
    err = convert(plain)[2]
    assert 'config.json: "favourite_colour" is not known, and ignored' in err and err.count("warning") == 2


def test_hunyuan_as_it_is_released(tiny, convert, tmp_path):
    """Dense models' configs have what mixtures are told by; a mixture's factor of the experts is switched off."""
    mixture = {
        "num_experts": 1, "moe_topk": [1] * 4, "moe_intermediate_size": [200] * 4, "num_shared_expert": [1] * 4,
        "moe_layer_num_skipped": 0, "use_mixed_mlp_moe": False, "norm_topk_prob": True, "routed_scaling_factor": False,
    }  # fmt: skip
    for preset, keys in (("hunyuan", mixture), ("hunyuan-moe", {"routed_scaling_factor": False})):
        directory = hf.copy(tiny(f"tiny-{preset}"), tmp_path / preset)
        plain = convert(directory)[0]["config"]
        hf.edit_json(directory / "config.json", **keys)
        metadata, _, err = convert(directory)
        assert metadata["config"] == plain and "not known" not in err


def test_context_of_padded_vocabulary(tmp_path, convert):
    directory = hf.make("tiny-gqa", tmp_path / "padded", "--vocab", "4160", "--tokenizer", str(hf.FABLE))
    metadata, _, err = convert(directory)
    assert metadata["config"]["vocab_size"] == 4160 and "warning" not in err
