"""What is recognised as weights and moments, and above all what is not."""

from __future__ import annotations

import time

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lcstore.dtypes import DTYPE_NAMES, LOSSY_DTYPES, dtype_from_name
from lcstore.state.roles import LEAST_MOMENT, guess_role, is_flattened_moment, is_optimizer

F32 = np.dtype("float32")


def role(*path):
    return guess_role(path, F32, (4, 4))


WEIGHTS = [
    # torch
    ("weight",),
    ("model", "layers.0.weight"),
    ("model", "model.layers.0.self_attn.q_proj.weight"),
    ("model", "transformer.h.0.attn.in_proj_weight"),
    ("model", "lstm.weight_ih_l0"),
    ("model", "lstm.weight_hh_l1_reverse"),
    ("model", "attn.q_proj_weight"),
    ("model", "conv.parametrizations.weight.original1"),
    ("model", "conv.weight_v"),
    ("model", "q.lora_A.default.weight"),
    ("model", "q.lora_B.weight"),
    ("model", "embed.lora_embedding_A.default"),
    ("model", "experts.gate_up_proj"),
    ("model", "visual.position_embeddings.weight"),
    ("model", "pos_embed"),
    ("model", "roi_heads.mask_predictor.mask_fcn_logits.weight"),
    ("model", "opt.model.decoder.layers.0.fc1.weight"),
    ("opt_model", "model.decoder.layers.0.fc1.weight"),
    ("ema", "layers.0.weight"),
    ("state_dict", "net.0.weight"),
    ("best", "sgd", "model", "fc.weight"),
    ("sgd", "model", "fc.weight"),
    # Flax, Haiku, Keras
    ("params", "Dense_0", "kernel"),
    ("params", "Embed_0", "embedding"),
    ("params", "attn", "query", "kernel"),
    ("params", "pos_embedding"),
    ("params", "mu", "kernel"),
    ("params", "v", "kernel"),
    ("params", "mlp/~/linear_0", "w"),
    ("params", 0, 0),
    ("dense", "kernel:0"),
    ("lstm", "recurrent_kernel"),
    # plain dicts
    ("model", "W1"),
    ("model", "w"),
    ("model", "fc1"),
    ("net", "W_2"),
    ("net", "fc1_w"),
    ("q_network", "w1"),
    ("weights", "layer1"),
    ("model", 0, "W"),
    ("model", "wq"),
    ("model", "wte"),
]


@pytest.mark.parametrize("path", WEIGHTS, ids=repr)
def test_weights(path):
    assert role(*path) == "weights"
    assert not is_optimizer(path)


EXACT = [
    (),
    ("x",),
    ("w",),
    ("u",),
    ("W1",),
    ("theta_opt",),
    ("field", "w"),
    ("model", "u"),
    ("model", "hidden"),
    ("model", "bn.running_mean"),
    ("model", "bn.running_var"),
    ("model", "bn.num_batches_tracked"),
    ("model", "attn.bias"),
    ("model", "attn.masked_bias"),
    ("model", "attn.causal_mask"),
    ("model", "fc.weight_mask"),
    ("model", "fc.weight_scale"),
    ("model", "fc.weight_scale_inv"),
    ("model", "fc.weight.absmax"),
    ("model", "fc.scales"),
    ("model", "conv.parametrizations.weight.original0"),
    ("model", "original"),
    ("model", "rotary_emb.inv_freq"),
    ("model", "rope.cos_cached"),
    ("model", "embeddings.position_ids"),
    ("model", "moco.queue"),
    ("model", "vq.cluster_size"),
    ("model", "embed_avg"),
    ("params", "norm", "scale"),
    ("params", "dense", "bias"),
    ("params", "running_mean"),
    ("params", "mask"),
    ("batch_stats", "bn", "mean"),
    ("model", "batch_stats", "kernel"),
    ("buffers", "weight"),
    ("grads", "layers.0.weight"),
    ("cache", "k"),
    ("rng",),
    ("replay_buffer", "weight"),
    ("sampler", "weights"),
    # moments that nothing says are those of an optimizer
    (1, 0, "mu", "dense", "kernel"),
    (1, 0, "nu", "dense", "kernel"),
    ("v", "dense", "kernel"),
    ("m", "params", "dense", "kernel"),
    ("adam",),
    ("model", "m"),
    # ways through a tree in one key
    ("1/0/mu/dense/kernel",),
    ("0.mu.dense.kernel",),
    ("0.nu.dense.w",),
    ("1.0.nu.dense.weight",),
    ("[0].nu['dense']['kernel']",),
    ("adam/m/dense/kernel",),
    ("rmsprop.v.dense.weight",),
    ("m/dense/kernel",),
    ("v/dense/kernel",),
    ("opt.0.sum.kernel",),
    ("1.0.mu.layers.0.weight",),
    ("opt|0|nu|d|kernel",),
]

#: Those that name an optimizer in the middle, and not by a word that models have.
FLATTENED = [
    ("opt_state/0/mu/dense/kernel",),
    ("opt_state/0/nu/params/dense/kernel",),
    ("opt/1/0/sum/dense/kernel",),
    ("trainer/optimizer/acc/kernel",),
    ("opt_state.0.trace.dense.kernel",),
    ("state.opt_state.0.any.dense.weight",),
    ("['opt_state'][0].nu['dense']['kernel']",),
    ("train", "opt_state/0/nu/dense/kernel"),
]


@pytest.mark.parametrize("path", FLATTENED, ids=repr)
def test_what_an_optimizer_keeps_is_exact_where_its_tree_was_flattened(path):
    """They were weights: a second moment beside its step size came back so that a step threw the run away."""
    assert role(*path) == "plain"
    assert is_flattened_moment(path)
    assert guess_role(path, F32, (1 << 17,)) == "plain"


@pytest.mark.parametrize(
    "path",
    [
        ("params/dense/kernel",),
        ("['params']['dense']['kernel']",),
        ("params/mu/kernel",),
        ("params", "vae/mu/kernel"),
        ("params", "v/kernel"),
        ("params", "nu.weight"),
        ("model", "vae/mu/kernel"),
        ("mu.weight",),
        ("model.layers[3].nu.weight",),
        ("trainable_variables", "functional/mu/kernel"),
        ("['params']['nu']['kernel']",),
        ("encoder/attention/v/kernel",),
        ("model", "vae.mu.weight"),
        ("model", "attn.v.weight"),
        ("opt.decoder.weight",),
    ],
    ids=repr,
)
def test_weights_are_weights_where_their_tree_was_flattened(path):
    assert role(*path) == "weights"
    assert not is_flattened_moment(path)


@pytest.mark.parametrize("path", EXACT, ids=repr)
def test_exact(path):
    assert role(*path) == "plain"
    assert not is_optimizer(path)


MOMENTS = [
    (("optim", "state", 0, "exp_avg"), "first_moment"),
    (("optim", "state", 0, "exp_avg_sq"), "second_moment"),
    (("optim", "state", 0, "max_exp_avg_sq"), "second_moment"),
    (("optimizer_states", 0, "state", 3, "momentum_buffer"), "first_moment"),
    (("anything", "state", 0, "exp_avg"), "first_moment"),
    (("optimizer.state.layers.0.weight.exp_avg",), "first_moment"),
    (("optim", "state", "layers.0.weight", "exp_avg_sq"), "second_moment"),
    (("opt_state", 0, "mu", "params", "Dense_0", "kernel"), "first_moment"),
    (("opt_state", 0, "nu", "params", "Dense_0", "kernel"), "second_moment"),
    (("opt_state", "inner_state", 1, "nu", "mu", "kernel"), "second_moment"),
    (("opt_state", 0, "trace", "nu", "kernel"), "first_moment"),
    (("opt", "m", "W1"), "first_moment"),
    (("optimizer", "v"), "second_moment"),
    (("adam", "m", "W1"), "first_moment"),
    (("adamw", "v", "W1"), "second_moment"),
    (("d_optimizer", "state", 0, "exp_avg"), "first_moment"),
    (("actor_opt", 0, "mu", "w"), "first_moment"),
]


@pytest.mark.parametrize(("path", "expected"), MOMENTS, ids=repr)
def test_moments(path, expected):
    assert role(*path) == expected
    assert is_optimizer(path)
    assert guess_role(path, F32, (4,)) == "plain"


OTHER_OPTIMIZER_STATE = [
    ("optim", "state", 0, "exp_inf"),
    ("optim", "state", 0, "sum"),
    ("optim", "state", 0, "weight"),
    ("optim", "master", "layers.0.weight"),
    ("optim.exp_avg.layers.0.weight",),
    ("opt_state", 0, "ema", "kernel"),
    ("opt_state", 0, "v_row", "kernel"),
    ("optimizer", "layer", "m"),
    ("optimizer", "velocity"),
    ("state", 0, "exp_avg_sq_row"),
]


@pytest.mark.parametrize("path", OTHER_OPTIMIZER_STATE, ids=repr)
def test_other_optimizer_state_is_exact(path):
    assert role(*path) == "plain"
    assert is_optimizer(path)


@pytest.mark.parametrize(
    "part",
    [
        "option",
        "options",
        "optical",
        "opt_model",
        "optimum",
        "model_opt",
        "adamant",
        "copt",
        "optimizer_model",
    ],
)
def test_parts_that_only_look_like_an_optimizer(part):
    assert not is_optimizer((part, "fc.weight"))
    assert role(part, "fc.weight") == "weights"


@pytest.mark.parametrize(
    "part",
    [
        "opt",
        "optim",
        "optimizer",
        "optimisers",
        "Optimizer",
        "opt_state",
        "optimizer_state_dict",
        "optim_sd",
        "opt_0",
        "opt2",
        "g_optimizer",
        "optimizer_g",
        "disc_opt",
        "model_optimizer",
        "model_opt_state",
        "optimizer.pt",
    ],
)
def test_parts_that_name_an_optimizer(part):
    assert is_optimizer((part, "state", 0, "step"))


@pytest.mark.parametrize("shape", [(), (4,)])
@pytest.mark.parametrize("path", [WEIGHTS[0], MOMENTS[0][0]])
def test_fewer_than_two_dimensions_are_exact(path, shape):
    assert guess_role(path, F32, shape) == "plain"


@pytest.mark.parametrize("name", DTYPE_NAMES)
def test_only_floats_of_16_to_64_bits_are_lossy(name):
    expected = "weights" if name in LOSSY_DTYPES else "plain"
    assert guess_role(("model", "fc.weight"), dtype_from_name(name), (4, 4)) == expected


def test_dtype_may_be_bfloat16():
    assert guess_role(("optim", 0, "mu", "x"), np.dtype(ml_dtypes.bfloat16), (2, 2)) == "first_moment"


@given(st.lists(st.text(max_size=12) | st.integers(-5, 5), max_size=5).map(tuple))
def test_any_path_has_a_role(path):
    assert guess_role(path, F32, (2, 2)) in ("weights", "first_moment", "second_moment", "plain")
    assert guess_role(path, F32, (2,)) == "plain"


def test_hostile_names_are_recognised_fast():
    start = time.process_time()
    for name in (
        "opt" + "1" * 5000 + "x",
        "opt" + "_g" * 5000 + "x",
        "w" + "_1" * 5000 + "x",
        "a" * 9000 + "_opt",
    ):
        is_optimizer((name, "a"))
        role("model", name)
    assert time.process_time() - start < 1.0


FLAT = (1 << 16,)
FLAT_WEIGHTS = [
    ("_flat_param",),
    ("model", "_fsdp_wrapped_module.layers.0._fsdp_wrapped_module._flat_param"),
    ("params",),
    ("model", "encoder.params"),
    ("optimizer_state_dict", "single_partition_of_fp32_groups", 0),
    ("fp32_flat_groups", 1),
]
NO_FLAT_WEIGHTS = [
    ("weight",),
    ("weights",),
    ("model", "head.bias"),
    ("params", "head", "bias"),
    ("params", "density_bitfield"),
    ("dataset", "params"),
    ("grads", "_flat_param"),
    ("optim", "state", 0, "_flat_param"),
    ("model", "embedding.weight"),
    ("losses",),
    (),
]


@pytest.mark.parametrize("path", FLAT_WEIGHTS)
def test_long_tensors_of_one_dimension_are_weights_where_they_are_called_flat(path):
    assert guess_role(path, F32, FLAT) == "weights"
    assert guess_role(path, F32, ((1 << 16) - 1,)) == "plain"
    assert guess_role(path, np.dtype("int64"), FLAT) == "plain"


@pytest.mark.parametrize("path", NO_FLAT_WEIGHTS)
def test_other_long_tensors_of_one_dimension_are_plain(path):
    assert guess_role(path, F32, FLAT) == "plain"


@pytest.mark.parametrize(
    ("path", "role"),
    [
        (("optim", "state", 0, "exp_avg"), "first_moment"),
        (("optim", "state", 0, "exp_avg_sq"), "second_moment"),
        (("opt_state", 0, "nu", "params", "Dense_0", "bias"), "second_moment"),
        (("optim", "state", 0, "step"), "plain"),
        (("model", "head.bias"), "plain"),
        (("model", "norm.weight"), "plain"),
        (("params", "norm", "scale"), "plain"),
    ],
)
def test_of_one_dimension_moments_alone_are_lossy(path, role):
    assert guess_role(path, F32, (LEAST_MOMENT,)) == role
    assert guess_role(path, F32, (LEAST_MOMENT - 1,)) == "plain"
    assert guess_role(path, F32, ()) == "plain"
    assert guess_role(path, np.dtype("int64"), (LEAST_MOMENT,)) == "plain"


def test_moments_of_flat_parameters_are_moments():
    assert guess_role(("optim", "state", 0, "exp_avg"), F32, FLAT) == "first_moment"
    assert guess_role(("optim", "state", 0, "exp_avg_sq"), F32, FLAT) == "second_moment"
