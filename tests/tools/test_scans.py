"""tools/convert.py on models with Mamba-2's scans: what is refused, and GGUF files beside the same model's directory."""

import gguf_files
import hf
import pytest

PRESETS = hf.random_hf_model.random_hf_mamba.presets()


# In GGUF files Falcon's factors are part of its weights.
UNSCALED = {key: 1.0 for key in PRESETS["tiny-falcon-h1"] if key.endswith("_multiplier")}
UNSCALED |= {"mlp_multipliers": [1.0] * 2, "ssm_multipliers": [1.0] * 5}


@pytest.fixture
def directory(monkeypatch, tmp_path):
    """directory(preset, changes) -> a model's directory."""

    def get(preset, **changes):
        monkeypatch.setitem(hf.random_hf_model.PRESETS, "changed", {**PRESETS[f"tiny-{preset}"], **changes})
        return hf.make("changed", tmp_path / preset)

    return get


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset(preset, directory, convert):
    """The reader of docs/format.md knows all that is written."""
    metadata, tensors, *_ = convert(directory(preset.removeprefix("tiny-")))
    assert any(".scan.x" in name for name in tensors)
    assert any("scan" in kind.get("delta", {}) for kind in [metadata["config"], *metadata["config"].get("kinds", [])])


@pytest.mark.parametrize(
    "preset, changes",
    [
        ("granite-hybrid", {}),
        ("granite-hybrid-dense", {"position_embedding_type": "nope", "time_step_limit": None}),
        ("nemotron-h", {"time_step_min": 0.001}),
        ("nemotron-h-dense", {"time_step_min": 0.001}),
        ("bamba", {"partial_rotary_factor": 0.5}),
        ("bamba", {"partial_rotary_factor": 1.0, "attn_layer_indices": [0, 3], "mamba_conv_bias": False}),
        ("falcon-h1", UNSCALED),
        ("falcon-h1-norm", {**UNSCALED, "mamba_norm_before_gate": False}),
    ],
)
def test_gguf(preset, changes, directory, convert, tmp_path):
    source = directory(preset, **changes)
    wanted, found = convert(source), convert(gguf_files.write(source, tmp_path / "model.gguf"))
    assert hf.contents(found[1]) == hf.contents(wanted[1])
    keys = {key for key in wanted[0]["config"] if wanted[0]["config"][key] != found[0]["config"].get(key)}
    assert keys <= {"rope", "ffn_dim", "expert_ffn_dim"}


def test_a_granite_that_does_not_say_whether_it_rotates(directory, monkeypatch, capsys, tmp_path):
    def change(writer):
        writer.kv_data[0].pop("granitehybrid.rope.scaling.finetuned")

    path = gguf_files.write(directory("bamba"), tmp_path / "model.gguf", change=change)
    code, _, err = hf.call(monkeypatch, capsys, path, tmp_path / "model.bin")
    assert code == 3 and "rope.scaling.finetuned is None, expected whether q and k rotate" in err


@pytest.mark.parametrize(
    "preset, changes, text",
    [
        ("nemotron-h", {"hybrid_override_pattern": "ME-"}, "an MLP that follows another, or comes first"),
        ("nemotron-h", {"hybrid_override_pattern": "MX"}, 'layer_types: found "X", expected a recurrence, attention'),
        ("nemotron-h", {"moe_latent_size": 32}, "moe_latent_size is 32: experts of a latent are not supported"),
        ("granite-hybrid", {"mamba_proj_bias": True}, "mamba_proj_bias: found true, expected false"),
        ("granite-hybrid", {"layer_types": ["mamba"] * 4}, "found no layer with attention"),
        ("granite-hybrid", {"position_embedding_type": "alibi"}, "position_embedding_type: found"),
        ("granite-hybrid", {"time_step_limit": [1, -1]}, "time_step_limit: found"),
        ("bamba", {"mamba_d_head": 16}, "mamba_n_heads 6 times mamba_d_head 16: expected 192"),
        ("bamba", {"mamba_n_groups": 4}, "mamba_n_heads 6 is not a multiple of mamba_n_groups 4"),
        ("falcon-h1", {"mlp_multipliers": [1.0]}, "mlp_multipliers: found"),
    ],
)
def test_refused(preset, changes, text, directory, monkeypatch, capsys, tmp_path):
    source = directory(preset)
    hf.edit_json(source / "config.json", **changes)
    code, _, err = hf.call(monkeypatch, capsys, source, tmp_path / "model.bin")
    assert code == 3 and text in err, err
