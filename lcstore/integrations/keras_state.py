"""What a model of Keras is, as one thing to save and load: weights, seeds, and the optimizer's state."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Any, Final, TypeAlias

import keras

from lcstore.errors import InvalidInputError
from lcstore.format.labels import flat
from lcstore.state.names import nested
from lcstore.units import SHOWN, listed

Tree: TypeAlias = dict[str, Any]
#: The shapes of variables, by their paths.
Shapes: TypeAlias = dict[str, tuple[int, ...]]

WEIGHTS: Final = ("trainable_variables", "non_trainable_variables")
_ADAM: Final = {"_momentum": "mu", "_velocity": "nu"}
#: How the names of moments end, by optimizer, and the names by which lcstore knows such moments.
_MOMENTS: Final[dict[str, dict[str, str]]] = {
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Lion": {"_momentum": "mu"},
    "RMSprop": {"_velocity": "nu"},
    "SGD": {"_momentum": "trace"},
}
#: What Keras calls the states of random numbers.
_SEEDS: Final = re.compile(r"(^|/)seed_generator_\d+(?=/)")
_OTHER: Final = "other"
_BUILD: Final = "build it (give it an Input, or call it on a batch)"


class ModelState:
    """A compiled model as an object that can be saved and loaded: in `LcstoreCallback`, and in loops by hand.

    It holds the weights, what layers count and draw from (running statistics, seeds), and the state of the
    optimizer. Metrics are left out: Keras begins them anew at each epoch.

    Parameters
    ----------
    model
        It has to be built and compiled. Where its optimizer is not built yet, as before the first batch, that
        is done here.

    Examples
    --------
    A loop by hand::

        manager.resume_into({"model": ModelState(model)})
        manager.save(step, {"model": ModelState(model)})
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def state_dict(self) -> Tree:
        """Return all variables as numpy arrays, by their names.

        Raises
        ------
        InvalidInputError
            The model is not built or not compiled.
        """
        self._build_optimizer()
        state = {name: _tree(getattr(self._model, name)) for name in WEIGHTS}
        return state | {"optimizer": _by_kind(self._model.optimizer, _tree(self._model.optimizer.variables))}

    def load_state_dict(self, state: Tree) -> None:
        """Set all variables to what was saved.

        Raises
        ------
        InvalidInputError
            Names or shapes are not those of this model and its optimizer, or the model is not built or not
            compiled; nothing was changed.
        """
        self._build_optimizer()
        optimizer = _together(state["optimizer"])
        _check("optimizer", optimizer, self._model.optimizer.variables)
        self.load_weights(state)
        _assign(self._model.optimizer.variables, optimizer)

    def _build_optimizer(self) -> None:
        """Make the optimizer's moments, which Keras itself does at the first batch only."""
        if not self._model.built or getattr(self._model, "optimizer", None) is None:
            raise InvalidInputError(
                f"the model {self._model.name!r} has no variables yet, or no optimizer: {_BUILD}, and "
                "compile it before its state is saved or loaded"
            )
        if not self._model.optimizer.built:
            self._model.optimizer.build(self._model.trainable_variables)

    def load_weights(self, state: Tree) -> None:
        """Set the weights, and whatever else the layers hold, to what was saved; not the optimizer.

        Raises
        ------
        InvalidInputError
            Names or shapes are not those of this model; nothing was changed.
        """
        if not self._model.built:
            raise InvalidInputError(f"the model {self._model.name!r} has no variables yet: {_BUILD}")
        groups = [(name, _flat(state.get(name, {})), [*getattr(self._model, name)]) for name in WEIGHTS]
        if any(saved.keys() != _by_path(here).keys() for _, saved, here in groups):
            # Layers may have been frozen since, or unfrozen: which are trained says nothing of their values.
            (_, trained, ours), (_, fixed, others) = groups
            groups = [("variables", trained | fixed, ours + others)]
        for group in groups:
            _check(*group)
        for _, saved, here in groups:
            _assign(here, saved)


def _by_kind(optimizer: Any, variables: Tree) -> Tree:
    """Return the variables of an optimizer; moments stand below a name that says what they are."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    name, fields = type(optimizer).__name__, _fields_of(optimizer)
    found: Tree = {_OTHER: {}}
    for owner, its in variables.items():
        if not isinstance(its, dict):
            found[_OTHER][owner] = its
            continue
        for variable, value in its.items():
            field = next((field for ending, field in fields.items() if variable.endswith(ending)), None)
            kind = found[_OTHER] if field is None else found.setdefault(name, {}).setdefault(field, {})
            kind.setdefault(owner, {})[variable] = value
    return found


def _fields_of(optimizer: Any) -> dict[str, str]:
    """Return the moments of an optimizer that can do with some loss: none of one that is not known."""
    # What a class of somebody else's does with moments of such names, nobody knows.
    ours = type(optimizer).__module__.partition(".")[0] == "keras"
    # These set a moment against another statistic.
    against = getattr(optimizer, "amsgrad", False) or getattr(optimizer, "centered", False)
    return _MOMENTS.get(type(optimizer).__name__, {}) if ours and not against else {}


def _together(kinds: Tree) -> Tree:
    """Return the variables of an optimizer as Keras has them."""
    found: Tree = {}
    for name, kind in kinds.items():
        for its in [kind] if name == _OTHER else kind.values():
            for owner, variables in its.items():
                if isinstance(variables, dict):
                    found.setdefault(owner, {}).update(variables)
                else:
                    found[owner] = variables
    return found


def _by_path(variables: Iterable[Any]) -> dict[str, Any]:
    """Return variables by their paths.

    Those that Keras calls alike, as Adafactor's factors, are numbered; so are those that are called as a
    layer beside them, and the states of random numbers, which Keras numbers from model to model.
    """
    found: dict[str, Any] = {}
    every = [*variables]
    layers = {above for one in every for above in accumulate(one.path.split("/")[:-1], "{}/{}".format)}
    for variable in every:
        plain, count = _SEEDS.sub(r"\1seed_generator", variable.path), 1
        path = plain
        while path in found or path in layers:
            count += 1
            path = f"{plain}:{count}"
        found[path] = variable
    return found


def _tree(variables: Iterable[Any]) -> Tree:
    """Return the values of variables, as numpy arrays, by the parts of their paths."""
    values = {path: keras.ops.convert_to_numpy(variable) for path, variable in _by_path(variables).items()}
    return nested((path.split("/"), value) for path, value in values.items())


def _flat(tree: Tree) -> dict[str, Any]:
    """Return the values in a tree by their paths."""
    return dict(flat(tree, "/"))


def _assign(variables: Iterable[Any], saved: Tree) -> None:
    values = _flat(saved)
    for path, variable in _by_path(variables).items():
        variable.assign(values[path])


def _shapes(values: Mapping[str, Any]) -> Shapes:
    return {path: tuple(value.shape) for path, value in values.items()}


def _check(what: str, tree: Tree, variables: Iterable[Any]) -> None:
    """Refuse what does not fit."""
    saved, here = _shapes(_flat(tree)), _shapes(_by_path(variables))
    said = [f"nothing is saved for {listed(sorted(here.keys() - saved))}"] * bool(here.keys() - saved)
    said += [f"it has no {listed(sorted(saved.keys() - here))}, which is saved"] * bool(saved.keys() - here)
    said += [
        f"{path!r} is {saved[path]} in the store and {here[path]} here"
        for path in sorted(saved.keys() & here)
        if saved[path] != here[path]
    ][:SHOWN]
    if said:
        raise InvalidInputError(
            f"the {what} of the model cannot be loaded: {'; '.join(said)}. Keras numbers names that it makes "
            "up: give model, layers and optimizer names of their own, or call keras.utils.clear_session() "
            "before they are made again in one process. An optimizer begins anew where it is another, or "
            "layers were frozen or unfrozen: take a callback with another store, and load_best(model) of "
            "this one for the weights"
        )
