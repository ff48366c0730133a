"""What GGUF files say of models with Mamba-2's scans: Granite's (granitehybrid), Bamba, which has that name and rotates q and
k, Falcon's (falcon-h1) and Nemotron's (nemotron_h, nemotron_h_moe)."""

import math

from .errors import ModelError

SETTINGS = {
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state",
    "ssm.group_count": "mamba_n_groups",
    "ssm.time_step_rank": "mamba_n_heads",
}
PARTS = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_dt": "dt", "ssm_a": "A", "ssm_d": "D", "ssm_norm": "norm"}
PARTS |= {"ssm_out": "out_proj"}
GRANITE = {part: f"mamba.{name}" for part, name in PARTS.items()}
# A block is one mixer and its norm.
NEMOTRON = {
    "attn_norm": "norm", **{part: f"mixer.{name}" for part, name in PARTS.items()},
    **{f"attn_{part}": f"mixer.{part[0]}_proj" for part in ("q", "k", "v", "output")},
    "ffn_up": "mixer.up_proj", "ffn_down": "mixer.down_proj", "ffn_gate_inp": "mixer.gate",
    "exp_probs_b": "mixer.gate.e_score_correction_bias",
    **{f"ffn_{part}_shexp": f"mixer.shared_experts.{part}_proj" for part in ("up", "down")},
}  # fmt: skip


def is_scan(family) -> bool:
    return family.settings.get("ssm.time_step_rank") == "mamba_n_heads"


def flat(name: str, tensor):
    """Vectors that stand there as matrices."""
    vector = name.split(".")[-1] in ("ssm_a", "ssm_d") or ".ssm_norm." in name
    return tensor.part(0, (math.prod(tensor.shape),)) if vector and len(tensor.shape) == 2 else tensor


def complete(file, prefix: str, values: dict) -> None:
    """Which layers do what, by the tensors that they have; sizes that settings say otherwise, or layer by layer."""
    n, heads, inner = values["num_hidden_layers"], values.get("mamba_n_heads"), file.get(f"{prefix}ssm.inner_size")
    if not isinstance(heads, int) or heads < 1 or not isinstance(inner, int) or not isinstance(n, int):
        raise ModelError(f"{file.path}: {prefix}ssm.inner_size, ssm.time_step_rank or block_count is missing")
    values["mamba_d_head"] = inner // heads
    values["mamba_conv_bias"] = any(f"blk.{layer}.ssm_conv1d.bias" in file.entries for layer in range(n))
    kv_heads = file.get(f"{prefix}attention.head_count_kv")
    values["num_key_value_heads"] = max(kv_heads) if isinstance(kv_heads, list) else kv_heads

    def rows(part: str) -> int:
        return next((file.entries[name].shape[0] for name in _blocks(n, part) if name in file.entries), 0)

    if prefix.startswith("nemotron"):
        marks = (("ssm_in", "M"), ("attn_q", "*"), ("ffn_gate_inp", "E"), ("ffn_up", "-"))
        values["hybrid_override_pattern"] = "".join(
            next((letter for part, letter in marks if f"blk.{layer}.{part}.weight" in file.entries), "?")
            for layer in range(n)
        )
        values["intermediate_size"] = rows("ffn_up") or 1
        return
    if prefix == "falcon-h1.":  # its factors are part of its weights; where a norm is, it stands behind the gate
        values.update(mamba_d_ssm=inner, mamba_norm_before_gate=False)
        values["mamba_rms_norm"] = "blk.0.ssm_norm.weight" in file.entries
        return
    values["mamba_expand"] = inner // values["hidden_size"] if values.get("hidden_size") else None
    values["layer_types"] = [
        "mamba" if f"blk.{layer}.ssm_in.weight" in file.entries else "attention" for layer in range(n)
    ]
    rotates = file.get(f"{prefix}rope.scaling.finetuned")
    if rotates not in (True, False):
        raise ModelError(f"{file.path}: rope.scaling.finetuned is {rotates}, expected whether q and k rotate")
    if rotates:
        values["partial_rotary_factor"] = 1.0  # where rope.dimension_count says no other
        return
    shared = rows("ffn_up_shexp")
    values["num_local_experts"] = values.get("num_local_experts") or 0
    values["shared_intermediate_size"] = shared or rows("ffn_up")


def _blocks(n: int, part: str) -> list:
    return [f"blk.{layer}.{part}.weight" for layer in range(n)]
