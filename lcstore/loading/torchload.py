"""Objects of torch that a state is loaded into: whether it fits is found out before anything is changed.

`load_state_dict` itself finds out in the midst of loading, and what it was given is half overwritten then.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from lcstore.errors import InvalidInputError
from lcstore.loading.morerows import line_for_rows, under_names
from lcstore.state.frameworks import from_host, is_instance, memory_of
from lcstore.state.names import Name, format_name
from lcstore.state.torchobjects import is_optimizer, parameters_of
from lcstore.state.torchtensors import is_shard
from lcstore.state.wrappers import bare, bare_name, renamed
from lcstore.units import SHOWN, listed


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LEAVE_OUT: Final = "leave it out of what is loaded, and its moments begin anew"
SHARDED: Final = (
    "it is sharded (DTensor): all ranks give what `store.restore` returns to set_state_dict of "
    "torch.distributed.checkpoint.state_dict, with StateDictOptions(full_state_dict=True)"
)
#: What `torch.optim.swa_utils.AveragedModel` has besides the weights of its model.
_AVERAGED: Final = "n_averaged"
#: What optimizers keep of a parameter in its own shape.
_LIKE_PARAMETER: Final = _names(
    "exp_avg exp_avg_sq max_exp_avg_sq momentum_buffer square_avg grad_avg acc_delta exp_inf sum prev"
)
#: What schedulers add to an optimizer's groups, and what may be given to each.
_ADDED: Final = _names("params param_names name initial_lr max_lr min_lr max_momentum base_momentum swa_lr")


def is_module(obj: object) -> bool:
    """Return whether `obj` is a module of torch."""
    return is_instance(obj, "torch.nn", "Module")


def is_schedule(obj: object) -> bool:
    """Return whether `obj` is a learning rate schedule of torch, which takes anything and says nothing."""
    return is_instance(obj, "torch.optim.lr_scheduler", "LRScheduler")


def loads_its_own_way(target: Any) -> bool:
    """Return whether what `target` takes is not known from what it would save: it has code of its own."""
    torch = sys.modules["torch"]
    if is_schedule(target):
        defined = [vars(kind) for kind in type(target).__mro__ if "load_state_dict" in vars(kind)]
        return not defined or defined[0]["__module__"] != "torch.optim.lr_scheduler"
    if is_optimizer(target):
        return type(target).load_state_dict is not torch.optim.Optimizer.load_state_dict or bool(
            getattr(target, "_optimizer_load_state_dict_pre_hooks", None)
        )
    module = torch.nn.Module
    if type(target).load_state_dict is not module.load_state_dict:
        return True
    usual = {module._load_from_state_dict, torch.nn.modules.batchnorm._NormBase._load_from_state_dict}
    return any(
        part._load_state_dict_pre_hooks or type(part)._load_from_state_dict not in usual
        for part in target.modules()
    )


def check_is_whole_here(target: Any, *, assign: bool) -> None:
    """Refuse what is on the meta device, which would stay without values and say nothing, and shards."""
    parameters: list[Any] = [*parameters_of(target)] if is_optimizer(target) else []
    if any(map(is_shard, target.parameters() if is_module(target) else parameters)):
        raise InvalidInputError(SHARDED)
    if _any_on_meta(parameters):
        raise InvalidInputError(
            "its parameters are on the meta device: load the model, and make it of the new parameters"
        )
    if is_module(target) and not assign and _any_on_meta(chain(target.parameters(), target.buffers())):
        raise InvalidInputError(
            "it is on the meta device, where nothing is filled: give assign=True, which puts tensors on the "
            "CPU in place of its own, or call .to_empty(device=...) on it first"
        )


def _any_on_meta(tensors: Iterable[Any]) -> bool:
    return any(tensor.is_meta for tensor in tensors)


def fitted(target: Any, saved: Any, where: Name) -> Any:
    """Return what is saved at a name as an object of torch takes it: with tensors, of whatever it was saved.

    Raises
    ------
    InvalidInputError
        It does not fit.
    """
    if is_module(target):
        return _for_module(target, saved, where)
    if is_schedule(target):
        _check_schedule(target, saved)
        return saved
    _check_optimizer(target, saved)
    return as_tensors(saved)


def as_tensors(saved: Any) -> Any:
    """Return a nest with tensors of torch in the place of numpy arrays."""
    if isinstance(saved, np.ndarray):
        return from_host(saved, "torch")
    if isinstance(saved, Mapping):
        return {key: as_tensors(value) for key, value in saved.items()}
    return type(saved)(map(as_tensors, saved)) if type(saved) in (list, tuple) else saved


def _for_module(module: Any, saved: Any, where: Name) -> dict[str, Any]:
    """Return what is saved of a module as it takes it.

    Names from which it is set apart by a wrapper's prefix alone (``module.``, ``_orig_mod.``) become its own,
    and numpy arrays tensors. An average of weights is taken by what it is of.

    Raises
    ------
    InvalidInputError
        Names are missing or left over, or shapes differ.
    """
    if not isinstance(saved, Mapping) or not all(isinstance(name, str) for name in saved):
        raise InvalidInputError("what is saved there are not the tensors of a module, by name")
    here = module.state_dict()
    averaged = _AVERAGED in saved and _AVERAGED not in here
    if averaged:
        saved = {name: value for name, value in saved.items() if name != _AVERAGED}
    found = renamed(saved, here.keys()) or dict(saved)
    optional = {name for name in here if name.rpartition(".")[2] == "num_batches_tracked"}
    missing = [name for name in here if name not in found and name not in optional]
    surplus = [name for name in found if name not in here]
    wrong = [
        name
        for name in here
        if name in found and not name.endswith("_extra_state") and _shape(here[name]) != _shape(found[name])
    ]
    said = [f"nothing is saved for {listed(missing)}"] * bool(missing)
    said += [f"it has no {listed(surplus)}, which is saved"] * bool(surplus)
    said += [
        f"{name!r} is {_shape(found[name])} in the store and {_shape(here[name])} here"
        for name in wrong[:SHOWN]
    ]
    if said:
        whole = f"store.restore(step, to='torch'){''.join(f'[{one!r}]' for one in where)}"
        state = under_names(whole, zip(saved, found, strict=True))
        pairs = [] if wrong or averaged else _other_names(found, here)
        shapes = [(_shape(found[name]), _shape(here[name])) for name in wrong]
        rows = line_for_rows(state, shapes) if state else ""
        if state and (rows or pairs or len(surplus) + len(wrong) < len(found)):
            others = _line_for_names(state, pairs, found) if pairs else _line_for_part(state, wrong)
            line = rows or others
            said.append(f"{line}, or of store.resume(step, to='torch') where the next save goes on from it")
        raise InvalidInputError("; ".join(said))
    return {
        name: from_host(value, "torch") if isinstance(value, np.ndarray) else value
        for name, value in found.items()
    }


def _other_names(saved: Mapping[str, Any], here: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names that went and came, each with the other, where their shapes agree one by one.

    Behind prefixes of wrappers a name may be here under another place in the order: then order tells nothing.
    """
    went, came = [name for name in saved if name not in here], [name for name in here if name not in saved]
    alike = [_shape(saved[name]) for name in went] == [_shape(here[name]) for name in came]
    pairs = [*zip(went, came, strict=True)] if alike else []
    known = {*map(bare, here)}
    crossed = any(bare(old) in known and bare(old) != bare(new) for old, new in pairs)
    return [] if crossed else pairs


def _line_for_names(state: str, pairs: Sequence[tuple[str, str]], saved: Mapping[str, Any]) -> str:
    """Return what loads a module of which layers have other names now: by the order of those."""
    may_be = ", ".join(f"{old!r} may be {new!r}" for old, new in pairs[:SHOWN])
    more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
    return (
        f"{'all' if len(pairs) == len(saved) else 'their'} shapes agree, one by one: {may_be}{more}. If "
        f"these are the same layers by other names, all of which this prints: saved = {state}; new = iter("
        "[name for name in model.state_dict() if name not in saved]); names = [name if name in "
        "model.state_dict() else next(new) for name in saved]; print(dict(zip(saved, names))); "
        "model.load_state_dict(dict(zip(names, saved.values())))"
    )


def _line_for_part(state: str, wrong: Sequence[str]) -> str:
    """Return what loads a module of which layers came or went, or have other shapes."""
    fits = (
        f"saved, here = {state}, model.state_dict(); model.load_state_dict({{name: saved[name] for name in "
        "saved if name in here and saved[name].shape == here[name].shape}, strict=False)"
        if wrong
        else f"model.load_state_dict({state}, strict=False)"
    )
    return f"to load what has a place here, and no more: {fits}"


def assigned(module: Any, saved: dict[str, Any]) -> dict[str, Any]:
    """Return what is saved of a module such that parameters that are tied in it are so once assigned."""
    names: dict[int, list[str]] = {}
    parameters = dict(module.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        names.setdefault(id(parameter), []).append(name)
    made = sys.modules["torch"].nn.Parameter
    for tied in names.values():
        if len(tied) > 1 and all(name in saved for name in tied):
            one = made(saved[tied[0]], requires_grad=parameters[tied[0]].requires_grad)
            saved = {**saved, **dict.fromkeys(tied, one)}
    return saved


def _check_optimizer(optimizer: Any, saved: Any) -> None:
    """Refuse what is saved of another optimizer, or of one of other parameters."""
    groups = optimizer.param_groups
    theirs: Sequence[Any] | None = saved.get("param_groups") if isinstance(saved, Mapping) else None
    if not isinstance(theirs, list) or not isinstance(saved.get("state"), Mapping):
        flat = isinstance(saved, Mapping) and any(str(key).startswith("state.") for key in saved)
        cure = ", but a flattened one: torch's set_optimizer_state_dict loads what restore() gives" * flat
        raise InvalidInputError(f"what is saved there is not the state of an optimizer of torch{cure}")
    counts = [[len(group["params"]) for group in some] for some in (theirs, groups)]
    if counts[0] != counts[1]:
        raise InvalidInputError(
            f"its groups have {counts[0]} parameters in the store, and {counts[1]} here, so moments would go "
            f"to other parameters: {_LEAVE_OUT}"
        )
    for one, other in zip(theirs, groups, strict=True):
        surplus, missing = one.keys() - other.keys() - _ADDED, other.keys() - one.keys() - _ADDED
        if surplus and missing:  # one alone may be another version's
            raise InvalidInputError(
                f"it is another optimizer: there are {listed(sorted(surplus))} in the store, and "
                f"{listed(sorted(missing))} here: {_LEAVE_OUT}"
            )
    if not type(optimizer).__module__.startswith("torch.optim"):
        return  # others may keep what they like under these names (of lower rank, in blocks)
    numbers = chain.from_iterable(group["params"] for group in theirs)
    parameters = dict(zip(numbers, parameters_of(optimizer), strict=True))
    for number, values in saved["state"].items():
        parameter = parameters.get(number)
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if name not in _LIKE_PARAMETER or _shape(value) is None:
                continue
            if parameter is None:
                raise InvalidInputError(
                    f"{name!r} is saved of a parameter {number!r}, and there is none in its groups, so "
                    f"nothing would be done with it: {_LEAVE_OUT}"
                )
            if _shape(value) != _shape(parameter):
                raise InvalidInputError(
                    f"{name!r} of parameter {number} is {_shape(value)} in the store, and the parameter "
                    f"{_shape(parameter)} here"
                )


def in_its_order(
    optimizer: Any, saved: Any, updated: list[list[Name]] | None, others: Sequence[tuple[Name, Any]]
) -> Any:
    """Return what is saved of an optimizer in the order of its parameters here, as their names tell.

    An optimizer of torch loads moments by position, whatever they are moments of. Where names are known on
    both sides, each goes to the parameter that it is of.

    Parameters
    ----------
    optimizer, saved
        Where it is to be loaded, and what.
    updated
        All names in the state of the tensors that it updated, in its order; None if they are not known.
    others
        Modules and tensors that are loaded too, each with its name in the state.

    Raises
    ------
    InvalidInputError
        A group has other parameters than here; or moments are saved by name, and nothing says the names here.
    """
    groups = saved.get("param_groups") if isinstance(saved, Mapping) else None
    if not isinstance(groups, list) or not all(_is_group(group) for group in groups):
        return saved
    lengths = [len(group["params"]) for group in groups]
    if lengths != [len(group["params"]) for group in optimizer.param_groups]:
        return saved  # it does not fit, which is found out later
    here: list[set[Any]] | None = _names_here(optimizer, others)
    there: list[set[Any]] | None = None
    if here is not None and updated is not None and len(updated) == sum(lengths):
        there = [{*map(bare_name, names)} for names in updated]
    else:
        there, here = _names_saved(groups), _own_names(optimizer, others)
    if there is not None and here is not None:
        return {**saved, "param_groups": _reordered(groups, there, here)}
    if any(isinstance(key, str) for group in groups for key in group["params"]):
        raise InvalidInputError(
            "its moments are saved by name, and nothing says which parameters here have these names: give "
            "the model besides, or make it of model.named_parameters()"
        )
    return saved


def _is_group(group: Any) -> bool:
    return isinstance(group, Mapping) and isinstance(group.get("params"), list)


def _names_here(optimizer: Any, others: Sequence[tuple[Name, Any]]) -> list[set[Name]] | None:
    """Return the names in the state of what an optimizer updates; None if some are not known."""
    names: dict[Hashable, set[Name]] = {}
    for where, target in others:
        tensors = target.state_dict() if is_module(target) else {None: target}
        for key, tensor in tensors.items():
            name = bare_name(where if key is None else (*where, key))
            names.setdefault(memory_of(tensor), set()).add(name)
    names.pop(None, None)
    found = [names.get(memory_of(parameter), set()) for parameter in parameters_of(optimizer)]
    return found if all(found) else None


def _own_names(optimizer: Any, others: Sequence[tuple[Name, Any]]) -> list[set[str]] | None:
    """Return the names of what an optimizer updates: its own, or those within one module; None if unknown."""
    own = _names_saved(optimizer.param_groups)
    if own is not None:
        return own
    modules = [target for _, target in others if is_module(target)]
    within = (_names_here(optimizer, [((), module)]) for module in modules)
    found = next((names for names in within if names is not None), None)
    return None if found is None else [{str(name[0]) for name in names} for names in found]


def _names_saved(groups: Sequence[Mapping[str, Any]]) -> list[set[str]] | None:
    """Return the names that groups of an optimizer tell of their parameters; None if they do not."""
    names = [name for group in groups for name in group.get("param_names", group["params"])]
    known = len(names) == sum(len(group["params"]) for group in groups)
    return (
        [{bare(name)} for name in names] if known and all(isinstance(name, str) for name in names) else None
    )


def _reordered(
    groups: Sequence[Mapping[str, Any]], there: Sequence[set[Any]], here: Sequence[set[Any]]
) -> list[dict[str, Any]]:
    """Return groups of an optimizer with their parameters in another order, both told by names."""
    found, begin = [], 0
    for number, group in enumerate(groups):
        end = begin + len(group["params"])
        theirs, ours = there[begin:end], here[begin:end]
        places = {name: place for place, names in enumerate(theirs) for name in names}
        order = [next((places[name] for name in names if name in places), -1) for names in ours]
        if sorted(order) != [*range(len(order))]:
            raise InvalidInputError(
                f"its group {number} has {_shown(theirs, ours)} in the store, and {_shown(ours, theirs)} "
                f"here, so moments would go to other parameters: {_LEAVE_OUT}. Or, where layers were "
                "renamed, rename them in what store.resume() returns, and load that with load_state_dict"
            )
        lists = {key: group[key] for key in ("params", "param_names") if key in group}
        found.append({**group, **{key: [of[place] for place in order] for key, of in lists.items()}})
        begin = end
    return found


def _shown(some: Sequence[set[Any]], others: Sequence[set[Any]]) -> str:
    """Return what is among some parameters and not among others."""
    known = set().union(*others)
    names = sorted(min(map(_text, names)) for names in some if not names & known)
    return listed(names) if names else "others"


def _text(name: Any) -> str:
    return name if isinstance(name, str) else format_name(name)


def _check_schedule(schedule: Any, saved: Any) -> None:
    """Refuse what is saved of a schedule of another kind."""
    if not isinstance(saved, Mapping):
        raise InvalidInputError("what is saved there is not the state of a schedule")
    here = schedule.state_dict()
    # What begins with an underscore, and "verbose", comes and goes with versions of torch.
    surplus, missing = (
        sorted(name for name in names if not str(name).startswith("_") and name != "verbose")
        for names in (saved.keys() - here.keys(), here.keys() - saved.keys())
    )
    if surplus and missing:
        raise InvalidInputError(
            f"it is another schedule: there are {listed(surplus)} in the store, and {listed(missing)} here"
        )


def _shape(value: Any) -> tuple[int, ...] | None:
    try:
        return tuple(value.shape)
    except Exception:  # no tensor, or one that has no shape yet
        return None
