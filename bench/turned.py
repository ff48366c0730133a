#!/usr/bin/env python3
"""Takes a real model's weights off the grid of the quantised release that they come from, so that judging another
quantisation favours no form. What the model computes stays the same, but for rounding to bf16.

Pairs of channels are rotated: those of the residual stream that norms weigh about alike, and those of values within a
head. Channels between up and down are scaled. Scaling alone is not enough: small weights stay near the old grid, and
Q4_K finds it again (docs/quantisation.md). Channels of huge activations stay as they are.

Of architectures llama and qwen2; takes some 8 bytes of memory a weight.
"""

import argparse
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, dequantize

ANGLES = 0.25, 0.5  # of rotations, of either sign
SCALES = 0.15  # of up and down, log-uniform within plus and minus
HUGE = 2.5  # times the median: the length of an early down's rows, whose channels stay
ODD = 4.0  # times the median, or its inverse: a norm's weight, likewise
EARLY = 4  # layers


class Pairs:
    """Rotations of pairs of channels, `first` and `second`."""

    def __init__(self, first: np.ndarray, second: np.ndarray, draw: np.random.Generator):
        angles = draw.uniform(*ANGLES, len(first)) * draw.choice([-1, 1], len(first))
        self.first, self.second = first, second
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)

    def rows(self, x: np.ndarray) -> np.ndarray:
        """x's rows, or elements, turned."""
        turned, a, b = x.copy(), x[self.first].T, x[self.second].T
        turned[self.first] = (self.cos * a - self.sin * b).T
        turned[self.second] = (self.sin * a + self.cos * b).T
        return turned

    def columns(self, x: np.ndarray, norm: np.ndarray) -> np.ndarray:
        """x that reads turned channels times norm's weights, which stay."""
        pairs, found = np.concatenate([self.first, self.second]), np.ascontiguousarray(self.rows((x * norm).T).T)
        found[:, pairs] /= norm[pairs]  # others may be 0
        rest = np.setdiff1d(np.arange(x.shape[1]), pairs)
        found[:, rest] = x[:, rest]
        return found


def of_residuals(tensors: dict, layers: int, draw: np.random.Generator) -> Pairs:
    norms = [np.abs(x) for name, x in tensors.items() if name.endswith("norm.weight")]
    stay = np.zeros(norms[0].shape, bool)
    for norm in norms:
        stay |= (norm > ODD * np.median(norm)) | (norm < np.median(norm) / ODD)
    for layer in range(min(EARLY, layers)):
        lengths = np.linalg.norm(tensors[f"blk.{layer}.ffn_down.weight"], axis=1)
        stay |= lengths > HUGE * np.median(lengths)
    order = np.argsort(np.mean([np.log(norm) for norm in norms], axis=0, where=~stay))
    order = order[~stay[order]]
    return Pairs(order[0 : len(order) // 2 * 2 : 2], order[1::2], draw)


def turn_layer(t: dict, b: str, residual: Pairs, heads: int, kv_heads: int, draw: np.random.Generator) -> None:
    for norm, names in (("attn_norm", ("attn_q", "attn_k", "attn_v")), ("ffn_norm", ("ffn_gate", "ffn_up"))):
        for name in names:
            t[f"{b}{name}.weight"] = residual.columns(t[f"{b}{name}.weight"], t[f"{b}{norm}.weight"])
    v, o = t[b + "attn_v.weight"], residual.rows(t[b + "attn_output.weight"])
    size, shared = len(v) // kv_heads, heads // kv_heads
    for head in range(kv_heads):
        of_head, order = slice(head * size, (head + 1) * size), draw.permutation(size)
        pairs = Pairs(order[0::2], order[1::2], draw)
        v[of_head] = pairs.rows(v[of_head])
        if b + "attn_v.bias" in t:
            t[b + "attn_v.bias"][of_head] = pairs.rows(t[b + "attn_v.bias"][of_head])
        for query in range(head * shared, (head + 1) * shared):
            reads = slice(query * size, (query + 1) * size)
            o[:, reads] = pairs.rows(o[:, reads].T).T
    t[b + "attn_output.weight"] = o
    scales = np.exp(draw.uniform(-SCALES, SCALES, len(t[b + "ffn_up.weight"]))).astype(np.float32)
    t[b + "ffn_up.weight"] *= scales[:, None]
    t[b + "ffn_down.weight"] = residual.rows(t[b + "ffn_down.weight"] / scales)


def write(source: GGUFReader, architecture: str, tensors: dict, path: str) -> None:
    writer = GGUFWriter(path, architecture)
    for name, field in source.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            kind = field.types[0]
            of = field.types[-1] if kind == GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), kind, sub_type=of)
    for name, x in tensors.items():
        if x.ndim == 2:
            bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
            bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)  # to the nearest, ties to even
            writer.add_tensor(name, bits.view(np.uint8), raw_dtype=GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(model: str, output: str) -> None:
    source, draw = GGUFReader(model), np.random.default_rng(1)
    architecture = source.fields["general.architecture"].contents()
    if architecture not in ("llama", "qwen2"):
        sys.exit(f"turned: {model}: architecture {architecture}, expected llama or qwen2")
    layers, heads, kv_heads = (
        source.fields[f"{architecture}.{key}"].contents()
        for key in ("block_count", "attention.head_count", "attention.head_count_kv")
    )
    t = {x.name: np.array(dequantize(x.data, x.tensor_type), np.float32) for x in source.tensors}
    residual = of_residuals(t, layers, draw)
    one = np.ones_like(t["output_norm.weight"])
    if "output.weight" in t:
        t["output.weight"] = residual.columns(t["output.weight"], t["output_norm.weight"])
    elif not np.allclose(t["output_norm.weight"], one):
        sys.exit(f"turned: {model}: one matrix is embedding and classifier, which needs a last norm of ones")
    t["token_embd.weight"] = residual.columns(t["token_embd.weight"], one)
    for layer in range(layers):
        turn_layer(t, f"blk.{layer}.", residual, heads, kv_heads, draw)
    write(source, architecture, t, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL.gguf")
    parser.add_argument("output", metavar="OUT.gguf")
    main(**vars(parser.parse_args()))
