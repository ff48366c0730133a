"""Faults to plant, one at a time: what `make test` must find. Each is a piece of source that is there once, and what
comes in its place."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Fault:
    about: str  # what is wrong then
    path: str
    right: str
    wrong: str
    jobs: tuple  # names of tests/run.py's jobs, or globs, in the order in which they are tried


KERNELS = "src/cpu/kernels/"
FAULTS = (
    # ------------------------------------------------------------------ kernels of the CPU, one of each family
    Fault(
        "matvec: the second stream of rows begins a row too early",
        KERNELS + "vec/matvec.h",
        "row_bytes = apart * cols * size,",
        "row_bytes = (apart - (apart > 1)) * cols * size,",
        ("release/cpu/test_matmul16", "release/cpu/*"),
    ),
    Fault(
        "matmul in 16-bit integers: a group takes its neighbour's scale",
        KERNELS + "vec/quant_int16.h",
        "a->w_scales[r * MANY_SCALES + at]",
        "a->w_scales[r * MANY_SCALES + (at ^ 1)]",
        ("release/cpu/test_quant_kernels", "release/cpu/*"),
    ),
    Fault(
        "tokens as bytes: the offset of unsigned weights is not subtracted",
        KERNELS + "vec/quant_int8.h",
        "ivec_sub(ivec_set(BYTES_BASE_BITS), ivec_shift(sum, 7))",
        "ivec_set(BYTES_BASE_BITS)",
        ("release/cpu/test_quant_kernels", "release/cpu/*"),
    ),
    Fault(
        "int8 cache: a value takes the scale of its key",
        KERNELS + "vec/attend.h",
        "few_scale(n_queries, scores, a->v_scales + at, n);",
        "few_scale(n_queries, scores, a->k_scales + at, n);",
        ("release/cpu/test_attention_kernels", "release/cpu/*"),
    ),
    Fault(
        "attention of few queries: keys behind the last visible one are seen",
        KERNELS + "vec/attend.h",
        "{first > 0 ? first : 0, last < n ? last : n}",
        "{first > 0 ? first : 0, last + 1 < n ? last + 1 : n}",
        ("release/cpu/test_attention_kernels", "release/cpu/*"),
    ),
    Fault(
        "given rows: each block takes the biases of the first",
        KERNELS + "rows.c",
        "args->bias + (rows - given.rows)",
        "args->bias",
        ("release/cpu/test_select", "release/cpu/*"),
    ),
    Fault(
        "softmax over a row: the sum before is not scaled to the new maximum",
        KERNELS + "vec/select.h",
        "*sum = *sum * vec_first(vec_exp(vec_set(*max - largest))) +",
        "*sum = *sum +",
        ("release/cpu/test_select", "release/cpu/*", "release/engine/*"),
    ),
    Fault(
        "VNNI: the high digit counts 128 instead of 256",
        KERNELS + "vnni/digits.h",
        "ivec_shift(c[0], 8)",
        "ivec_shift(c[0], 7)",
        ("release/cpu/test_quant_kernels", "release/cpu/*"),
    ),
    # ------------------------------------------------------------------ the recipe
    Fault(
        "RoPE: frequencies by the whole head where a part is rotated",
        "src/model/rope.c",
        "pow(rope->theta, -2.0 * i / rotary_dim)",
        "pow(rope->theta, -2.0 * i / head_dim)",
        ("release/model/test_rope", "release/parity.py"),
    ),
    Fault(
        "experts: their weights are not brought to the sum 1",
        "src/cpu/experts.c",
        "for (int i = 0; i < n && !raw; i++)\n        weight[i] /= sum;",
        "(void)raw, (void)sum;",
        ("release/engine/test_forward", "release/engine/*", "release/parity.py"),
    ),
    Fault(
        "experts: of two equal ones the later is chosen",
        "src/cpu/experts.c",
        "(rating[other] == rating[e] && other < e)",
        "(rating[other] == rating[e] && other > e)",
        ("release/engine/test_forward", "release/engine/*", "release/parity.py"),
    ),
    Fault(
        "selection: of equal scores the last are kept",
        "src/cpu/long/select.c",
        "n += (x > t) | (tie & (ties > 0));",
        "n += (x > t) | (tie & (ties > 1));",
        ("release/cpu/test_select", "release/engine/*"),
    ),
    Fault(
        "sessions together: each is evaluated at the first one's position",
        "src/cpu/together.c",
        "(struct turn){states[i], batches[i].position,",
        "(struct turn){states[i], batches[0].position,",
        ("release/engine/test_together", "release/serve.py"),
    ),
    Fault(
        "recurrent layers: what is kept does not decay",
        KERNELS + "vec/delta.h",
        "vec_mul(by, delta_load(before + chain * ld, j, cols, whole))",
        "delta_load(before + chain * ld, j, cols, whole)",
        ("release/cpu/test_delta_kernels", "release/cpu/*"),
    ),
    Fault(
        "exact bits: blocks of keys begin where a window does",
        "src/cpu/attention.c",
        "begin = first - kv_slot(&task->kind->kv, first) % ATTEND_BLOCK_KEYS;",
        "begin = first;",
        ("release/engine/test_exact",),
    ),
    Fault(
        "exact bits: when sums in 16 bits become floats depends on a tile's height",
        KERNELS + "vnni/fixed.h",
        "for (int r = turn; r < n_rows; r += TURNS)",
        "for (int r = turn * n_rows / TURNS; r < (turn + 1) * n_rows / TURNS; r++)",
        ("release/cpu/test_matmul16", "release/engine/test_exact"),
    ),
    Fault(
        "exact bits: a prompt's last token is multiplied as its others are",
        "src/cpu/matmul.c",
        "const int apart = me->apart < n ? me->apart : n;",
        "const int apart = me->apart < n ? 0 : n;",
        ("release/engine/test_exact",),
    ),
    Fault(
        "exact bits: another text goes on from what was drawn",
        "src/engine/exact.c",
        "s->settled < s->position ? s->settled : s->position",
        "s->settled < 0 ? s->settled : s->position",
        ("release/engine/test_exact",),
    ),
    Fault(
        "recurrent layers: states behind tokens that were taken back are believed",
        "src/cpu/delta.c",
        "    drop_later(c, position);\n    if (n > 1 && !apart)",
        "    if (n > 1 && !apart)",
        ("release/engine/test_recurrent", "release/engine/*"),
    ),
    Fault(
        "shared keys: those of the layer before are seen, whatever its kind",
        "src/model/config.h",
        "while (kind->shares_keys && config->kind_of_layer[of] != kind->kv_of)",
        "if (kind->shares_keys)",
        ("release/engine/test_forward", "release/parity*"),
    ),
    Fault(
        "inputs of layers: each layer takes the first one's",
        "src/cpu/ops.c",
        "s->inputs + (t * s->config->n_layers + step->layer) * dim",
        "s->inputs + t * s->config->n_layers * dim",
        ("release/engine/test_forward", "release/parity*"),
    ),
    Fault(
        "a prompt's last token goes on alone with the angles of the first",
        "src/cpu/run.c",
        "memmove(kind->cos, kind->cos + last * half, sizeof *kind->cos * half);",
        "memmove(kind->cos, kind->cos, sizeof *kind->cos * half);",
        ("release/engine/test_forward", "release/engine/*"),
    ),
    # ------------------------------------------------------------------ the cache
    Fault(
        "ring: its first slot is used twice",
        "src/engine/kv_cache.c",
        "(int)((position - sinks) % (policy->capacity - sinks))",
        "(int)((position - sinks) % (policy->capacity - sinks - (policy->capacity > sinks + 1)))",
        ("release/engine/test_kv_cache", "release/engine/*"),
    ),
    Fault(
        "window: one key too many is visible",
        "src/engine/kv_cache.c",
        "max64(0, position - policy->span + 1)",
        "max64(0, position - policy->span)",
        ("release/engine/test_kv_cache", "release/engine/*"),
    ),
    Fault(
        "rollback: to where the ring has lost what is seen",
        "src/engine/kv_cache.c",
        "+ ring >= high_water",
        "+ ring + 1 >= high_water",
        ("release/engine/test_kv_cache", "release/engine/*", "release/parity.py"),
    ),
    # ------------------------------------------------------------------ threads
    Fault(
        "team: nobody waits for grains that others still hold",
        "src/cpu/machine/claims.c",
        "if (finishes(&team->finished, held, (int)grains))",
        "if ((finishes(&team->finished, held, (int)grains) || team->finished >= (int)grains - 1) && step_lasts(me))",
        ("release/cpu/test_team", "release/cpu/test_team_order", "tsan/cpu/test_team"),
    ),
    Fault(
        "team: a share that another member has changed meanwhile is taken all the same",
        "src/cpu/machine/claims.c",
        "if (atomic_compare_exchange_strong(share, &word, tag | rest)) {",
        "if (atomic_store(share, tag | rest), true) {",
        ("release/cpu/test_team", "release/cpu/test_team_order", "tsan/cpu/test_team"),
    ),
    Fault(
        "team: who opens a step does not see who is about to sleep",
        "src/cpu/machine/claims.c",
        "        atomic_store(&gate->sleepers, true);\n        futex(&gate->count, FUTEX_WAIT, seen);",
        "        futex(&gate->count, FUTEX_WAIT, seen);\n        atomic_store(&gate->sleepers, true);",
        ("release/cpu/test_team_order",),
    ),
    Fault(
        "team: a group's finished grains count in the next step",
        "src/cpu/machine/claims.c",
        "        atomic_store(&group->finished, 0);\n",
        "",
        ("release/cpu/test_team_order",),
    ),
    Fault(
        "team: members go on looking at shares when the step is over",
        "src/cpu/machine/claims.c",
        "me->known = me->n_members; // all shares are empty",
        "",
        ("release/cpu/test_team_order",),
    ),
    # ------------------------------------------------------------------ text
    Fault(
        "BPE: later merges come first",
        "src/text/merge.c",
        "*rule = (struct merge_rule){left, right, (uint32_t)i, result};",
        "*rule = (struct merge_rule){left, right, (uint32_t)(n - 1 - i), result};",
        ("release/text/test_tokenizer*", "asan/text.py"),
    ),
    Fault(
        "penalty: a negative logit of a repeated token is divided",
        "src/text/sampler.c",
        "*logit > 0 ? *logit / s->repeat_penalty : *logit * s->repeat_penalty",
        "*logit / s->repeat_penalty",
        ("release/text/test_sampler",),
    ),
    Fault(
        "stop string: its beginning at the end of a piece is not held back",
        "src/generate/generator.c",
        "if (partial == text->length)\n                partial = at;",
        "",
        ("release/cli.py",),
    ),
    Fault(
        "chat template: trim takes the left side alone",
        "src/chat/filters.c",
        'return strip(as_text(run, value), argument(a, 0, "chars", none()), BOTH);',
        'return strip(as_text(run, value), argument(a, 0, "chars", none()), LEFT);',
        ("asan/chat.py",),
    ),
    Fault(
        "grammar: a node of the vocabulary's trie ends a token too late",
        "src/grammar/tree.c",
        "next.end = at;",
        "next.end = at + (at < node.end);",
        ("asan/grammar.py", "release/serve.py"),
    ),
    # ------------------------------------------------------------------ what comes from outside
    Fault(
        "model file: a tensor may reach past the end",
        "src/util/checked.h",
        "offset <= size && length <= size - offset",
        "offset <= size && length <= size",
        ("release/model/test_container", "release/model/*"),
    ),
    Fault(
        "model file: the metadata's length is not held against the file's",
        "src/model/container.c",
        "if (h->metadata_length > map->size - HEADER_SIZE)",
        "if (h->metadata_length > map->size + MAX_METADATA)",
        ("release/model/test_container", "release/model/*"),
    ),
    Fault(
        "cancellation: a thread that is in an earlier layer ends there",
        "src/cpu/state.h",
        "(in == run && (stopped & ((1 << STOPPED_LAYER_BITS) - 1)) <= layer + 1)",
        "(in == run && layer >= 0)",
        ("release/engine/test_session",),
    ),
    Fault(
        "server: a checkpoint is kept that stands behind other tokens than its page",
        "src/serve/prefixes.c",
        "page->end != (size_t)yalm_position(session)",
        "page->end > (size_t)yalm_position(session)",
        ("release/serve/test_prefixes", "release/serve/*"),
    ),
    Fault(
        "session file: damage is not noticed",
        "src/engine/session_file.c",
        "|| XXH3_64bits_digest(stream->hash) != h->body_checksum",
        "|| (XXH3_64bits_digest(stream->hash) != h->body_checksum && h->body_checksum == 0)",
        ("release/engine/test_session_file", "release/cli.py"),
    ),
    Fault(
        "server: the beginning of a key is let in",
        "src/serve/keys.c",
        "unsigned differ = strlen(key) != length;",
        "unsigned differ = 0;",
        ("release/serve.py",),
    ),
    # ------------------------------------------------------------------ the converter
    Fault(
        "q4: a byte's columns are exchanged",
        "tools/yalm_convert/packing.py",
        "(bits[:, 0::2] & 15) | (bits[:, 1::2] << 4)",
        "(bits[:, 1::2] & 15) | (bits[:, 0::2] << 4)",
        ("release/tools.py",),
    ),
    Fault(
        "GGUF: a tensor's rows are read from one row later",
        "tools/yalm_convert/gguf_blocks.py",
        "file.seek(self.offset + first * row)",
        "file.seek(self.offset + (first + (first > 0)) * row)",
        ("release/tools.py",),
    ),
    # ------------------------------------------------------------------ CUDA, in the emulator
    Fault(
        "CUDA: a block's sum without the barrier",
        "src/cuda/kernels/reduce.cuh",
        "    __syncthreads();\n    return warp_sum(lane < n_warps",
        "    return warp_sum(lane < n_warps",
        ("emulated/cuda/test_elementwise", "emulated/cuda/*"),
    ),
    Fault(
        "CUDA: the last split of a token's attention is left out when they are merged",
        "src/cuda/attention/attention.cuh",
        "n_rows, n_splits, parts.acc);",
        "n_rows, n_splits - 1, parts.acc);",
        ("emulated/cuda/test_attention_decode", "emulated/cuda/*"),
    ),
    Fault(
        "CUDA: the ring's slots are a window too short",
        "src/cuda/kernels/kv_policy.cuh",
        "(position - policy.n_sinks) % (policy.capacity - policy.n_sinks)",
        "(position - policy.n_sinks) % (policy.span - policy.n_sinks)",
        ("emulated/cuda/test_elementwise", "emulated/cuda/*"),
    ),
    Fault(
        "CUDA: collecting candidates without the barrier before the list is used again",
        "src/cuda/long/select.cu",
        "    staged.n = 0;\n    __syncthreads();",
        "    staged.n = 0;",
        ("emulated/cuda/test_selective", "emulated/cuda/*", "emulated/cuda.py"),
    ),
    Fault(
        "CUDA: what a drawn key stands for is left out",
        "src/cuda/attention/attention.cuh",
        "return a.gathered.bias && !keys.sinks;",
        "return a.gathered.bias && keys.sinks;",
        ("emulated/cuda/test_selective", "emulated/cuda/*"),
    ),
    Fault(
        "CUDA: several tokens' products keep the x of a row's first columns for all of it",
        "src/cuda/products/several.cuh",
        "stage_several<T>(xs, m, begin * width, padded);",
        "stage_several<T>(xs, m, 0, padded);",
        ("emulated/cuda/test_several", "emulated/cuda/*"),
    ),
    Fault(
        "CUDA: a recurrent state is read where it is to be written",
        "src/cuda/delta/rule.cu",
        "s.states + s.step->from * s.states_pitch + at",
        "s.states + s.step->to * s.states_pitch + at",
        ("emulated/cuda/test_delta", "emulated/cuda/*"),
    ),
    Fault(
        "CUDA: ranks do not sum what a block adds",
        "src/cuda/shares.cu",
        "    TRY(sum(s, s->branch, (size_t)n * dim, error));\n",
        "",
        ("emulated/cuda.py",),
    ),
)
