"""config.json and generation_config.json, as the `config` of docs/format.md.

Keys that are missing are what transformers takes them to be for the architecture. Keys that change the computation in
a way that the format cannot say are refused by name; those that say nothing about it are passed over; others are
warned of.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional

from .architectures import ARCHITECTURES, FOREIGN, HARMLESS, READ, READ_GRANITE, READ_MAMBA, READ_MOE, READ_UNROTATED
from .classic import read_classic, usual_values
from .convolution import convolves, read_convolutions
from .encoders import activation, halve_windows, read_encoder, read_modern
from .errors import ModelError
from .gemma4 import is_gemma4, read_gemma4
from .latent import read_latent, rope_keys
from .layers import read_kinds
from .mamba import read_multipliers, scan_values
from .multimodal import is_whole, text_config
from .plan import UNCHANGED, Changes
from .recurrent import attention_keys, has_recurrent, read_recurrent
from .refused import why_not
from .routed import read_dense
from .source import alike, locate, read_json, shown
from .tokenizer import TokenizerData

MAX_EOS = 16


class Keys:
    """The members of one object of config.json, read by type. A member that is null is one that is not there."""

    def __init__(self, path: Path, values: dict, defaults: dict, prefix: str = ""):
        self.path, self.values, self.defaults, self.prefix = path, values, defaults, prefix

    def inner(self, key: str, values: dict) -> "Keys":
        return Keys(self.path, values, {}, f"{key}.")

    def but(self, values: dict) -> "Keys":
        """The same with other members."""
        return Keys(self.path, values, self.defaults, self.prefix)

    def error(self, text: str) -> ModelError:
        return ModelError(f"{self.path}: {self.prefix}{text}")

    def _get(self, key: str, default: Any, ok, expected: str, required: bool = False) -> Any:
        value = self.values.get(key)
        if value is None and not required:
            return default
        if value is None or not ok(value):
            found = "nothing" if value is None else shown(value)
            raise self.error(f"{key}: found {found}, expected {expected}")
        return value

    def string(self, key: str, default: Optional[str]) -> Optional[str]:
        return self._get(key, default, lambda v: isinstance(v, str), "a string")

    def flag(self, key: str, default: bool) -> bool:
        return self._get(key, default, lambda v: isinstance(v, bool), "true or false")

    def object(self, key: str) -> dict:
        return self._get(key, {}, lambda v: isinstance(v, dict), "an object")

    def integer(self, key: str, default: Any, low: int, high: int = 1 << 28) -> Any:
        return self._get(
            key, default, lambda v: _is_integer(v) and low <= v <= high, f"an integer from {low} to {high}"
        )

    def number(
        self, key: str, default: Optional[float], low: float, high: float, required: bool = False
    ) -> Optional[float]:
        def ok(v: Any) -> bool:
            return isinstance(v, (int, float)) and not isinstance(v, bool) and low <= v <= high

        value = self._get(key, default, ok, f"a number from {low:g} to {high:g}", required)
        return None if value is None else float(value)

    def agree(self, key: str, value: Any, other_key: str, other: Any, default: Any) -> Any:
        """One value that may stand in two places."""
        if value is not None and other is not None and value != other:
            raise self.error(f"{key} is {shown(value)}, but {other_key} is {shown(other)}")
        return value if value is not None else other if other is not None else default


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass
class ModelConfig:
    facts: dict  # the metadata's `config`; bos and eos come last, with finish()
    keys: Keys
    generation: Optional[Keys]
    warnings: list
    changes: Changes = UNCHANGED  # of the weights, on their way
    quantization: Optional[dict] = None  # quantization_config, for prequantised.unpack()
    part: bool = False  # of a model that sees: its tensors are to be found by multimodal.text_tensors()

    def finish(self, tokenizer: TokenizerData) -> None:
        """bos is the tokenizer's, where it has one, for it begins the texts; eos is generation_config.json's before
        all others."""
        vocab = self.facts["vocab_size"]
        sources = [k for k in (self.generation, self.keys) if k]
        stated = [(f"{k.path}: bos_token_id", k.integer("bos_token_id", None, 0, vocab - 1)) for k in sources]
        stated = [(where, bos) for where, bos in stated if bos is not None]
        for where, bos in stated:
            if tokenizer.bos is not None and bos != tokenizer.bos:
                self.warnings.append(f"{where} is {bos}, but the tokenizer's is {tokenizer.bos}, which is used")
        if tokenizer.bos is not None:
            self.facts["bos"] = tokenizer.bos
        else:
            self.facts["bos"] = stated[0][1] if stated else -1
        lists = [_eos(k, vocab) for k in sources] + [list(tokenizer.eos)]
        self.facts["eos"] = next((ids for ids in lists if ids), [])
        if not self.facts["eos"] and not self.facts.get("bidirectional"):
            self.warnings.append(
                f"{self.keys.path}: no token that ends a text is named: generation stops at its limit only"
            )


def _eos(keys: Keys, vocab: int) -> list:
    value = keys.values.get("eos_token_id")
    ids = [] if value is None else value if isinstance(value, list) else [value]
    ids = [i for n, i in enumerate(ids) if i not in ids[:n]]
    if len(ids) > MAX_EOS or not all(_is_integer(i) and 0 <= i < vocab for i in ids):
        raise keys.error(f"eos_token_id: found {shown(value)}, expected at most {MAX_EOS} ids from 0 to {vocab - 1}")
    return ids


def read_config(model_dir: Path) -> ModelConfig:
    path = locate(model_dir, "config.json")
    if path is None:
        raise ModelError(f"{model_dir}: {_what_it_is(model_dir)}")
    generation = locate(model_dir, "generation_config.json")
    later = Keys(generation, read_json(generation), {}) if generation else None
    values = read_json(path)
    values.pop("tiled_value_heads", None)  # which GGUF files say alone
    return model_config(values, path, later)


def model_config(values: dict, path: Path, later: Optional[Keys] = None) -> ModelConfig:
    """values: what config.json has; path: where they stand; later: generation_config.json."""
    whole = is_whole(values)
    if whole:
        values = text_config(values, {name: known.model_type for name, known in ARCHITECTURES.items()}, path)
    name = _architecture(values, path)
    architecture = ARCHITECTURES[name]
    values = usual_values(_usual_keys(values, architecture.keys, path), architecture.defaults)
    values, defaults, blocks, names = scan_values(values, architecture.defaults, path)
    keys = Keys(path, values, defaults)
    warnings: list = []
    for key, value in architecture.told:
        known = value if isinstance(value, tuple) else (value,)
        if keys.values.get(key) not in (*known, None):
            raise keys.error(f"{key}: found {shown(keys.values[key])}, expected {shown(known[0])}")
    _check_unknown(keys, warnings, {key for key, _ in architecture.told})
    facts = {
        "architecture": name,
        "activation": (activation if {"layer_norm", "ungated"} & set(architecture.facts) else _activation)(keys),
    }
    facts.update(_sizes(rope_keys(keys) if "kv_lora_rank" in keys.defaults else keys))
    facts["norm_eps"] = keys.number("rms_norm_eps", keys.defaults["rms_norm_eps"], 1.2e-38, 1)
    if "mup_enabled" in keys.defaults and keys.flag("mup_enabled", keys.defaults["mup_enabled"]):
        facts["embedding_scale"] = facts["hidden_dim"] ** 0.5
    if "llama_4_scaling" in keys.defaults:
        facts.update(_query_growth(keys))
    attending = rope_keys(keys) if "kv_lora_rank" in keys.defaults else keys
    attending = attention_keys(attending) if has_recurrent(keys) or convolves(keys) else attending
    if is_gemma4(keys):
        facts.update(read_gemma4(keys, facts, warnings))
    else:
        facts.update(read_kinds(attending, architecture.window, name, facts, warnings))
    if "kv_lora_rank" in keys.defaults:
        facts.update(read_latent(keys, facts))
    for kind in [facts, *facts.get("kinds", [])]:
        if kind["rope"]["type"] not in architecture.ropes:
            raise keys.error(f"RoPE type {shown(kind['rope']['type'])} is not supported with {name}")
    if has_recurrent(keys):
        facts.update(read_recurrent(keys, facts))
    if convolves(keys):
        facts.update(read_convolutions(keys, facts))
    if "use_bidirectional_attention" in keys.defaults and not is_gemma4(keys):
        _gemma(keys, facts)
    logits_scale = _scales(keys, facts) if "logits_scaling" in keys.defaults else 1.0
    if "no_rope_layer_interval" in keys.defaults:
        facts.update(_unrotated(keys, facts["n_layers"]))
    if not is_gemma4(keys):
        facts.update(_experts(keys, facts))
    facts["tied_embeddings"] = keys.flag("tie_word_embeddings", keys.defaults.get("tie_word_embeddings", False))
    for key in ("attention_bias", "mlp_bias"):
        facts[key] = keys.flag(key, keys.defaults.get(key, False))
        if facts[key] and key not in architecture.biases:
            raise keys.error(f"{key} is true, which {name} does not have")
    if "use_qk_norm" in keys.defaults and keys.flag("use_qk_norm", False):
        facts["qk_norm"] = True
    if "qkv_bias" in keys.defaults:
        facts["qkv_bias"] = keys.flag("qkv_bias", keys.defaults["qkv_bias"])
    out = keys.flag("attention_out_bias", False) if "attention_out_bias" in keys.defaults else not architecture.only_qkv
    if out and architecture.only_qkv and not facts["attention_bias"]:
        raise keys.error("attention_out_bias is true without attention_bias, which is not supported")
    if facts["attention_bias"] and not out:
        facts.update(attention_bias=False, qkv_bias=True)
    facts.update(dict.fromkeys(architecture.facts, True))
    logits_scale *= read_classic(keys, facts)
    if "type_vocab_size" in keys.defaults:
        read_encoder(keys, facts, name)
    if "norm_bias" in keys.defaults:
        read_modern(keys, facts, name)
    facts.update(bos=-1, eos=[])
    factors, scale = read_multipliers(keys, facts, warnings) if "ssm_multipliers" in keys.defaults else ((), 1.0)
    changes = replace(architecture.changes, logits_scale=logits_scale * scale, blocks=blocks, factors=factors)
    changes = replace(changes, names=(*changes.names, *names))
    if "rope_interleave" in keys.defaults:
        changes = replace(changes, pairs=keys.flag("rope_interleave", True))
    quantization = keys.object("quantization_config") or None
    return ModelConfig(facts, keys, later, warnings, changes, quantization, whole)


def _usual_keys(values: dict, names: tuple, path: Path) -> dict:
    """Keys that the architecture has under names of its own, under the usual ones."""
    found = dict(values)
    for theirs, usual in names:
        if theirs not in found:
            continue
        value = alike(found.pop(theirs))
        for key in usual:
            if found.setdefault(key, value) != value:
                raise ModelError(f"{path}: {theirs} is {shown(value)}, but {key} is {shown(found[key])}")
    return found


def _architecture(values: dict, path: Path) -> str:
    names = values.get("architectures")
    if names is None:  # older files have the type alone
        named = [name for name, known in ARCHITECTURES.items() if known.model_type == values.get("model_type")]
        names = named[:1] or None
    if names not in [[name] for name in ARCHITECTURES]:
        found = "nothing" if names is None else shown(names)
        first = names[0] if isinstance(names, list) and len(names) == 1 else ""
        raise ModelError(f"{path}: architectures: {found} is not supported: {why_not(first)}")
    expected = ARCHITECTURES[names[0]].model_type
    kind = values.get("model_type", expected)
    if kind != expected and kind not in ARCHITECTURES[names[0]].also:
        raise ModelError(f"{path}: model_type {shown(kind)} is not supported with {names[0]}, expected {expected!r}")
    return names[0]


def _what_it_is(model_dir: Path) -> str:
    """Says what a directory without config.json looks like, and what to do about it."""
    adapter = locate(model_dir, "adapter_config.json")
    if adapter:
        base = read_json(adapter).get("base_model_name_or_path")
        return f"an adapter (LoRA) for {shown(base)}, not a model: give that model, and this directory with --lora"
    if locate(model_dir, "params.json"):
        return (
            "params.json without config.json: a model in the form of its maker (Mistral or Meta): convert the same model's"
            " Hugging Face form, which has config.json and model*.safetensors"
        )
    if any(model_dir.glob("*.gguf")):
        return "GGUF files without config.json: give one of these files, in place of the directory"
    return "no config.json: not a Hugging Face model directory"


def _check_unknown(keys: Keys, warnings: list, told: set) -> None:
    if keys.values.get("auto_map"):
        warnings.append(f"{keys.path}: auto_map names program text of the model's own; it is not run")
    read = READ | (READ_MOE if "moe_intermediate_size" in keys.defaults else set())
    read |= set(keys.defaults) | told
    read |= READ_GRANITE if "logits_scaling" in keys.defaults else set()
    read |= READ_MAMBA if "mamba_d_state" in keys.defaults else set()
    read |= READ_UNROTATED if "no_rope_layer_interval" in keys.defaults else set()
    for key, value in keys.values.items():
        if key in FOREIGN - read and value and (value is True or value != 1.0):
            raise keys.error(f"{shown(key)} is {shown(value)}, which is not supported")
        if key not in read | HARMLESS | FOREIGN and value is not None:
            warnings.append(f"{keys.path}: {shown(key)} is not known, and ignored")


def _activation(keys: Keys) -> str:
    """The activation in the format's words. Gemma 2 and later have it under a name of their own; the usual name means
    nothing there. Gemma 1's releases say "gelu", and transformers reads that as the other."""
    if "swiglu_limit" in keys.defaults:
        for key in ("swiglu_limit", "swiglu_alpha"):
            if keys.number(key, keys.defaults[key], 0, 1e9) != keys.defaults[key]:
                raise keys.error(f"{key}: found {shown(keys.values[key])}, expected {keys.defaults[key]}")
    key = "hidden_activation" if "hidden_activation" in keys.defaults else "hidden_act"
    expected = keys.defaults.get(key, "silu")
    name = keys.string(key, expected)
    if name != expected and (name, expected, key) != ("gelu", "gelu_pytorch_tanh", "hidden_act"):
        raise keys.error(f"{key}: activation {shown(name)} is not supported, expected {expected!r}")
    return "clamped" if "swiglu_limit" in keys.defaults else "silu" if expected == "silu" else "gelu_tanh"


def _sizes(keys: Keys) -> dict:
    def size(key: str, high: int) -> int:
        return keys.integer(key, keys.defaults[key], 1, high)

    hidden, heads = size("hidden_size", 1 << 20), size("num_attention_heads", 1 << 14)
    kv_heads = size("num_key_value_heads", 1 << 14) or heads
    head_dim = keys.integer("head_dim", keys.defaults.get("head_dim"), 1, 1 << 12)
    if head_dim is None:
        if hidden % heads:
            raise keys.error(
                f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}, and there is no head_dim"
            )
        head_dim = hidden // heads
    if head_dim % 2:
        raise keys.error(f"head_dim is {head_dim}, expected an even number")
    if heads % kv_heads:
        raise keys.error(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    return {
        "n_layers": size("num_hidden_layers", 1 << 10),
        "hidden_dim": hidden,
        "ffn_dim": size("intermediate_size", 1 << 20) or 4 * hidden,
        "n_heads": heads,
        "n_kv_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": size("vocab_size", 1 << 24),
        "context_length": size("max_position_embeddings", 1 << 28),
    }


def _gemma(keys: Keys, facts: dict) -> None:
    """Gemma's scales and bounds of scores, logits and embedding."""
    if "query_pre_attn_scalar" in keys.defaults:
        scalar = keys.number("query_pre_attn_scalar", keys.defaults["query_pre_attn_scalar"], 1e-3, 1e6)
        if scalar != facts["head_dim"]:
            facts["attention_scale"] = scalar**-0.5
    facts["embedding_scale"] = facts["hidden_dim"] ** 0.5
    for key, fact in (("attn_logit_softcapping", "attention_softcap"), ("final_logit_softcapping", "logits_softcap")):
        if key not in keys.defaults:
            continue
        cap = keys.number(key, None if key in keys.values else keys.defaults[key], 1e-3, 1e6)
        if cap is not None and keys.defaults[key] is None and fact == "attention_softcap":
            raise keys.error(f"{key} is {cap:g}, which transformers leaves out of this architecture")
        if cap is not None:
            facts[fact] = cap
    if keys.flag("use_bidirectional_attention", False):
        if "sliding_window_pattern" not in keys.defaults or keys.defaults["attn_logit_softcapping"] is not None:
            raise keys.error("use_bidirectional_attention is true, which is supported with Gemma 3 alone")
        facts["bidirectional"] = True
        facts.pop("logits_softcap", None)  # of logits, which there are none of
        halve_windows(facts)


def _query_growth(keys: Keys) -> dict:
    """Takes llama_4_scaling_beta out of RoPE's settings, where it stands without being one."""
    rope = dict(keys.object("rope_parameters") or keys.object("rope_scaling"))
    if not rope:
        raise keys.error("rope_parameters: found nothing, expected them with llama_4_scaling_beta")
    inner = keys.inner("rope_parameters", rope)
    growth = inner.number("llama_4_scaling_beta", None, 0, 1e3, required=True)
    context = inner.integer("original_max_position_embeddings", None, 1)
    if context is None:
        raise inner.error("original_max_position_embeddings: found nothing, expected an integer")
    kept = {key: value for key, value in rope.items() if key not in ("llama_4_scaling_beta", "max_position_embeddings")}
    keys.values = {**keys.values, "rope_parameters": kept, "rope_scaling": None}
    return {"query_growth": growth, "query_growth_context": context} if growth else {}


def _scales(keys: Keys, facts: dict) -> float:
    """Granite's multipliers. Returns what the last norm's weights are multiplied by.

    Dividing the residual stream by residual_multiplier leaves all that is computed from it as it was, for it is
    normalised first. Then branches are added whole, the embedding is larger by so much, and eps by the square.
    """
    given = {key: keys.number(key, keys.defaults[key], 1e-6, 1e6) for key in sorted(READ_GRANITE)}
    residual = given["residual_multiplier"]
    facts["norm_eps"] /= residual**2
    if facts["norm_eps"] > 1:
        raise keys.error(f"residual_multiplier {residual} is too small for rms_norm_eps")
    facts["attention_scale"] = given["attention_multiplier"]
    if given["embedding_multiplier"] != residual:
        facts["embedding_scale"] = given["embedding_multiplier"] / residual
    return 1 / given["logits_scaling"]


def _unrotated(keys: Keys, n_layers: int) -> dict:
    """Layers without RoPE: those with a 0 in no_rope_layers, which says 1 of those that have it."""
    step = keys.integer("no_rope_layer_interval", keys.defaults["no_rope_layer_interval"], 1)
    flags = keys.values.get("no_rope_layers")
    flags = [int((n + 1) % step != 0) for n in range(n_layers)] if flags is None else flags
    if not isinstance(flags, list) or len(flags) != n_layers or not all(flag in (0, 1) for flag in flags):
        raise keys.error(f"no_rope_layers: found {shown(flags)}, expected 0 or 1 for each of {n_layers} layers")
    unrotated = [n for n, flag in enumerate(flags) if not flag]
    return {"unrotated_layers": unrotated} if unrotated else {}


def _active(keys: Keys, experts: int) -> int:
    active = keys.integer("num_experts_per_tok", keys.defaults["num_experts_per_tok"], 1, experts)
    if active > experts:  # the default is checked nowhere else
        raise keys.error(
            f"num_experts_per_tok: found nothing, and the default {active} is more than the {experts} experts"
        )
    return active


def _experts(keys: Keys, facts: dict) -> dict:
    defaults = keys.defaults
    if "moe_intermediate_size" in defaults:
        return _own_experts(keys, facts)
    if "num_local_experts" not in defaults:
        for key in ("num_local_experts", "num_experts_per_tok"):
            if keys.integer(key, 0, 0):
                raise keys.error(f"{key} is {keys.values[key]}, but the architecture has no experts")
        return {"n_experts": 0, "n_active_experts": 0}
    experts = keys.integer("num_local_experts", defaults["num_local_experts"], 1, 1 << 10)
    found = {
        "n_experts": experts,
        "n_active_experts": _active(keys, experts),
    }
    if "norm_topk_prob" in defaults and not keys.flag("norm_topk_prob", defaults["norm_topk_prob"]):
        found["raw_expert_weights"] = True
    shared = keys.integer("shared_intermediate_size", 0, 0, 1 << 20) if "shared_intermediate_size" in defaults else 0
    return {**found, "shared_ffn_dim": shared} if shared else found


def _own_experts(keys: Keys, facts: dict) -> dict:
    """Experts of a width of their own, in some layers or in all."""
    named = keys.integer("num_experts", None, 1, 1 << 10)  # transformers reads either name
    if "n_routed_experts" in keys.defaults:
        named = keys.integer("n_routed_experts", named, 1, 1 << 10)
    experts = keys.agree(
        "num_experts", named, "num_local_experts", keys.integer("num_local_experts", None, 1, 1 << 10),
        keys.defaults["num_experts"],
    )  # fmt: skip
    if experts is None:
        raise keys.error("n_routed_experts: found nothing, expected an integer")
    width = keys.integer("moe_intermediate_size", keys.defaults["moe_intermediate_size"], 1, 1 << 20)
    dense = read_dense(keys, facts["n_layers"])
    found = {
        "n_experts": experts,
        "n_active_experts": _active(keys, experts),
        "expert_ffn_dim": width,
    }
    if dense:
        found["dense_layers"] = dense
    always = "norm_topk_prob" not in keys.defaults  # whatever the key says
    if not always and not keys.flag("norm_topk_prob", keys.defaults["norm_topk_prob"]):
        found["raw_expert_weights"] = True
    if "n_shared_experts" in keys.defaults:
        found.update(_scored_experts(keys, width))
    if "shared_expert_intermediate_size" in keys.defaults:
        key = "shared_expert_intermediate_size"
        found["shared_ffn_dim"] = keys.integer(key, keys.defaults[key], 1, 1 << 20)
    return found


def _groups(keys: Keys, by_softmax: bool) -> dict:
    """Groups of experts of which the best are asked. Of softmaxes DeepSeek-V2 alone has such, where topk_method says
    so."""
    n, active = (keys.integer(key, keys.defaults.get(key) or 1, 1, 1 << 10) for key in ("n_group", "topk_group"))
    method = keys.string("topk_method", "greedy") if "topk_method" in keys.defaults else None
    if method not in (None, "greedy", "group_limited_greedy"):
        raise keys.error(f"topk_method: found {shown(method)}, expected 'greedy' or 'group_limited_greedy'")
    if active > n:
        raise keys.error(f"topk_group: found {active}, expected at most n_group = {n}")
    if method == "greedy" or active == n:
        return {}
    if by_softmax and method is None:
        raise keys.error(f"n_group is {n}: choosing among groups of experts by their softmax is not supported")
    return {"n_expert_groups": n, "n_active_groups": active}


def _scored_experts(keys: Keys, width: int) -> dict:
    """GLM-4's and DeepSeek's, beside some that all tokens go through: those are one, as wide as they are together."""
    by_softmax = keys.defaults.get("scoring_func") == "softmax"
    found: dict = {} if by_softmax else {"sigmoid_router": True}
    found.update(_groups(keys, by_softmax))
    scale = keys.number("routed_scaling_factor", keys.defaults.get("routed_scaling_factor", 1.0), 1e-6, 1e6)
    shared = keys.integer("n_shared_experts", keys.defaults["n_shared_experts"], 0, 1 << 10)
    if scale != 1:
        found["expert_scale"] = scale
    if keys.defaults.get("expert_eps") and keys.flag("norm_topk_prob", True):
        found["expert_eps"] = keys.defaults["expert_eps"]
    if "moe_norm_min" in keys.defaults:  # Ernie's
        found["expert_eps"] = keys.number("moe_norm_min", keys.defaults["moe_norm_min"], 1.2e-38, 1)
    if shared:
        found["shared_ffn_dim"] = shared * width
    if "moe_shared_expert_intermediate_size" in keys.defaults:  # Nemotron's, whatever their number
        key = "moe_shared_expert_intermediate_size"
        found["shared_ffn_dim"] = keys.integer(key, keys.defaults[key], 1, 1 << 20)
    return found
