"""Experts of a mixture: a matrix for each, or one tensor for all."""

from .computed import Strided, Turned

# Experts that stand in one tensor for all: gate's rows before up's, and down's.
TOGETHER = (
    ("mlp.experts.gate_up_proj", "mlp.experts.down_proj"),
    ("block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight"),
)


def plan_experts(planner, name: str, stored: str) -> None:
    """Plans the experts: a matrix for each, under either family's names, or one tensor for all."""
    dim, n = planner.config["hidden_dim"], planner.config["n_experts"]
    ffn = planner.config.get("expert_ffn_dim", planner.config["ffn_dim"])
    if planner.config.get("router_bias"):
        plan_biased(planner, name, f"{stored}.mlp", ffn)
        return
    together = next((names for names in TOGETHER if f"{stored}.{names[0]}" in planner.left), None)
    block = f"{stored}.mlp" if f"{stored}.mlp.gate.weight" in planner.left else f"{stored}.block_sparse_moe"
    layer = f"{block}.router.layer.weight"  # Granite's
    router = layer if layer in planner.left else f"{block}.gate.weight"
    gate_name, up_name, down_name = (
        ("w1", "w3", "w2") if block.endswith("moe") else ("gate_proj", "up_proj", "down_proj")
    )
    planner.exact(f"{name}.router", planner.take(router, (n, dim)))
    if planner.config.get("sigmoid_router") or planner.config.get("softmax_choice_bias"):
        bias = f"{block}.gate.e_score_correction_bias"
        if getattr(planner.left.get(bias), "shape", None) == (1, n):  # Ernie's
            planner.left[bias] = planner.left[bias].part(0, (n,))
        planner.exact(f"{name}.router_choice_bias", planner.take(bias, (n,)))
    shared = planner.config.get("shared_ffn_dim", 0)
    shared_name = f"{block}.shared_expert" + ("" if planner.config.get("shared_gate") else "s")
    if f"{shared_name}.gate_up_proj.weight" in planner.left:
        planner.split(shared_name, "gate_up_proj", [("gate_proj", shared), ("up_proj", shared)], dim)
    ungated = planner.config.get("ungated", False)
    if planner.config.get("shared_gate"):
        planner.exact(f"{name}.shared.router", planner.take(f"{block}.shared_expert_gate.weight", (1, dim)))
    for part, shape in {"gate": (shared, dim), "up": (shared, dim), "down": (dim, shared)}.items():
        if shared and not (ungated and part == "gate"):
            planner.weights(f"{name}.shared.{part}", planner.take(f"{shared_name}.{part}_proj.weight", shape))
    if ungated:
        take_ungated(planner, f"{block}.experts", n, ffn)
    if together:
        take_apart(planner, *(f"{stored}.{part}" for part in together), f"{block}.experts", n, ffn)
        gate_name, up_name, down_name = "gate_proj", "up_proj", "down_proj"
    for e in range(n):
        for part, matrix, shape in (
            ("gate", gate_name, (ffn, dim)), ("up", up_name, (ffn, dim)), ("down", down_name, (dim, ffn))
        )[ungated:]:  # fmt: skip
            stored_as = f"{block}.experts.{e}.{matrix}.weight"
            planner.weights(f"{name}.experts.{e}.{part}", planner.take(stored_as, shape))


def take_ungated(planner, experts: str, n: int, ffn: int) -> None:
    """All experts' up in one tensor, and their down, become a matrix each."""
    dim = planner.config["hidden_dim"]
    for part, shape in (("up_proj", (ffn, dim)), ("down_proj", (dim, ffn))):
        if f"{experts}.{part}" in planner.left:
            whole = planner.take(f"{experts}.{part}", (n, *shape))
            for e in range(n):
                planner.left[f"{experts}.{e}.{part}.weight"] = whole.part(e * ffn * dim, shape)


def take_apart(planner, gate_up_name: str, down_name: str, experts: str, n: int, ffn: int) -> None:
    """All experts in one tensor, gate's rows of each before up's, become a matrix each. Qwen3-VL's have columns for
    rows."""
    dim = planner.config["hidden_dim"]
    found = [getattr(planner.left.get(name), "shape", None) for name in (gate_up_name, down_name)]
    turned = found == [(n, dim, 2 * ffn), (n, ffn, dim)] != [(n, 2 * ffn, dim), (n, dim, ffn)]
    gate_up = planner.take(gate_up_name, (n, dim, 2 * ffn) if turned else (n, 2 * ffn, dim))
    down = planner.take(down_name, (n, ffn, dim) if turned else (n, dim, ffn))
    for e in range(n):
        at, expert = 2 * e * ffn * dim, f"{experts}.{e}"
        for which, part in enumerate(("gate", "up")):
            planner.left[f"{expert}.{part}_proj.weight"] = (
                Turned(gate_up.part(at, (dim, 2 * ffn)), which * ffn, 1, ffn)
                if turned
                else gate_up.part(at + which * ffn * dim, (ffn, dim))
            )
        one = down.part(e * ffn * dim, (ffn, dim) if turned else (dim, ffn))
        planner.left[f"{expert}.down_proj.weight"] = Turned(one, 0, 1) if turned else one


def plan_biased(planner, name: str, stored: str, ffn: int) -> None:
    dim, n = planner.config["hidden_dim"], planner.config["n_experts"]
    for kind, shape in (("weight", (n, dim)), ("bias", (n,))):
        router = planner.take(f"{stored}.router.{kind}", shape)
        planner.exact(f"{name}.router" + ("_bias" if kind == "bias" else ""), router)
    if f"{stored}.experts.gate_up_proj" not in planner.left and f"{stored}.experts.0.gate_proj.weight" in planner.left:
        for e in range(n):
            for part, rows, columns in (("gate", ffn, dim), ("up", ffn, dim), ("down", dim, ffn)):
                planner.linear(f"{name}.experts.{e}.{part}", f"{stored}.experts.{e}.{part}_proj", rows, columns, True)
    else:
        plan_alternating(planner, name, stored, ffn)


def plan_alternating(planner, name: str, stored: str, ffn: int) -> None:
    """Plans experts that are one tensor, in which gate and up alternate. In MXFP4 outputs are rows, as usual;
    else they are columns."""
    dim, n = planner.config["hidden_dim"], planner.config["n_experts"]
    by_rows = getattr(planner.left.get(f"{stored}.experts.gate_up_proj"), "form", "") == "MXFP4"
    gate_up = planner.take(f"{stored}.experts.gate_up_proj", (n, 2 * ffn, dim) if by_rows else (n, dim, 2 * ffn))
    down = planner.take(f"{stored}.experts.down_proj", (n, dim, ffn) if by_rows else (n, ffn, dim))
    gate_up_bias = planner.take(f"{stored}.experts.gate_up_proj_bias", (n, 2 * ffn))
    down_bias = planner.take(f"{stored}.experts.down_proj_bias", (n, dim))
    for e in range(n):
        at, expert = 2 * e * ffn * dim, f"{name}.experts.{e}"
        for which, part in enumerate(("gate", "up")):
            if by_rows:
                planner.weights(f"{expert}.{part}", Strided(gate_up.part(at, (2 * ffn, dim)), which, 2))
            else:
                planner.weights(f"{expert}.{part}", Turned(gate_up.part(at, (dim, 2 * ffn)), which, 2))
            planner.exact(f"{expert}.{part}_bias", Strided(gate_up_bias.part(2 * e * ffn, (2 * ffn,)), which, 2))
        at = e * ffn * dim
        planner.weights(
            f"{expert}.down", down.part(at, (dim, ffn)) if by_rows else Turned(down.part(at, (ffn, dim)), 0, 1)
        )
        planner.exact(f"{expert}.down_bias", down_bias.part(e * dim, (dim,)))
