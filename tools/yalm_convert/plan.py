"""Which stored tensor becomes which of the model file's, in what shape and type."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Optional, Union

import numpy as np

from .bf12 import bf12_size, survey, to_bf12
from .checkpoint import NAMES, PARTS, PIECE, TYPES, Tensor, pieces, rounded, unknown_type
from .classic import plan_classic, plan_xielu
from .computed import Reordered, Turned, Within
from .convolution import plan_convolution
from .encoders import plan_encoder
from .errors import ModelError
from .experts import plan_experts
from .fp8 import SCALE_BYTES, fp8_size, to_fp8
from .gemma4 import layer_facts, plan_experts_beside_mlp, plan_inputs, plan_layer, prepare_attention
from .kda import plan_kda
from .latent import plan_latent
from .mamba import Scaled, block_name, plan_scan
from .mixture import mixed
from .mtp import plan_mtp
from .packing import GROUP_BYTES, quantised_size
from .pooling import plan_last
from .quantise import Importance, quantise
from .recurrent import kind_of, plan_recurrent
from .source import shown
from .tencent import rotated_norm

DTYPES = {name: dtype for dtype, name in NAMES.items()}
MATRIX_TYPES = (*DTYPES, "bf12", *SCALE_BYTES, "q8", "q6", "q5", "q4", "q3", "q2")
# What --dtype makes of the classifier, where that is not itself: it is more sensitive than the layers. An embedding
# that is not the classifier as well is less so. With q4 a mixture has their bytes to share out.
CLASSIFIER = {"q5": "q6", "q4": "q6", "q3": "q6", "q2": "q6"}
LOOKED_UP = {"q4": "q5", "q3": "q5", "q2": "q5"}  # for layers, beside the embedding
INPUTS = {"q6": "q8", "q5": "q8", "q4": "q8", "q3": "q8", "q2": "q8"}  # small matrices, of which nothing is measured
FURTHER = ("mtp.", "model.mtp_")  # heads that guess further tokens: what plan_mtp() leaves
# Follow from config.json.
IGNORED = (
    ".rotary_emb.inv_freq", ".rotary_emb.cos_cached", ".rotary_emb.sin_cached", ".self_attn.bias", ".self_attn.masked_bias",
)  # fmt: skip


@dataclass(frozen=True)
class Planned:
    name: str
    dtype: np.dtype
    source: Union[Tensor, np.ndarray]  # an array is a tokenizer's, written as it is
    quantised: str = ""  # to which type, if to any; dtype is the source's then
    unfit: bool = False  # to be bf12, but its numbers need all 16 bits
    factor: float = 1.0  # what the values are multiplied by, once
    plus: float = 0.0  # this is added
    importance: Optional[Importance] = field(default=None, compare=False)  # of its columns, for quantise()
    rounded: int = 0  # of a matrix that is to be bf12: how many numbers are no bfloat16 as they are stored

    @property
    def shape(self) -> tuple:
        return self.source.shape

    @property
    def size(self) -> int:
        if self.quantised == "bf12":
            return bf12_size(self.shape)
        if self.quantised:
            return (fp8_size if self.quantised in SCALE_BYTES else quantised_size)(self.quantised, self.shape)
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    @property
    def dtype_name(self) -> str:
        return self.quantised or NAMES.get(self.dtype) or {"u1": "u8", "u4": "u32"}[self.dtype.str[1:]]


@dataclass(frozen=True)
class Changes:
    """Changes to weights beside their types."""

    logits_scale: float = 1.0  # of the last norm's weights, and so of the logits
    norm_plus: float = 0.0  # what is added to all norms' weights
    pairs: bool = False  # components of a head that rotate together are neighbours
    placed: bool = False  # they are half a head apart, though a part of it rotates
    values_are_keys: bool = False  # where there is no v_proj
    names: tuple = ()  # (a part of tensors' names, what takes its place) each
    turned: tuple = ()  # ends of the files' names of matrices whose columns are outputs
    blocks: tuple = ()  # where each of the model's blocks comes to lie: mamba.block_name()
    factors: tuple = ()  # (the end of matrices' names, what they are multiplied by) each


UNCHANGED = Changes()


def head_order(config: dict, pairs: bool) -> Optional[np.ndarray]:
    """Where each component of a head comes from, so that those that rotate together lie half a head apart. None where
    all stay."""
    head_dim = config["head_dim"]
    rotary = config["rope"].get("rotary_dim", head_dim)
    first, second = (np.arange(0, rotary, 2), np.arange(1, rotary, 2)) if pairs else np.arange(rotary).reshape(2, -1)
    still = np.arange(rotary, head_dim).reshape(2, -1)
    order = np.concatenate([first, still[0], second, still[1]])
    return None if (order == np.arange(head_dim)).all() else order


def renamed(tensors: dict, changes: Changes) -> dict:
    """Tensors by the names that are looked for. Models that make vectors may have them without the first part."""
    found, bare = {}, "embed_tokens.weight" in tensors
    for name, tensor in tensors.items():
        tensor = Turned(tensor, 0, 1) if changes.turned and name.endswith(changes.turned) else tensor
        name = f"model.{name}" if bare else name
        for theirs, ours in changes.names:
            name = name.replace(theirs, ours)
        found[block_name(name, changes.blocks)] = tensor
    return found


class UnknownName(Exception):
    """A pattern that matches no matrix of the model."""


class Planner:
    """Takes each tensor that the configuration calls for; what is left over is refused."""

    def __init__(
        self,
        config: dict,
        tensors: dict,
        where: str,
        dtype: Optional[str],
        keep: list,
        changes: Changes,
    ):
        self.config, self.where, self.absent = config, where, getattr(tensors, "absent", {})
        self.changes, self.order = changes, None
        if not (changes.placed or "latent" in config):
            self.order = head_order(config, changes.pairs)
        self.left, self.dtype, self.keep = renamed(tensors, changes), dtype, keep
        self.unused = [pattern for pattern, _ in keep]  # patterns that no matrix has matched so far
        self.kept: set = set()  # matrices that one has
        self.plan: list = []

    def take(self, name: str, shape: tuple) -> Tensor:
        tensor = self.left.pop(name, None)
        if tensor is None:
            where = f"{self.where}/{self.absent[name]}" if name in self.absent else self.where
            told = ", where the index has it" if name in self.absent else ""
            raise ModelError(f"{where}: tensor {shown(name)} is missing{told}, expected one of shape {list(shape)}")
        if tensor.dtype not in NAMES:
            raise unknown_type(tensor.path, name, next(key for key, dtype in PARTS.items() if dtype == tensor.dtype))
        if tensor.shape != shape:
            raise ModelError(
                f"{tensor.path}: tensor {shown(name)}: found shape {list(tensor.shape)}, expected {list(shape)}"
            )
        return tensor

    def weights(self, name: str, source: Tensor) -> None:
        factor = next((factor for end, factor in self.changes.factors if name.endswith(end)), 1.0)
        source = source if factor == 1 or name in ("embedding", "classifier") else Scaled(source, factor)
        dtype = self.type_of(name)
        for pattern, kept in self.keep:
            if fnmatchcase(name, pattern):
                dtype = kept
                self.kept.add(name)
                self.unused = [p for p in self.unused if p != pattern]
        dtype = dtype or source.default
        if dtype == "q4" and not source.holds("q4"):
            dtype = "q4n"
        if dtype == "bf12":
            found = survey(source)
            stored, quantised = (source.dtype, dtype) if found.fits else (TYPES["BF16"], "")
            self.plan.append(Planned(name, stored, source, quantised, unfit=not found.fits, rounded=found.rounded))
        elif dtype in GROUP_BYTES or dtype in SCALE_BYTES:
            self.plan.append(Planned(name, source.dtype, source, dtype))
        else:
            self.plan.append(Planned(name, DTYPES[dtype], source))

    def type_of(self, name: str) -> Optional[str]:
        """What --dtype makes of a matrix."""
        if name == "layer_embedding":
            return LOOKED_UP.get(self.dtype, self.dtype)
        if name == "embedding" and not self.config["tied_embeddings"]:
            return self.dtype
        if name in ("embedding", "classifier"):
            return CLASSIFIER.get(self.dtype, self.dtype)
        if name.endswith((".input_gate", ".input_projection")) or name == "layer_projection":
            return INPUTS.get(self.dtype, self.dtype)
        return self.dtype

    def floats(self, name: str, source: Tensor) -> None:
        """A matrix that the engine has in floats alone: --dtype's, the source's, or of a quantised one fp16, which is
        nearer than bf16."""
        dtype = next((dtype for dtype in (self.dtype, source.default) if dtype in DTYPES), "fp16")
        self.plan.append(Planned(name, DTYPES[dtype], source))

    def exact(self, name: str, source: Tensor, factor: float = 1.0) -> None:
        self.plan.append(Planned(name, TYPES["F32"], source, factor=factor))

    def array(self, name: str, values: np.ndarray) -> None:
        self.plan.append(Planned(name, TYPES["F32"], values.astype(TYPES["F32"])))

    def norm(self, name: str, source: Tensor, factor: float = 1.0) -> None:
        self.plan.append(Planned(name, TYPES["F32"], source, factor=factor, plus=self.changes.norm_plus))

    def linear(self, name: str, stored: str, rows: int, columns: int, bias: bool) -> None:
        placed = self.by_halves if name.endswith((".q", ".k")) else lambda tensor: tensor
        self.weights(name, placed(self.take(f"{stored}.weight", (rows, columns))))
        if bias:
            self.exact(f"{name}_bias", placed(self.take(f"{stored}.bias", (rows,))))

    def by_halves(self, tensor: Tensor) -> Tensor:
        """A matrix whose rows are heads, each in the order that rotation needs."""
        return tensor if self.order is None else Reordered(tensor, self.order)

    def model(self, warnings: list) -> None:
        c = self.config
        dim, vocab = c["hidden_dim"], c["vocab_size"]
        embedding = self.take("model.embed_tokens.weight", (vocab, dim))
        self.weights("embedding", embedding)
        if c.get("layer_input_dim"):
            plan_inputs(self)
        for n in range(c["n_layers"]):
            self.layer(f"layers.{n}", f"model.layers.{n}", n)
        if not c.get("post_norm"):
            self.norm("norm", self.take("model.norm.weight", (dim,)), self.changes.logits_scale)
        if c.get("norm_bias") and not c.get("post_norm"):
            self.exact("norm_bias", self.take("model.norm.bias", (dim,)), self.changes.logits_scale)
        plan_encoder(self)
        classifier = embedding
        if not c["tied_embeddings"]:
            classifier = self.take("lm_head.weight", (vocab, dim))
            self.weights("classifier", classifier)
        elif "lm_head.weight" in self.left:
            self.check_tied(embedding, self.take("lm_head.weight", (vocab, dim)))
        plan_classic(self)
        plan_last(self, classifier)
        plan_mtp(self, embedding, classifier, warnings)

    def layer(self, name: str, stored: str, n: int) -> None:
        c, dim = self.config, self.config["hidden_dim"]
        no_ffn = n in c.get("no_ffn_layers", ())
        for norm, of in self.norms(stored).items():
            if (norm == "attention_norm" and n == 0 and c.get("bare_first")) or (norm == "ffn_norm" and no_ffn):
                continue
            self.norm(f"{name}.{norm}", self.take(f"{stored}.{of}.weight", (dim,)))
            if c.get("norm_bias"):
                self.exact(f"{name}.{norm}_bias", self.take(f"{stored}.{of}.bias", (dim,)))
        kind = kind_of(c, n)
        delta = kind.get("delta", c.get("delta", {}))
        if "scan" in delta:
            plan_scan(self, name, f"{stored}.mamba", delta)
        elif "kda_rank" in delta:
            plan_kda(self, name, f"{stored}.self_attn", delta)
        elif delta:
            plan_recurrent(self, name, f"{stored}.linear_attn", delta)
        if "conv" in kind:
            plan_convolution(self, name, f"{stored}.conv", kind["conv"])
        elif "latent" in c and not delta:
            plan_latent(self, name, f"{stored}.self_attn")
        elif not delta or "delta" in c:
            self.attention(name, f"{stored}.self_attn", layer_facts(c, n))
        if no_ffn:
            return
        if c.get("expert_norms"):
            plan_experts_beside_mlp(self, name, stored)
        elif c["n_experts"] and n not in c.get("dense_layers", ()):
            plan_experts(self, name, stored)
        else:
            self.ffn(name, f"{stored}.mlp", layer_facts(c, n)["ffn_dim"])
        plan_layer(self, name, stored)

    def norms(self, stored: str) -> dict:
        """The layer's norms, by our names and the source's."""
        if self.config.get("norms_after"):
            return {"attention_norm": "post_attention_layernorm", "ffn_norm": "post_feedforward_layernorm"}
        if f"{stored}.post_self_attn_layernorm.weight" in self.left:
            return {
                "attention_norm": "input_layernorm",
                "attention_post_norm": "post_self_attn_layernorm",
                "ffn_norm": "post_attention_layernorm",
                "ffn_post_norm": "post_mlp_layernorm",
            }
        if self.config.get("norms_around"):
            return {
                "attention_norm": "input_layernorm",
                "attention_post_norm": "post_attention_layernorm",
                "ffn_norm": "pre_feedforward_layernorm",
                "ffn_post_norm": "post_feedforward_layernorm",
            }
        ffn = {} if self.config.get("one_norm") else {"ffn_norm": "post_attention_layernorm"}
        return {"attention_norm": "input_layernorm", **ffn}

    def attention(self, name: str, stored: str, c: dict) -> None:
        """c: the layer's facts."""
        keeps = "kv_of" not in c
        if not keeps or self.changes.values_are_keys:
            prepare_attention(self, stored, keeps)
        dim, all_bias = c["hidden_dim"], c["attention_bias"]
        bias = all_bias or c.get("qkv_bias", False)
        q, kv = c["n_heads"] * c["head_dim"], c["n_kv_heads"] * c["head_dim"]
        for joined, groups in (("qkv_proj", 1), ("qkv_groups", c["n_kv_heads"])):
            if f"{stored}.{joined}.weight" in self.left:
                self.split_qkv(stored, joined, groups, {"q_proj": q, "k_proj": kv, "v_proj": kv}, dim, bias)
        matrices = [("q", "q_proj", q, dim), ("k", "k_proj", kv, dim), ("v", "v_proj", kv, dim)][: 3 if keeps else 1]
        if c.get("output_gate"):
            if f"{stored}.gate_proj.weight" not in self.left:
                self.split_gate(stored, q, dim, bias)
            matrices.append(("output_gate", "gate_proj", q, dim))
        for ours, theirs, rows, columns in matrices:
            self.linear(f"{name}.{ours}", f"{stored}.{theirs}", rows, columns, bias)
        self.linear(f"{name}.o", f"{stored}.o_proj", dim, q, all_bias)
        heads = (
            {"q": q, "k": kv}
            if c.get("whole_qk_norm")
            else dict.fromkeys("qk"[: 1 + keeps] if c.get("qk_norm") else "", c["head_dim"])
        )
        if c.get("sink_logits"):
            self.exact(f"{name}.sink_logits", self.take(f"{stored}.sinks", (c["n_heads"],)))
        if c.get("rotated_qk_norm"):
            both = [self.take(f"{stored}.{letter}_norm.weight", (width,)) for letter, width in heads.items()]
            self.array(f"{name}.q_norm", rotated_norm(*both))
            return
        for letter, width in heads.items():
            self.norm(f"{name}.{letter}_norm", self.by_halves(self.take(f"{stored}.{letter}_norm.weight", (width,))))

    def split_qkv(self, stored: str, joined: str, groups: int, parts: dict, columns: int, bias: bool) -> None:
        """Splits a matrix that is several: one above the other, or so in each of its groups, one for each KV head."""
        rows = sum(parts.values())
        for kind, shape in (("weight", (rows, columns)), ("bias", (rows,)))[: 1 + bias]:
            whole, first = self.take(f"{stored}.{joined}.{kind}", shape), 0
            for part, n in parts.items():
                self.left[f"{stored}.{part}.{kind}"] = Within(whole, rows // groups, first, n // groups)
                first += n // groups

    def split_gate(self, stored: str, rows: int, columns: int, bias: bool) -> None:
        """Splits a q_proj that has each head's gate behind its query."""
        width = self.config["head_dim"]
        for kind, shape in (("weight", (2 * rows, columns)), ("bias", (2 * rows,)))[: 1 + bias]:
            both = self.take(f"{stored}.q_proj.{kind}", shape)
            self.left[f"{stored}.q_proj.{kind}"] = Within(both, 2 * width, 0, width)
            self.left[f"{stored}.gate_proj.{kind}"] = Within(both, 2 * width, width, width)

    def ffn(self, name: str, stored: str, ffn: int) -> None:
        dim, bias = self.config["hidden_dim"], self.config["mlp_bias"]
        if f"{stored}.gate_up_proj.weight" in self.left:
            self.split(stored, "gate_up_proj", [("gate_proj", ffn), ("up_proj", ffn)], dim)
        gate = [] if self.config.get("ungated") else [("gate", ffn, dim)]
        if self.config["activation"] == "xielu":
            plan_xielu(self, name, f"{stored}.act_fn")
        for part, rows, columns in (*gate, ("up", ffn, dim), ("down", dim, ffn)):
            self.linear(f"{name}.{part}", f"{stored}.{part}_proj", rows, columns, bias)

    def split(self, stored: str, joined: str, parts: list, columns: int) -> None:
        """Splits a matrix that is several, one above the other, and its bias, into tensors of their own names."""
        total = sum(rows for _, rows in parts)
        whole, first = self.take(f"{stored}.{joined}.weight", (total, columns)), 0
        bias = self.take(f"{stored}.{joined}.bias", (total,)) if f"{stored}.{joined}.bias" in self.left else None
        for part, rows in parts:
            self.left[f"{stored}.{part}.weight"] = whole.part(first * columns, (rows, columns))
            if bias:
                self.left[f"{stored}.{part}.bias"] = bias.part(first, (rows,))
            first += rows

    def check_tied(self, embedding: Tensor, head: Tensor) -> None:
        """Refuses a classifier beside tied embeddings, unless it is a copy of the embedding."""
        rows = max(1, (PIECE >> 2) // embedding.width)
        for first in range(0, embedding.shape[0], rows):
            n = min(rows, embedding.shape[0] - first)
            one, other = (tensor.values(first, n).astype(np.float32) for tensor in (embedding, head))
            if not np.array_equal(one, other):
                raise ModelError(
                    f"{head.path}: tie_word_embeddings is true, but tensor 'lm_head.weight' is not the embedding's copy"
                )

    def refuse_rest(self) -> None:
        beyond = f"model.layers.{self.config['n_layers']}."  # where some have a head, too
        for name, tensor in self.left.items():
            if self.config.get("sigmoid_router") and name.startswith(beyond):
                continue
            if not name.endswith(IGNORED) and not name.startswith(FURTHER):
                raise ModelError(f"{tensor.path}: tensor {shown(name)} is not known, or not called for by config.json")


def make_plan(
    config: dict,
    tensors: dict,
    tokenizer: list,
    where: str,
    dtype: Optional[str],
    keep: list = (),
    changes: Changes = UNCHANGED,
    bits: Optional[float] = None,
    warnings: Optional[list] = None,
) -> list:
    """keep: (pattern of matrices' names, type) each, of which the last that matches counts; UnknownName where one
    matches none. bits: a weight, on average, of the layers' matrices that become q4."""
    planner = Planner(config, tensors, where, dtype, list(keep), changes)
    planner.model([] if warnings is None else warnings)
    planner.refuse_rest()
    if planner.unused:
        raise UnknownName(planner.unused[0])
    plan = planner.plan
    if bits is not None:
        active = config["n_active_experts"] / config["n_experts"] if config["n_experts"] else 1.0
        plan = mixed(plan, bits, planner.kept, active)
    return plan + [Planned(name, array.dtype, array) for name, array in tokenizer]


def matrix_types(plan: list) -> list:
    """Names of the types that the weight matrices have."""
    exact = (
        "norm",
        "_bias",
        ".router",
        "scale",
        ".sink_logits",
        ".conv",
        ".decay",
        ".beta",
        ".decay_rate",
        ".dt",
        ".rate",
        ".skip",
        "positions",
        "token_types",
        "alibi_slopes",
        "score.dense",
        "score.out",
    )
    return sorted({p.dtype_name for p in plan if isinstance(p.source, Tensor) and not p.name.endswith(exact)})


def data(planned: Planned, check_finite: bool) -> Iterator[np.ndarray]:
    """The tensor's elements in the planned type, flat, piece by piece."""
    if isinstance(planned.source, np.ndarray):
        yield np.ascontiguousarray(planned.source).reshape(-1)
        return
    source = planned.source
    if planned.quantised == "bf12":
        yield from to_bf12(source, check_finite)
        return
    if source.holds(planned.quantised):
        yield from source.exactly(planned.quantised)
        return
    if planned.quantised:
        if planned.quantised in SCALE_BYTES:
            yield from to_fp8(source, planned.quantised)
        else:
            yield from quantise(source, planned.quantised, planned.importance)
        return
    for piece in pieces(source):
        values = rounded(source, piece, planned.dtype, check_finite)
        values = values if planned.plus == 0 else values + planned.dtype.type(planned.plus)
        yield values if planned.factor == 1 else values * planned.dtype.type(planned.factor)
