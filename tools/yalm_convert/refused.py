"""What models that are refused have and yalm has not, by how their architectures' names begin: those of config.json and
of GGUF files, in lower case, letters and digits alone. The longest that fits counts."""

LACKING = {
    "keys that neighbouring layers share (CLA)": "hunyuanforcausallm",
    "positions of several dimensions (xDRoPE)": "hunyuanvl",
    "a norm behind feed-forward blocks alone": "axk1",
    "two blocks of attention in a layer, and experts that pass on what they read": "longcatflash",
    "scales of embedding and branches beside latents (MLA)": "minicpm3",
    "sparse attention to latents (DSA)": "deepseekv32 deepseekv4 glmdsa glmmoedsa",
    "Mamba's first recurrence, or Zamba's shared layers": "falconmamba jamba mamba zamba",
    "RWKV's recurrence": "rwkv",
    "lightning attention": "minimaxforcausallm minimaxm1 minimaxtext",
    "this order of LayerNorm or of q, k and v": "codegen gptneoforcausallm olmoforcausallm opt persimmon phimoe xglm",
    "this activation of MLPs without a gate": "nemotronforcausallm nemotronnas",
    "this kind of encoder": (
        "albert camembert deberta distilbert electra embeddinggemma eurobert gte jinabert modernbertdecoder mpnet neobert "
        "nomicbertmoe nomicbertfor roberta"
    ),
    "an encoder beside the decoder": "bart m2m100 marian mbart mt5 pegasus t5 umt5 whisper",
    "attention within chunks": "llama4",
    "several streams of residuals (AltUp)": "gemma3n",
}


def why_not(name: object) -> str:
    """The end of a line that says that an architecture is not supported."""
    plain = "".join(c for c in str(name).lower() if c.isalnum())
    stems = [(len(stem), what) for what, stems in LACKING.items() for stem in stems.split() if plain.startswith(stem)]
    return f"yalm lacks {max(stems)[1]}" if stems else "README.md lists those that are"
