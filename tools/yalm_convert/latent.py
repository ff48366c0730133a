"""Multi-head latent attention (DeepSeek-V2's): `latent` of docs/format.md."""

import math

import numpy as np

from .computed import Reordered, TurnedBlocks, Within
from .source import shown

NORM_EPS = 1e-6  # of the latents' norms, whatever rms_norm_eps is


def rope_keys(keys):
    """The keys, as if heads were the part of them that rotates, and that had one head of keys."""
    rope = keys.integer("qk_rope_head_dim", keys.defaults["qk_rope_head_dim"], 2, 1 << 12)
    parameters, key = dict(keys.object("rope_parameters")), "partial_rotary_factor"
    nope = keys.integer("qk_nope_head_dim", keys.defaults["qk_nope_head_dim"], 1, 1 << 12)
    if parameters.get(key) == rope / (nope + rope):  # of the whole head
        del parameters[key]
    own = {"head_dim": rope, "num_key_value_heads": 1, "rope_parameters": parameters or None}
    return keys.but({**keys.values, **own})


def read_latent(keys, facts: dict) -> dict:
    """facts: those of rope_keys()."""

    def size(key: str) -> int:
        return keys.integer(key, keys.defaults[key], 1, 1 << 12)

    rank, nope, rope = size("kv_lora_rank"), size("qk_nope_head_dim"), facts["head_dim"]
    # null is no default here: queries are then made without a latent
    q_rank = keys.integer(
        "q_lora_rank", None if "q_lora_rank" in keys.values else keys.defaults["q_lora_rank"], 1, 1 << 20
    )
    if keys.integer("qk_head_dim", nope + rope, 1) != nope + rope:
        raise keys.error(f"qk_head_dim: found {shown(keys.values['qk_head_dim'])}, expected {nope + rope}")
    latent = {
        "q_rank": q_rank or 0, "kv_rank": rank, "nope_dim": nope, "rope_dim": rope, "v_dim": size("v_head_dim"),
        "norm_eps": NORM_EPS,
    }  # fmt: skip
    scaling = keys.inner("rope_scaling", keys.object("rope_scaling") or keys.object("rope_parameters"))
    longer = scaling.number("mscale_all_dim", 0.0, 0, 1e9) if facts["rope"]["type"] != "default" else 0.0
    factor = facts["rope"].get("factor", 1.0)
    mscale = 0.1 * longer * math.log(factor) + 1 if longer and factor > 1 else 1.0
    scale = (nope + rope) ** -0.5 * mscale**2
    return {"latent": latent, "head_dim": rank + rope, "n_kv_heads": 1, "attention_scale": scale}


def plan_latent(planner, name: str, stored: str) -> None:
    """planner: a Planner of plan.py. kv_b's halves are split, and that of keys turned, so that it multiplies queries."""
    c, d = planner.config, planner.config["latent"]
    dim, heads, rank, rope = c["hidden_dim"], c["n_heads"], d["kv_rank"], d["rope_dim"]
    nope, v = d["nope_dim"], d["v_dim"]

    def take(part: str, *shape):
        return planner.take(f"{stored}.{part}.weight", shape)

    def by_halves(tensor, still: int):
        """Of each head the last `rope` rows rotate: neighbours together, or by halves as the engine wants it."""
        if not planner.changes.pairs:
            return tensor
        turning = still + np.arange(rope).reshape(-1, 2).T.reshape(-1)
        return Reordered(tensor, np.concatenate([np.arange(still), turning]))

    if d["q_rank"]:
        planner.weights(f"{name}.q_a", take("q_a_proj", d["q_rank"], dim))
        planner.norm(f"{name}.q_a_norm", take("q_a_layernorm", d["q_rank"]))
    q = take("q_b_proj" if d["q_rank"] else "q_proj", heads * (nope + rope), d["q_rank"] or dim)
    planner.weights(f"{name}.q", by_halves(q, nope))
    planner.weights(f"{name}.kv_a", by_halves(take("kv_a_proj_with_mqa", rank + rope, dim), rank))
    planner.norm(f"{name}.kv_a_norm", take("kv_a_layernorm", rank))
    if f"{stored}.k_b_proj.weight" in planner.left:  # GGUF files have it so
        planner.floats(f"{name}.k_b", take("k_b_proj", heads * rank, nope))
        planner.floats(f"{name}.v_b", take("v_b_proj", heads * v, rank))
    else:
        kv_b = take("kv_b_proj", heads * (nope + v), rank)
        planner.floats(f"{name}.k_b", TurnedBlocks(kv_b, nope + v, nope))
        planner.floats(f"{name}.v_b", Within(kv_b, nope + v, nope, v))
    planner.weights(f"{name}.o", take("o_proj", dim, heads * v))
