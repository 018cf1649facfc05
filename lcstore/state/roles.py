"""What a tensor is, guessed from its name: only what is recognised positively may be stored lossily.

A wrong "plain" costs bytes, a wrong "weights" costs a run. So every rule here names what it accepts, anything
that looks like statistics, masks or scales is refused first, and all that is left over is plain. Calling
something an optimizer is a promise too: a reader may strip it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from lcstore.dtypes import LOSSY_DTYPES, dtype_name
from lcstore.state.names import Component, Name

Role: TypeAlias = Literal["weights", "first_moment", "second_moment", "plain"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Names that mean "a layer's weight" wherever they stand: torch, Flax, Haiku, Keras; experts, gates; what is
#: learned of tokens, positions and attention; projections; RWKV, Mamba, KAN; hash grids and planes of fields.
_WEIGHT_NAME: Final = re.compile(
    r"weights?|weight_(?:[ih]h|hr)_l\d+(?:_reverse)?|weight_(?:v|orig)|(?:base|spline)_weight|spline_scaler"
    r"|(?:recurrent_|depthwise_|pointwise_|r_)?kernel|(?:prompt_|level_|seg_)?embeddings?|(?:level|seg)_embed"
    r"|gate_up_proj|(?:gate|up|down)_proj|(?:\w+_)?(?:proj(?:ection)?|gate)_(?:weight|bias)|codevectors"
    r"|(?:cls|mask|class|dist|reg|query|register|cls_register|group|detection)_tokens?|(?:plane|line)_coefs?"
    r"|(?:absolute_|relative_|mid_)?pos(?:ition)?(?:al)?_?embed(?:dings?)?(?:_table|_window|_vlm)?"
    r"|(?:\w+_)?temporal_positional_encoding|relative_position_bias_table|relative_attention_bias|rel_pos_[hw]"
    r"|emb_rel_[kv]|attention_biases|position_bias|(?:pos_)?bias_[uv]|r_[wrs]_bias|scale_shift_table|hash_table"
    r"|(?:text|image|vision|(?:prompts_)?visual|audio)_projection|label_embeddings_concat"
    r"|time_(?:maa|decay|mix)_[rkvwgx]?[12]|time_(?:decay|faaaa|first)|a_log"
)
#: Those of adapters, which the name of an adapter may follow: LoRA, LoHa, LoKr, OFT, and more of PEFT.
_ADAPTER_NAME: Final = re.compile(
    r"lora_(?:embedding_)?[ab]|hada_(?:w[12]_[ab]|t[12])|lokr_(?:w[12](?:_[ab])?|t2)|b?oft_r|hra_u|c3a_kernel"
    r"|miss_block|vblora_(?:logits_[ab]|vector_bank)|randlora_(?:lambda|gamma)|trainable_tokens_delta"
)
#: Names that mean it only where they stand: Gaussian splats of nerfstudio and gsplat, parts of Transformers.
_WEIGHT_PLACE: Final = re.compile(
    r"(?:gauss_params|splats)\.(?:means|scales|quats|opacities|features(?:_dc|_rest)?|sh0|shn|colors)"
    r"|rel_attn\.[qkvor]|(?:\w+_)?projector\.query|\w*hc(?:_\w+)?\.(?:hc_)?fn|visual_prompter\.pad_\w+|visual\.proj"
    r"|(?:embeddings|\w*perceiver|\w*resampler|\w*projection)\.latent(?:s(?:_\dd)?|_query)"
)
#: No weights, whatever the last part says: weights of a loss, statistics, tables of positions that are
#: computed, codebooks that are averages, what adapters draw at random.
_EXACT_PLACE: Final = re.compile(
    r"(?:running_\w+|(?:class|pos|sample)_weights?|(?:\w+_)?(?:loss|criterion)(?:_fn|_func)?|speaker_embedding)"
    r"\.weights?|\w*\.(?:class|pos|sample)_weights?|\w*codebook\w*\.embed(?:dings?)?"
    r"|\w*pos\w*\.(?:weights|time_position_embeddings)"
    r"|\w*(?:pos|embedding)\w*\.pos(?:ition(?:al)?)?_?embed(?:ding)?"
    r"|(?:vera_[ab]|randlora_[ab]|trainable_tokens_original)\.\w+"
)
#: Filters that do not change, in torch; in Flax, a layer that is trained may be called so.
_EXACT_KERNEL: Final = re.compile(r"(?:\w+_)?(?:blur|upsample|downsample|filter)\d*\.kernel")
#: torch's parametrizations keep the weight under these names. `original0` of weight norm is a scale of shape
#: (n, 1, ...), which costs nothing to keep plain.
_PARAMETRIZED_NAME: Final = re.compile(r"original1?")
#: Short names, accepted only where a part above says "model": elsewhere `w` may be the vertical wind.
_SHORT_NAME: Final = re.compile(
    r"w_?(?:q|k|v|o|x|h|i|e|qkv|kv|in|out|up|down|gate|xh|hh|hy|hx|ih|ho|te|pe|emb)?(?:_?\d)*"
    r"|(?:fc|lin|linear|dense|conv|layer|proj|emb|embed|head|mlp)(?:_?\d)*(?:_?w(?:eight)?)?|latents?(?:_\dd)?"
    r"|latent_query|text_prompt"
)
_MODEL_WORDS: Final = _names(
    "model models net nets network module params parameters weights policy actor critic encoder decoder "
    "generator discriminator backbone student teacher"
)
#: Flax's collection of trainable parameters, and what plain code calls the same: all in it are parameters.
_PARAMETER_PARTS: Final = frozenset({"params", "parameters", "weights", "trainable_variables"})
#: Inside such a collection, names with one of these words are still no weights.
_EXACT_WORDS: Final = _names(
    "absmax alibi amax anchors avg beta bias biases buffer buffers cache cluster codebook codes cos count "
    "counter dists ema eye freq freqs gamma grid id ids idx index indices key mask masks max mean min num pe "
    "positions quant queue qweight qzeros rng rope running scale scales seed shift sin slopes stat stats std "
    "step sum temperature var variance vector window zero zeros"
)
#: Whatever lies below one of these is not the weights of a model.
_EXACT_PARTS: Final = _names(
    "batch_stats buffers cache data dataset grad grad_accum gradient gradients grads history kv_cache "
    "loader loss_scaler main_grad mask masks metrics non_trainable_variables observer replay "
    "replay_buffer rng rngs sampler scaler statistics stats"
)

#: The parameters of many layers in one dimension: those of FSDP and tcnn; masters in ZeRO of DeepSpeed.
_FLAT_NAME: Final = re.compile(r"_?flat_(?:params?|parameters?|weights?)|params|parameters")
_FLAT_MASTERS: Final = re.compile(r"single_partition_of_fp32_groups|fp32_(?:flat_groups|groups_flat)")
#: No layer has a bias or a scale of so many elements, but for vocabularies.
_FLAT: Final = 1 << 16
#: Shorter moments of one dimension are plain: they take about as much coded, and more time.
LEAST_MOMENT: Final = 32

_TAIL: Final = r"(?:[_-](?:states?|dicts?|sd|vars?|variables|[a-z]|gen|disc|actor|critic|policy|main|\d)|\d)*"
_OPTIMIZER_PART: Final = re.compile(
    rf"opts?{_TAIL}|(?:[a-z0-9]+[_-])?(?:opts?[_-]states?{_TAIL}|optims?{_TAIL}|optimi[sz]ers?{_TAIL})"
    # A prefix and a bare "opt" is more often an optimum (`theta_opt`) than an optimizer.
    r"|(?:actor|critic|policy|value|gen|disc|generator|discriminator|encoder|decoder|main|[dgq])[_-]opt"
)
_ALGORITHM_PART: Final = re.compile(
    rf"(?:adam|adamw|adamax|nadam|radam|adagrad|rmsprop|sgd|lion|muon|lamb|lars)(?:[_-]opt)?{_TAIL}"
)
#: The first word of a name flattened into one key, as torch's distributed checkpoints write it.
_OPTIMIZER_HEAD: Final = frozenset({"optim", "optimizer", "optimizers", "optimizer_state"})
#: Names that nothing but an optimizer has: they make an optimizer of a tree that is not called one.
_TORCH_MOMENTS: Final[dict[Component, Role]] = {
    "exp_avg": "first_moment",
    "momentum_buffer": "first_moment",
    "exp_avg_sq": "second_moment",
    "max_exp_avg_sq": "second_moment",
    "square_avg": "second_moment",
}
_TORCH_OTHERS: Final = _names(
    "exp_inf acc_delta grad_avg exp_avg_sq_row exp_avg_sq_col exp_avg_var max_exp_avg_var exp_avg_diff "
    "neg_pre_grad exp_avg_fast exp_avg_slow exp_hessian_diag_sq"
)
#: Fields of Optax states; the name of the parameter follows them.
_OPTAX_MOMENTS: Final[dict[Component, Role]] = {
    "mu": "first_moment",
    "nu": "second_moment",
    "trace": "first_moment",
}
#: Fields that are believed only right below the part that names the optimizer.
_SHORT_MOMENTS: Final[dict[Component, Role]] = {
    "m": "first_moment",
    "v": "second_moment",
    "momentum": "first_moment",
}
#: Those and torch's, of a loop that keeps a dict of each field: the name of the parameter follows.
_RIGHT_BELOW: Final[dict[Component, Role]] = {**_SHORT_MOMENTS, **_TORCH_MOMENTS}
_MOMENTS: Final[dict[Component, Role]] = {**_OPTAX_MOMENTS, **_RIGHT_BELOW}
_MOMENT_PARTS: Final = frozenset({*_MOMENTS, "velocity"})
#: Takes a key apart that is a way through a tree: "opt/0/nu/w" of Flax, "['opt'][0].nu['w']" of JAX, dots.
_STEPS: Final = re.compile(r"[^./|\[\]'\"]+")
#: Moments that no layer is called, or hardly one; `v` and `m` are layers of attention.
_LONG_MOMENTS: Final = _MOMENT_PARTS - {"m", "v"}
_PAIRED: Final[dict[Component, Component]] = {"m": "v", "mu": "nu", "exp_avg": "exp_avg_sq"}
_PARTNERS: Final = _PAIRED | {second: first for first, second in _PAIRED.items()}


@lru_cache(maxsize=1 << 17)
def guess_role(path: Name, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Role:
    """Return the role of the tensor of the name `path`; ``"plain"`` unless it is recognised.

    Weights are floating (16 to 64 bits) with two dimensions or more, or flat: of one dimension and 2^16
    elements or more. Moments may have one dimension, too, from `LEAST_MOMENT` elements on. Weights carry an
    agreed name (``weight``, ``kernel``, ``embedding``, ``in_proj_weight``, ``lora_A``, ...), lie in a
    ``params`` collection, or have a short name (``W1``, ``fc2``) below a part such as ``model`` or ``net``.
    Moments lie in an optimizer (see `is_optimizer`)
    under the names of torch (``exp_avg``, ``exp_avg_sq``, ``momentum_buffer``), Optax (``mu``, ``nu``,
    ``trace``), or, right below the part of the optimizer, those of torch, ``m``, ``v`` and ``momentum``. What
    is flat is weights where it is called so (``_flat_param``, ``params``). Other names are not enough:
    ``weight`` may be that of each sample.

    A moving average of weights (``ema``) is weights: it is used as they are, it moves less than they do, and
    its error is measured against its own movement. Gradients, batch statistics, buffers, masks, scales,
    moments outside a recognised optimizer and optimizer state of any other name are plain.
    """
    if not may_be_moment(dtype, shape):
        return "plain"
    if is_flat(shape) and any(_FLAT_MASTERS.fullmatch(str(part)) for part in path[-2:]):
        return "weights"
    if is_optimizer(path):
        return _moment(path)
    if not may_be_lossy(dtype, shape):
        return "plain"
    return "weights" if (_is_flat_weight if is_flat(shape) else _is_weight)(path) else "plain"


def may_be_lossy(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Return whether a tensor may be weights: floating (16 to 64 bits), two dimensions or more, or flat."""
    return (len(shape) >= 2 or is_flat(shape)) and dtype_name(dtype) in LOSSY_DTYPES


def may_be_moment(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bool:
    """Return whether a tensor may be a moment: as `may_be_lossy` says, or of one dimension and not short."""
    long = len(shape) == 1 and shape[0] >= LEAST_MOMENT
    return (len(shape) >= 2 or long) and dtype_name(dtype) in LOSSY_DTYPES


def is_flat(shape: tuple[int, ...]) -> bool:
    """Return whether a tensor may hold the parameters of many layers in one dimension."""
    return len(shape) == 1 and shape[0] >= _FLAT


@lru_cache(maxsize=1 << 17)
def is_optimizer(path: Name) -> bool:
    """Return whether `path` lies in the state of an optimizer, which a reader can do without.

    It does if a key above it is named like one (``optimizer``, ``opt_state``, ``d_optim``; ``adam`` and the
    like only with a moment's name below), if a flattened key begins with ``optim.`` or ``optimizer.``, or
    if its own name is one that only optimizers use (``exp_avg``). An attribute inside a dotted module name
    does not count: ``opt.decoder.weight`` belongs to a model called OPT.
    """
    words = _words(path)
    if words and (words[-1] in _TORCH_MOMENTS or words[-1] in _TORCH_OTHERS):
        return True
    return _optimizer_place(path) is not None


def _optimizer_place(path: Name) -> int | None:
    """Return the place of the first part that names an optimizer with something below it."""
    for place, part in enumerate(path):
        if isinstance(part, int):
            continue
        head, dotted, _ = part.lower().partition(".")
        if dotted:
            if head in _OPTIMIZER_HEAD:
                return place
        elif place + 1 < len(path):
            if _OPTIMIZER_PART.fullmatch(head):
                return place
            # Runs are compared under such names too ("sgd": {"model": ...}), so a moment has to follow.
            if _ALGORITHM_PART.fullmatch(head) and not _MOMENT_PARTS.isdisjoint(path[place + 1 :]):
                return place
    return None


def _words(path: Name) -> list[str]:
    """Return the words of a name in lower case, keys taken apart that stand for several (`_STEPS`; Haiku)."""
    words = [word for part in path for word in _STEPS.findall(str(part).lower()) if word != "~"]
    if words:
        # Keras numbers its variables: "kernel:0".
        words[-1] = words[-1].partition(":")[0]
    return words


def _is_weight(path: Name) -> bool:
    words = _words(path)
    if not words or any(word in _EXACT_PARTS for word in words[:-1]) or _is_stray_moment(path):
        return False
    if is_flattened_moment(path):
        return False
    *above, name = words
    if name.isdigit() and len(above) > 1:  # one of a list of parameters: "plane_coefs.0"
        *above, name = above
    owner = above[-1] if above else ""
    # Keys with dots are those of torch's `state_dict()`, which has buffers too, wherever that lies.
    trained = "." not in str(path[-1]) and not _PARAMETER_PARTS.isdisjoint(above)
    place = f"{owner}.{name}"
    if _EXACT_PLACE.fullmatch(place) or (_EXACT_KERNEL.fullmatch(place) and not trained):
        return False
    if _WEIGHT_NAME.fullmatch(name) or _WEIGHT_PLACE.fullmatch(place):
        return True
    if _ADAPTER_NAME.fullmatch(name) or _ADAPTER_NAME.fullmatch(owner):
        return True
    if _PARAMETRIZED_NAME.fullmatch(name):
        return "parametrizations" in above
    if not _EXACT_WORDS.isdisjoint(name.split("_")):
        return False
    return trained or _is_short_name(above, name)


def _is_flat_weight(path: Name) -> bool:
    words = _words(path)
    name = next((word for word in reversed(words) if not word.isdigit()), "")
    return _FLAT_NAME.fullmatch(name) is not None and may_be_flat_weight(path)


def may_be_flat_weight(path: Name) -> bool:
    """Return whether nothing in a name says that a flat tensor is no weights."""
    words = _words(path)
    if not words or is_optimizer(path) or _is_stray_moment(path) or is_flattened_moment(path):
        return False
    exact = any(word in _EXACT_PARTS for word in words) or not _EXACT_WORDS.isdisjoint(words[-1].split("_"))
    return not exact and _EXACT_PLACE.fullmatch(".".join(words[-2:])) is None


def _is_short_name(above: Sequence[str], name: str) -> bool:
    in_model = any(not _MODEL_WORDS.isdisjoint(word.split("_")) for word in above)
    return in_model and _SHORT_NAME.fullmatch(name) is not None


def _is_stray_moment(path: Name) -> bool:
    """Return whether a moment's field stands above the parameter, as in the state ``(params, opt_state)``.

    A layer may have such a name too; it is believed where a collection of parameters stands above it.
    """
    for part in path:
        if part in _PARAMETER_PARTS:
            return False
        if part in _MOMENT_PARTS:
            return True
    return False


def is_flattened_moment(path: Name) -> bool:
    """Return whether the last key is a way through a tree, flattened, to what an optimizer keeps.

    It is not taken for a moment, whose partner and parameter are found by their places in a tree. A layer may
    be called `mu`, too: it is one among parameters, in a model, and mostly where dots are between the parts.
    """
    if not path:  # the state is one tensor
        return False
    key, around = str(path[-1]).lower(), [str(part).lower() for part in path[:-1]]
    *above, name = _STEPS.findall(key) or [""]
    if not above or not _PARAMETER_PARTS.isdisjoint(around):
        return False
    in_model = any(not _MODEL_WORDS.isdisjoint(part.split("_")) for part in around)
    of_tree = "/" in key or "|" in key or key[0] in "[."
    alone = not in_model and (of_tree or name in ("kernel", "embedding"))
    if alone and of_tree and above[0] in _SHORT_MOMENTS:
        return True
    below, indices = False, False
    for part, after in zip(above, (*above[1:], name), strict=True):
        if part in _PARAMETER_PARTS:
            return False
        if (below or alone or indices) and part in (_MOMENT_PARTS if below else _LONG_MOMENTS):
            return True
        optimizer = _OPTIMIZER_PART.fullmatch(part) is not None
        if optimizer and (of_tree or "state" in part or after.isdigit()):
            return True
        below = below or optimizer or _ALGORITHM_PART.fullmatch(part) is not None
        indices = part.isdigit() and (indices or part is above[0])  # so far they are those of Optax's tuples
    return False


def stray_pairs(paths: Iterable[Name]) -> set[Name]:
    """Return the names of pairs of moments, a first and a second one, that lie below no optimizer.

    ``m/w`` and ``v/w`` of ``{"params": ..., "m": ..., "v": ...}``; not ``m/w`` where no ``v/w`` is.
    """
    fields = {
        path: next(place for place, part in enumerate(path) if part in _MOMENT_PARTS)
        for path in paths
        if _is_stray_moment(path) and not is_optimizer(path)
    }
    return {
        path
        for path, place in fields.items()
        if path[place + 1 :]  # the name of a parameter
        and (*path[:place], _PARTNERS.get(path[place]), *path[place + 1 :]) in fields
    }


def second_moment_place(path: Name) -> int:
    """Return the place of the field that says "second moment" in the name of one; -1 where none does."""
    name = _words(path[-1:])
    if name and _TORCH_MOMENTS.get(name[-1]) == "second_moment":
        return len(path) - 1
    optimizer = _optimizer_place(path)
    begin = 0 if optimizer is None else optimizer + 1
    return next((i for i in range(begin, len(path)) if _MOMENTS.get(path[i]) == "second_moment"), -1)


def moment_field(path: Name) -> tuple[int, str] | None:
    """Return the place in `path` of the field that says which moment it is, and that field."""
    name = _words(path[-1:])
    if name and name[-1] in _TORCH_MOMENTS:
        return len(path) - 1, name[-1]
    optimizer = _optimizer_place(path)
    if optimizer is None:
        return None
    for place, part in enumerate(path[optimizer + 1 :], optimizer + 1):
        # The first such field decides: what follows it names a parameter, which may be named anything.
        if part in _OPTAX_MOMENTS or (part in _RIGHT_BELOW and place == optimizer + 1):
            return place, str(part)
    return None


def _moment(path: Name) -> Role:
    found = moment_field(path)
    return _MOMENTS[found[1]] if found is not None else "plain"
