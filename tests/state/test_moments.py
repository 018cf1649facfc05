"""Moments are lossy only in groups that are known, as a whole."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import pytest

from lcstore.state.moments import Tensor, guess_roles, is_fading
from lcstore.state.tree import flatten

MATRIX = np.ones((4, 4), np.float32)
ONE = np.float32(1)


class ScaleByAdamState(NamedTuple):
    count: Any
    mu: Any
    nu: Any


class ScaleByRStdDevWithCountState(NamedTuple):
    count: Any
    mu: Any
    nu: Any


def lossy(state) -> set[str]:
    flat = flatten(state)
    hosts = dict(flat.tensors)
    hosts |= {name: hosts[first] for name, first in flat.ties.items()}
    tensors = [Tensor(name, host.array.dtype, host.array.shape) for name, host in hosts.items()]
    roles = zip(tensors, guess_roles(tensors, flat.types, flat.said, flat.counted), strict=True)
    return {"/".join(map(str, tensor.name)) for tensor, role in roles if role != "plain"}


def fields(text: str) -> dict[str, Any]:
    return dict.fromkeys(text.split(), MATRIX)


@pytest.mark.parametrize(
    "known",
    [
        *("exp_avg exp_avg_sq", "exp_avg", "momentum_buffer", "square_avg", "square_avg momentum_buffer"),
        *("exp_avg exp_avg_sq max_exp_avg_sq", "exp_avg exp_inf", "square_avg acc_delta", "sum"),
        *("prev step_size", "ax", "exp_avg exp_avg_var", "exp_avg exp_avg_var max_exp_avg_var"),
        *("exp_avg hessian", "exp_avg exp_hessian_diag_sq", "z exp_avg_sq", "moment1 moment2"),
    ],
)
def test_known_groups_of_torch(known):
    group = {**fields(known), "step": ONE, "mu_product": ONE, "flags": np.ones(1, np.float32)}
    assert lossy({"optim": {"state": {0: group}}}) == {f"optim/state/0/{field}" for field in known.split()}
    copies = {**group, "master_param": np.ones(16, np.float32)}
    assert lossy({"optim": {"state": {0: copies}}}) == {f"optim/state/0/{field}" for field in known.split()}


@pytest.mark.parametrize(
    "unknown",
    [
        "square_avg grad_avg",
        "square_avg acc_delta grad_avg",
        "exp_avg exp_inf exp_avg_sq",
        "sum square_avg",
        "prev step_size exp_avg",
        "ax exp_avg",
        "sum mean",
        "exp_avg exp_avg_sq exp_avg_diff",
        "momentum_buffer preconditioner",
        *("exp_avg exp_avg_sq GG Q", "z", "z exp_avg", "hessian", "exp_avg exp_avg_sq exp_avg_slow s"),
        *("exp_avg exp_avg_sq grad_sum_sq", "moment2", "exp_avg exp_avg_var exp_avg_sq"),
    ],
)
@pytest.mark.parametrize("wide", [True, False])
def test_unknown_groups_of_torch(unknown, wide):
    group = fields(unknown)
    if not wide:  # what is beside a matrix need not be one, and may be deeper
        *_, last = group
        group[last] = [np.ones(4, np.float32)]
    assert lossy({"o": {"state": {0: group, 1: {"exp_avg": MATRIX}}}}) == {"o/state/1/exp_avg"}


@pytest.mark.parametrize(
    ("kept", "lossless"),
    [
        ("exp_avg exp_avg_sq exp_avg_diff neg_pre_grad", "exp_avg neg_pre_grad"),
        ("exp_avg_fast exp_avg_slow exp_avg_sq", "exp_avg_slow"),
        ("exp_avg exp_avg_sq last_grad", "last_grad"),
        ("exp_avg exp_avg_sq s p0", "exp_avg s p0"),
    ],
)
def test_groups_of_which_a_part_is_plain(kept, lossless):
    within = {f"optim/state/0/{field}" for field in set(kept.split()) - set(lossless.split())}
    assert lossy({"optim": {"state": {0: fields(kept)}}}) == within


@pytest.mark.parametrize(
    ("kept", "moments"),
    [
        ("exp_avg exp_avg_sq", "exp_avg exp_avg_sq"),
        ("exp_avg exp_avg_sq max_exp_avg_sq", "exp_avg exp_avg_sq max_exp_avg_sq"),
        ("exp_avg exp_inf", "exp_avg exp_inf"),
        ("square_avg acc_delta", "square_avg acc_delta"),
        ("prev step_size", "prev step_size"),
        ("exp_avg! exp_avg_sq s! p0!", "exp_avg_sq"),
        # Averages of a bias, and what it is drawn to, are like the bias itself.
        ("ax", ""),
        ("z exp_avg_sq", "exp_avg_sq"),
        ("exp_avg exp_avg_sq master_param!", "exp_avg exp_avg_sq"),
        # Groups that are not known, or subtract.
        ("square_avg grad_avg", ""),
        ("exp_avg exp_avg_sq surprise", ""),
    ],
)
def test_of_biases_moments_alone_are_lossy(kept, moments):
    names = kept.replace("!", "").split()
    for length, wanted in ((64, moments.split()), (8, [])):
        vector = np.ones(length, np.float32)
        group = {name: vector.copy() for name in names} | {"step": ONE}
        state = {"model": {"fc.bias": vector}, "optim": {"state": {0: group}}}
        assert lossy(state) == {f"optim/state/0/{name}" for name in wanted}


def test_factors_of_rows_and_columns_are_exact():
    vector = np.ones(64, np.float32)
    kept = {"exp_avg": np.ones((64, 64), np.float32), "exp_avg_sq_row": vector, "exp_avg_sq_col": vector}
    assert lossy({"optim": {"state": {0: kept}}}) == {"optim/state/0/exp_avg"}


def test_groups_of_keras():
    def kept(*endings):
        return {"adam": {f"dense_{layer}kernel_{end}": MATRIX for layer in ("", "1_") for end in endings}}

    both = {f"optimizer_variables/adam/dense_{layer}kernel_" for layer in ("", "1_")}
    for endings in (["momentum"], ["momentum", "velocity"], ["momentum", "velocity", "velocity_hat"]):
        expected = {name + end for name in both for end in endings}
        assert lossy({"optimizer_variables": kept(*endings)}) == expected
    for endings in (["velocity"], ["momentum", "average_gradient"], ["momentum", "velocity", "own"]):
        assert not lossy({"optimizer_variables": kept(*endings)})
    assert not lossy({"totals": kept("momentum", "velocity")["adam"]})


def test_codebooks_that_averages_make_are_plain():
    """Which they are is told by what lies beside: learned ones have the same names."""
    learned = {"vq.embedding.weight": MATRIX, "vq.proj.weight": MATRIX}
    averaged = {**learned, "vq.embedding.embed_avg": MATRIX}
    assert lossy({"model": learned}) == {"model/vq.embedding.weight", "model/vq.proj.weight"}
    assert lossy({"model": averaged}) == {"model/vq.proj.weight"}
    name = ("vq.embedding.weight",)
    tensors = [
        Tensor(name, MATRIX.dtype, MATRIX.shape),
        Tensor(("vq.embedding.embed_avg",), MATRIX.dtype, (4, 4)),
    ]
    assert guess_roles(tensors, {}, {name: "weights"}) == ["weights", "plain"]  # a module knows better
    nest = {"vq": {"embed": MATRIX, "cluster_size": np.ones(4, np.float32), "proj": MATRIX}}
    assert lossy({"model": nest}) == {"model/vq/proj"}


def test_groups_in_flattened_keys():
    names = [
        f"optimizer.state.layers.{n}.weight.{field}" for n in range(2) for field in ("exp_avg", "exp_avg_sq")
    ]
    state = dict.fromkeys(names, MATRIX)
    assert lossy(state) == set(names)
    more = "optimizer.state.layers.1.weight.max_exp_avg_sq"
    state[more] = MATRIX
    assert lossy(state) == {*names, more}
    state["optimizer.state.layers.0.weight_scale.exp_avg"] = MATRIX  # of another parameter
    names.append("optimizer.state.layers.0.weight_scale.exp_avg")
    assert lossy(state) == {*names, more}
    state["optimizer.state.layers.1.weight.grad_avg"] = MATRIX
    assert lossy(state) == {*names[:2], names[-1]}


def test_groups_of_optax():
    tree = {"params": {"dense": {"kernel": MATRIX}}}
    both = {f"opt_state/0/{field}/params/dense/kernel" for field in ("mu", "nu")}
    assert lossy({"opt_state": (ScaleByAdamState(ONE, tree, tree), ())}) == both
    assert lossy({"opt_state": (OrderedDict(count=ONE, mu=tree, nu=tree),)}) == both
    assert lossy({"opt_state": ({"count": 3, "mu": tree, "nu": tree},)}) == both
    counts = np.arange(10)  # an ensemble by `jax.vmap` has one a member
    assert lossy({"opt_state": (ScaleByAdamState(counts, tree, tree), ())}) == both
    assert lossy({"opt_state": ({"count": counts, "mu": tree, "nu": tree},)}) == both
    assert not lossy({"opt_state": ({"mu": tree, "nu": tree}, {"count": 3})})
    assert not lossy({"opt_state": (ScaleByRStdDevWithCountState(ONE, tree, tree),)})
    assert not lossy({"opt_state": ({"mu": tree, "nu": tree},)})
    assert not lossy({"opt_state": ({"count": ONE, "mu": tree, "nu": tree, "nu_prev": tree},)})
    assert lossy({"opt_state": ({"count": ONE, "mu": tree, "nu": tree, "nu_max": tree},)}) == {
        *both,
        "opt_state/0/nu_max/params/dense/kernel",
    }
    assert lossy({"opt_state": ({"sum_of_squares": tree}, {"e_g": tree, "e_x": tree})}) == {
        f"opt_state/{place}/params/dense/kernel" for place in ("0/sum_of_squares", "1/e_g", "1/e_x")
    }
    # What only optimizers have makes one of any tree.
    assert lossy({"o": fields("exp_avg exp_inf")}) == {"o/exp_avg", "o/exp_inf"}
    # Beside nothing of an optimizer, and beside less than its whole group, such a name says nothing.
    assert not lossy({"opt_state": ({"e_g": tree},), "totals": {"sum": MATRIX, "ax": MATRIX}})
    assert lossy({"opt_state": ({"mu": tree}, {"trace": tree}, {"nu": tree})}) == {
        f"opt_state/{place}/params/dense/kernel" for place in ("0/mu", "1/trace", "2/nu")
    }


def test_groups_of_optax_beside_others():
    tree = {"dense": {"kernel": MATRIX}}
    inner = ({"count": ONE, "nu": tree}, {})
    muon = {"count": ONE, "mu": tree, "ns_coeffs": np.ones(3, np.float32)}
    assert lossy({"opt_state": (muon,)}) == {"opt_state/0/mu/dense/kernel"}
    free = {"b1": ONE, "weight_sum": ONE, "base_optimizer_state": inner, "z": tree}
    assert lossy({"opt_state": free}) == {
        "opt_state/z/dense/kernel",
        "opt_state/base_optimizer_state/0/nu/dense/kernel",
    }
    slow = {"count": ONE, "count_m2": ONE, "m1": tree, "m2": tree, "nu": tree}
    assert lossy({"opt_state": (slow,)}) == {"opt_state/0/m1/dense/kernel", "opt_state/0/nu/dense/kernel"}
    # Schedule-free SGD keeps nothing beside: it is not shown that it is safe.
    assert not lossy({"opt_state": {"b1": ONE, "base_optimizer_state": ({},), "z": tree}})


def test_groups_by_hand():
    assert lossy({"adam": {"m": {"w": MATRIX}, "v": {"w": MATRIX}, "t": 3}}) == {"adam/m/w", "adam/v/w"}
    assert lossy({"adam": {"mu": MATRIX, "nu": MATRIX}}) == {"adam/mu", "adam/nu"}
    assert not lossy({"opt": {"m": MATRIX, "v": MATRIX, "n": MATRIX}})
    # A lone `v` may be a velocity, which has a sign.
    assert not lossy({"opt": {"v": MATRIX}})


@pytest.mark.parametrize("within", ["state/0/__bnb_optimizer_quant_state__", "state/0"])
def test_bytes_of_optimizers_of_8_bits_are_exact_and_their_scales_too(within):
    codes, scales = np.ones((64, 64), np.uint8), np.ones((64, 1), np.float32)
    kept: dict[str, Any] = {"state1": codes, "absmax1": scales, "qmap1": np.ones((1, 256), np.float32)}
    kept |= {"state2": codes, "absmax2": scales, "max1": scales, "new_max1": scales, "unorm_vec": scales}
    tree: Any = kept | {"step": 3}
    for part in reversed(within.split("/")):
        tree = {int(part) if part.isdigit() else part: tree}
    assert not lossy({"optim": tree})
    # What is too small for that many bits, or is told to have 32, is under the same names.
    assert not lossy({"optim": {"state": {0: {"step": 3, "state1": MATRIX, "state2": MATRIX}}}})


def test_scales_of_quantized_weights_are_exact():
    names = [
        "weight.absmax",
        "weight_scale",
        "weight_scale_inv",
        "scales",
        "weight.zero_point",
        "SCB",
        "qmap",
    ]
    assert not lossy({"model": {f"fc.{name}": MATRIX for name in names}})


@pytest.mark.parametrize(
    ("name", "length", "is_weights"),
    [
        ("theta", 1 << 16, True),
        ("weight", 1 << 16, True),
        ("theta", (1 << 16) + 1, False),  # not what these moments are of
        ("bias", 1 << 16, False),
        ("mask", 1 << 16, False),
    ],
)
def test_a_flat_tensor_is_weights_where_an_optimizer_beside_it_keeps_moments_of_its_length(
    name, length, is_weights
):
    flat = np.ones(length, np.float32)
    moments = {"exp_avg": np.ones(1 << 16, np.float32), "exp_avg_sq": np.ones(1 << 16, np.float32)}
    state = {"model": {name: flat}, "optim": {"state": {0: moments}}}
    kept = {"optim/state/0/exp_avg", "optim/state/0/exp_avg_sq"}
    assert lossy(state) == (kept | {f"model/{name}"} if is_weights else kept)
    assert lossy({"model": {name: flat}}) == set()


def test_a_flat_tensor_is_plain_beside_statistics_that_are_not_known():
    flat = np.ones(1 << 16, np.float32)
    unknown = {"exp_avg": flat, "exp_avg_sq": flat, "surprise": flat}
    assert lossy({"model": {"theta": flat}, "optim": {"state": {0: unknown}}}) == set()


@pytest.mark.parametrize(
    ("name", "fading"),
    [
        (("optim", "state", 0, "exp_avg_sq"), True),
        (("optim", "layers.0.weight.exp_avg_sq"), True),
        (("opt_state", 0, "nu", "params", "Dense_0", "kernel"), True),
        (("optimizer", "dense_kernel_velocity"), True),
        (("optim", "state", 0, "max_exp_avg_sq"), False),
        (("optimizer", "dense_kernel_velocity_hat"), False),
        (("opt_state", 0, "nu_max", "params", "Dense_0", "kernel"), False),
        (("optim", "state", 0, "sum"), False),
        (("opt_state", 0, "e_x", "w"), False),
        (("optim", "state", 0, "step_size"), False),
        (("anything", "that a rule makes a second moment"), False),
    ],
)
def test_only_known_averages_that_are_divided_by_may_come_back_larger(name, fading):
    assert is_fading(name) == fading


@pytest.mark.parametrize(
    ("kept", "known"),
    [
        ("exp_avg exp_avg_sq", True),
        ("exp_avg exp_avg_sq max_exp_avg_sq", True),
        ("momentum_buffer", True),
        ("m v", True),
        ("exp_avg exp_avg_sq grad_avg", False),
    ],
)
def test_a_loop_may_keep_a_dict_of_each_field(kept, known):
    below = {"a.weight": MATRIX, "b": {"weight": MATRIX}}
    found = lossy({"optim": dict.fromkeys(kept.split(), below) | {"t": 3}})
    names = {f"optim/{field}/{name}" for field in kept.split() for name in ("a.weight", "b/weight")}
    assert found == (names if known else set())
