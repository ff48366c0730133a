"""Decoders as they were before Llama: presets for random_hf_model.py, and their tensors' names and shapes."""

# (what layers' names begin with, the embedding, norms, q, k and v apart or in one, o, up and down, the last norm) each.
# A gate stands before up where there are three.
APART, GATED = "self_attn.{}_proj", ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
TWO = ("input_layernorm", "post_attention_layernorm")
GPT2 = (
    "transformer.h.",
    "transformer.wte",
    ("ln_1", "ln_2"),
    "attn.c_attn",
    "attn.c_proj",
    ("mlp.c_fc", "mlp.c_proj"),
    "transformer.ln_f",
)
FOUR = ("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")
PLACES = {
    "starcoder2": (
        "model.layers.",
        "model.embed_tokens",
        TWO,
        APART,
        "self_attn.o_proj",
        ("mlp.c_fc", "mlp.c_proj"),
        "model.norm",
    ),
    "phi": (
        "model.layers.",
        "model.embed_tokens",
        TWO[:1],
        APART,
        "self_attn.dense",
        ("mlp.fc1", "mlp.fc2"),
        "model.final_layernorm",
    ),
    "stablelm": ("model.layers.", "model.embed_tokens", TWO, APART, "self_attn.o_proj", GATED, "model.norm"),
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neox": (
        "gpt_neox.layers.",
        "gpt_neox.embed_in",
        TWO,
        "attention.query_key_value",
        "attention.dense",
        FOUR,
        "gpt_neox.final_layer_norm",
    ),
    "cohere": ("model.layers.", "model.embed_tokens", TWO[:1], APART, "self_attn.o_proj", GATED, "model.norm"),
    "cohere2": ("model.layers.", "model.embed_tokens", TWO[:1], APART, "self_attn.o_proj", GATED, "model.norm"),
    "arcee": ("model.layers.", "model.embed_tokens", TWO, APART, "self_attn.o_proj", GATED[1:], "model.norm"),
    "apertus": (
        "model.layers.",
        "model.embed_tokens",
        ("attention_layernorm", "feedforward_layernorm"),
        APART,
        "self_attn.o_proj",
        GATED[1:],
        "model.norm",
    ),
    "falcon": (
        "transformer.h.",
        "transformer.word_embeddings",
        TWO,
        "self_attention.query_key_value",
        "self_attention.dense",
        FOUR,
        "transformer.ln_f",
    ),
    "bloom": (
        "transformer.h.",
        "transformer.word_embeddings",
        TWO,
        "self_attention.query_key_value",
        "self_attention.dense",
        FOUR,
        "transformer.ln_f",
    ),
    "mpt": (
        "transformer.blocks.",
        "transformer.wte",
        ("norm_1", "norm_2"),
        "attn.Wqkv",
        "attn.out_proj",
        ("ffn.up_proj", "ffn.down_proj"),
        "transformer.norm_f",
    ),
    "gptj": (
        "transformer.h.",
        "transformer.wte",
        ("ln_1",),
        "attn.{}_proj",
        "attn.out_proj",
        ("mlp.fc_in", "mlp.fc_out"),
        "transformer.ln_f",
    ),
}


def first(c, *keys):
    return next((c[key] for key in keys if c.get(key)), None)


def width(c):
    return first(c, "hidden_size", "n_embd", "d_model")


def biased(c):
    """Which have biases: q, k and v; o; the MLP; norms; and the head."""
    kind = c["model_type"]
    attention = "qo" if c.get("attention_bias") else ""
    return {
        "phi": "qomnh", "stablelm": "qn" if c.get("use_qkv_bias") else "n", "gpt_neox": attention + "mn",
        "cohere": attention, "cohere2": attention, "arcee": attention + ("m" if c.get("mlp_bias") else ""),
        "apertus": attention, "falcon": "qomn" if c.get("bias") else "n", "mpt": "", "gptj": "mnh",
    }.get(kind, "qomn")  # fmt: skip


def key_heads(c, heads):
    if c["model_type"] == "falcon" and c["new_decoder_architecture"]:
        return c["num_kv_heads"]
    return 1 if c.get("multi_query") else c.get("num_key_value_heads") or heads


def norms(c):
    names = PLACES[c["model_type"]][2]
    if c["model_type"] == "falcon" and c["parallel_attn"]:
        return ("ln_attn", "ln_mlp") if c["new_decoder_architecture"] else names[:1]
    return names[:1] if c["model_type"] == "stablelm" and c.get("use_parallel_residual") else names


def layer_shapes(c, p):
    dim, heads = width(c), first(c, "num_attention_heads", "n_head", "n_heads")
    ffn = first(c, "intermediate_size", "n_inner", "ffn_hidden_size") or 4 * dim
    _, _, _, qkv, o, mlp, _ = PLACES[c["model_type"]]
    kv, has, shapes = key_heads(c, heads) * (dim // heads), biased(c), {}

    def add(name, rows, columns, letter):
        turned = c["model_type"] == "gpt2"
        shapes[f"{p}{name}.weight"] = (columns, rows) if turned else (rows, columns)
        if letter in has:
            shapes[f"{p}{name}.bias"] = (rows,)

    for name in norms(c):
        shapes |= norm_shapes(c, p + name)
    parts = {qkv.format("q"): dim, qkv.format("k"): kv, qkv.format("v"): kv} if "{}" in qkv else {qkv: dim + 2 * kv}
    for name, rows in parts.items():
        add(name, rows, dim, "q")
    add(o, dim, dim, "o")
    for name in mlp[:-1]:
        add(name, ffn, dim, "m")
    add(mlp[-1], dim, ffn, "m")
    if c["model_type"] == "apertus":
        shapes |= {f"{p}self_attn.{letter}_norm.weight": (dim // heads,) for letter in "qk"}
        shapes |= {f"{p}mlp.act_fn.alpha_{letter}": (1,) for letter in "pn"}
        shapes |= {f"{p}mlp.act_fn.{name}": () for name in ("beta", "eps")}
    return shapes


def norm_shapes(c, name):
    return {f"{name}.{kind}": (width(c),) for kind in ("weight", "bias")[: 1 + ("n" in biased(c))]}


def classic_shapes(c):
    begin, embedding, _, _, _, _, last = PLACES[c["model_type"]]
    vocab, dim = c["vocab_size"], width(c)
    shapes = {f"{embedding}.weight": (vocab, dim)}
    if "n_positions" in c and c["model_type"] != "gptj":
        shapes["transformer.wpe.weight"] = (c["n_positions"], dim)
    if c["model_type"] == "bloom":
        shapes |= norm_shapes(c, f"{embedding}_layernorm")
    for i in range(first(c, "num_hidden_layers", "n_layer", "n_layers")):
        shapes |= layer_shapes(c, f"{begin}{i}.")
    shapes |= norm_shapes(c, last)
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (vocab, dim)
        if "h" in biased(c):
            shapes["lm_head.bias"] = (vocab,)
    return shapes


def model(architecture, kind, tied=False, **more):
    """Four heads of 24 components, in three layers."""
    names = dict(hidden_size=96, num_hidden_layers=3, num_attention_heads=4)
    if kind in ("gpt2", "gpt_bigcode", "gptj"):
        names = dict(n_embd=96, n_layer=3, n_head=4, n_positions=512, n_inner=200, activation_function="gelu_new")
    elif kind == "mpt":
        names = dict(d_model=96, n_layers=3, n_heads=6, max_seq_len=512, no_bias=True)
    elif kind == "bloom":
        names = dict(hidden_size=96, n_layer=3, n_head=6)
    elif kind != "falcon":
        names |= dict(intermediate_size=200, max_position_embeddings=512)
    return (
        dict(
            architectures=[architecture],
            model_type=kind,
            vocab_size=320,
            tie_word_embeddings=tied,
            bos_token_id=1,
            eos_token_id=2,
        )
        | names
        | more
    )


FALCON = dict(
    max_position_embeddings=512,
    bias=False,
    parallel_attn=True,
    multi_query=True,
    new_decoder_architecture=False,
    alibi=False,
)


def falcon(**more):
    return model("FalconForCausalLM", "falcon", tied=True, **FALCON | more)


def gpt_neox(**more):
    given = dict(rotary_pct=0.25, attention_bias=True, use_parallel_residual=True, hidden_act="gelu")
    return model("GPTNeoXForCausalLM", "gpt_neox", **given | more)


def bigcode(**more):
    return model("GPTBigCodeForCausalLM", "gpt_bigcode", tied=True, multi_query=True, **more)


def stablelm(**more):
    return model(
        "StableLmForCausalLM", "stablelm", num_key_value_heads=2, partial_rotary_factor=0.25, hidden_act="silu", **more
    )


def presets():
    cohere = dict(num_key_value_heads=2, hidden_act="silu", logit_scale=0.25, tied=True)
    return {
        "tiny-starcoder2": model(
            "Starcoder2ForCausalLM",
            "starcoder2",
            tied=True,
            num_key_value_heads=2,
            sliding_window=24,
            use_bias=True,
            hidden_act="gelu_pytorch_tanh",
        ),
        "tiny-phi": model(
            "PhiForCausalLM", "phi", num_key_value_heads=2, partial_rotary_factor=0.5, hidden_act="gelu_new"
        ),
        "tiny-stablelm": stablelm(use_qkv_bias=True),
        "tiny-gpt2": model("GPT2LMHeadModel", "gpt2", tied=True, n_ctx=512),
        "tiny-gpt-neox": gpt_neox(),
        "tiny-cohere": model("CohereForCausalLM", "cohere", attention_bias=True, **cohere),
        "tiny-cohere2": model("Cohere2ForCausalLM", "cohere2", sliding_window=24, sliding_window_pattern=2, **cohere),
        "tiny-arcee": model(
            "ArceeForCausalLM",
            "arcee",
            num_key_value_heads=2,
            attention_bias=True,
            mlp_bias=True,
            hidden_act="relu2",
            rms_norm_eps=1e-5,
        ),
        "tiny-apertus": model(
            "ApertusForCausalLM", "apertus", num_key_value_heads=2, attention_bias=True, hidden_act="xielu"
        ),
        "tiny-falcon": falcon(),
        "tiny-bloom": model("BloomForCausalLM", "bloom", tied=True),
        "tiny-mpt": model("MptForCausalLM", "mpt", tied=True, attn_config=dict(alibi=True, alibi_bias_max=8)),
        "tiny-gptj": model("GPTJForCausalLM", "gptj", rotary_dim=8),
        "tiny-gpt-bigcode": bigcode(),
    }
