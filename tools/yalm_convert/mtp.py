"""The head that guesses a token further: `mtp` of docs/format.md. Families name its parts in their own ways, and differ
in what it reads of its own where a guess follows a guess."""

from dataclasses import dataclass

from .checkpoint import pieces
from .errors import ModelError
from .source import shown

QWEN = {
    "eh_proj": "mtp.fc",
    "enorm": "mtp.pre_fc_norm_embedding",
    "hnorm": "mtp.pre_fc_norm_hidden",
    "shared_head.norm": "mtp.norm",
    "embed_tokens": "mtp.embed_tokens",
    "shared_head.head": "mtp.lm_head",
}
# GGUF's, where they are others than GLM's.
NEXTN = {"shared_head_norm": "shared_head.norm", "shared_head_head": "shared_head.head"}


@dataclass(frozen=True)
class Form:
    layer: str  # its layer's tensors stand under
    parts: dict  # GLM's name of a part -> the family's
    own_normed: bool


def forms(n_layers: int) -> tuple:
    layer = f"model.layers.{n_layers}"
    return Form("mtp.layers.0", QWEN, True), Form(layer, {part: f"{layer}.{part}" for part in QWEN}, False)


def as_qwen(name: str, n_layers: int) -> str:
    """A tensor's name in Qwen's form, given in GLM's."""
    layer = f"model.layers.{n_layers}."
    if not name.startswith(layer):
        return name
    part, _, kind = name[len(layer) :].rpartition(".")
    return f"{QWEN[part]}.{kind}" if part in QWEN else f"mtp.layers.0.{name[len(layer) :]}"


def plan_mtp(planner, embedding, classifier, warnings: list) -> None:
    """Plans the head, where there is one; with a warning it is left out where it is not of a form that is known.
    planner: a Planner of plan.py."""
    n = planner.config["n_layers"]
    form = next((form for form in forms(n) if f"{form.parts['eh_proj']}.weight" in planner.left), None)
    if form is None:
        return
    before = dict(planner.left), list(planner.plan)
    try:
        _plan(planner, form, {"embed_tokens": embedding, "shared_head.head": classifier})
    except ModelError as error:
        planner.left, planner.plan = before
        planner.config.pop("mtp", None)
        warnings.append(f"the MTP head is left out, which only --speculate would use: {error}")
        return
    planner.kept |= {planned.name for planned in planner.plan[len(before[1]) :]}  # its types are --dtype's
    if any(name.startswith(("mtp.layers.1.", f"model.layers.{n + 1}.")) for name in planner.left):
        warnings.append(f"{planner.where}: of the layers that guess further tokens the first one alone is used")


def _plan(planner, form: Form, shared: dict) -> None:
    c, dim, n = planner.config, planner.config["hidden_dim"], planner.config["n_layers"]
    parts = form.parts
    for part, whole in shared.items():
        own = planner.left.get(f"{parts[part]}.weight")
        if own is not None and not _same(planner.take(f"{parts[part]}.weight", whole.shape), whole):
            raise ModelError(f"{own.path}: tensor {shown(own.name)} is not the model's copy, which is not supported")
    if c["n_experts"] and f"{form.layer}.mlp.gate_proj.weight" in planner.left:
        c["dense_layers"] = [*c.get("dense_layers", ()), n]
    c["mtp"] = {"normed": True, "own_normed": form.own_normed}
    planner.layer(f"layers.{n}", form.layer, n)
    planner.weights("mtp.projection", planner.take(f"{parts['eh_proj']}.weight", (dim, 2 * dim)))
    for ours, part in (("embedding_norm", "enorm"), ("hidden_norm", "hnorm"), ("norm", "shared_head.norm")):
        factor = planner.changes.logits_scale if ours == "norm" else 1.0
        planner.norm(f"mtp.{ours}", planner.take(f"{parts[part]}.weight", (dim,)), factor)


def _same(one, other) -> bool:
    if one.dtype != other.dtype:
        return False
    return all((a.view("u1") == b.view("u1")).all() for a, b in zip(pieces(one), pieces(other)))
