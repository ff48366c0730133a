"""Gemma 4 in GGUF files: two kinds of layers, whose heads, KV heads and mlp's width the settings have apart or layer
by layer."""

from .errors import ModelError
from .gemma4 import FULL, SLIDING
from .gguf_file import GgufFile
from .source import shown

SETTINGS = {
    "attention.key_length": "global_head_dim",
    "attention.key_length_swa": "head_dim",
    "attention.shared_kv_layers": "num_kv_shared_layers",
    "embedding_length_per_layer_input": "hidden_size_per_layer_input",
    "expert_count": "num_experts",
    "expert_used_count": "top_k_experts",
    "expert_feed_forward_length": "moe_intermediate_size",
}
# Of tensors; what has a dot is the whole end of the name.
NAMES = {
    "post_ffw_norm_1": "post_feedforward_layernorm_1",
    "post_ffw_norm_2": "post_feedforward_layernorm_2",
    "pre_ffw_norm_2": "pre_feedforward_layernorm_2",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    "layer_output_scale.weight": "layer_scalar",
    "ffn_gate_inp": "router.proj",
    "ffn_gate_inp.scale": "router.scale",
    "ffn_down_exps.scale": "router.per_expert_scale",
}


def complete(file: GgufFile, values: dict, frequencies: object) -> None:
    """Puts into values, which have a setting each, what config.json says instead. frequencies: what RoPE's are
    divided by, if the file has it."""
    types = values.get("layer_types")
    if not isinstance(types, list):
        raise _error(file, "attention.sliding_window_pattern: expected true or false for each layer")
    _heads(file, values, types)
    _widths(file, values, len(types))
    values["vocab_size_per_layer_input"] = values["vocab_size"]
    values["enable_moe_block"] = bool(values.get("num_experts"))
    for key, value in (("rope.scaling.type", "none"), ("rope.scale_linear", 1.0)):
        if file.get(f"gemma4.{key}", value) != value:
            raise _error(file, f"{key} is {shown(file.get(f'gemma4.{key}'))}, which is not supported")
    values["rope_parameters"] = {
        FULL: {
            "rope_type": "proportional",
            "rope_theta": values.pop("rope_theta", 1e6),
            "partial_rotary_factor": _rotated(file, values, frequencies),
        },
        SLIDING: {"rope_type": "default", "rope_theta": file.get("gemma4.rope.freq_base_swa", 1e4)},
    }


def _error(file: GgufFile, text: str) -> ModelError:
    return ModelError(f"{file.path}: gemma4.{text}")


def _heads(file: GgufFile, values: dict, types: list) -> None:
    for end, width in (("", "global_head_dim"), ("_swa", "head_dim")):
        for key in (f"attention.value_length{end}", f"rope.dimension_count{end}"):
            if file.get(f"gemma4.{key}", values.get(width)) != values.get(width):
                raise _error(file, f"{key} is {shown(file.get(f'gemma4.{key}'))}, expected {shown(values.get(width))}")
    counts = values.get("num_key_value_heads")
    if isinstance(counts, list):
        by_kind = {kind: {n for n, of in zip(counts, types) if of == kind} for kind in (FULL, SLIDING)}
        if not counts or len(counts) != len(types) or any(len(found) > 1 for found in by_kind.values()):
            raise _error(
                file, f"attention.head_count_kv: found {shown(counts)}, expected one number for a kind of layers"
            )
        values["num_global_key_value_heads"] = max(by_kind[FULL], default=counts[-1])
        values["num_key_value_heads"] = max(by_kind[SLIDING], default=counts[-1])
        values["attention_k_eq_v"] = True  # or nobody would read the latter; whether there is a v the tensors say


def _widths(file: GgufFile, values: dict, n_layers: int) -> None:
    widths = values.get("intermediate_size")
    if isinstance(widths, list):
        shared = values.get("num_kv_shared_layers", 0)
        if (
            not widths
            or not isinstance(shared, int)
            or widths != [widths[0]] * (n_layers - shared) + [2 * widths[0]] * shared
        ):
            raise _error(
                file, f"feed_forward_length: found {shown(widths)}, expected twice as much where keys are shared"
            )
        values["intermediate_size"], values["use_double_wide_mlp"] = widths[0], True


def _rotated(file: GgufFile, values: dict, frequencies: object) -> float:
    """The part of a head that rotates in layers that see everything: the rest has its frequencies divided by 1e30."""
    n = sum(factor == 1 for factor in frequencies or ())
    if (
        not n
        or list(frequencies) != [1.0] * n + [frequencies[-1]] * (len(frequencies) - n)
        or not (frequencies[-1] == 1 or frequencies[-1] > 1e20)
        or 2 * len(frequencies) != values.get("global_head_dim")
    ):
        raise ModelError(
            f"{file.path}: tensor 'rope_freqs.weight': expected 1 for the components of a head that rotate, and 1e30 for "
            f"the others"
        )
    return n / len(frequencies)
