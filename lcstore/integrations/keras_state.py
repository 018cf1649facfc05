"""What a model of Keras is, as one thing to save and load: weights, seeds, and the optimizer's state."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from lcstore.errors import InvalidInputError

Tree: TypeAlias = dict[str, Any]
#: The shapes of variables, by their paths.
Shapes: TypeAlias = dict[str, tuple[int, ...]]

WEIGHTS: Final = ("trainable_variables", "non_trainable_variables")
_SHOWN: Final = 3
_ADAM: Final = {"_momentum": "mu", "_velocity": "nu"}
#: How the names of moments end, by optimizer, and the names by which lcstore knows such moments.
_MOMENTS: Final[dict[str, dict[str, str]]] = {
    "Adam": _ADAM,
    "AdamW": _ADAM,
    "Lion": {"_momentum": "mu"},
    "RMSprop": {"_velocity": "nu"},
    "SGD": {"_momentum": "trace"},
}
_OTHER: Final = "other"


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
        tree = self._model.get_state_tree(value_format="numpy_array")
        state: Tree = {name: tree[name] for name in WEIGHTS}
        return state | {"optimizer": _by_kind(self._model.optimizer, tree["optimizer_variables"])}

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
        _check("optimizer", _saved(optimizer), _shapes(self._model.optimizer.variables))
        self.load_weights(state)
        self._model.set_state_tree({"optimizer_variables": optimizer})

    def _build_optimizer(self) -> None:
        """Make the optimizer's moments, which Keras itself does at the first batch only."""
        if not self._model.built or getattr(self._model, "optimizer", None) is None:
            raise InvalidInputError(
                f"the model {self._model.name!r} has no variables yet, or no optimizer: build it (give it an "
                "Input, or call it on a batch) and compile it before its state is saved or loaded"
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
        weights = {name: state.get(name, {}) for name in WEIGHTS}
        for name, saved in weights.items():
            _check(name, _saved(saved), _shapes(getattr(self._model, name)))
        self._model.set_state_tree(weights)


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


def _saved(tree: Tree, above: str = "") -> Shapes:
    """Return the shapes in a tree by the paths that Keras gives its variables."""
    found: Shapes = {}
    for name, value in tree.items():
        path = f"{above}{name}"
        found |= _saved(value, f"{path}/") if isinstance(value, dict) else {path: tuple(value.shape)}
    return found


def _shapes(variables: Iterable[Any]) -> Shapes:
    return {variable.path: tuple(variable.shape) for variable in variables}


def _check(what: str, saved: Shapes, here: Shapes) -> None:
    """Refuse what does not fit; `set_state_tree` itself would pass over it in silence."""
    said = [f"nothing is saved for {_listed(here.keys() - saved)}"] * bool(here.keys() - saved)
    said += [f"it has no {_listed(saved.keys() - here)}, which is saved"] * bool(saved.keys() - here)
    said += [
        f"{path!r} is {saved[path]} in the store and {here[path]} here"
        for path in sorted(saved.keys() & here)
        if saved[path] != here[path]
    ][:_SHOWN]
    if said:
        raise InvalidInputError(
            f"the {what} of the model cannot be loaded: {'; '.join(said)}. Keras numbers names that it makes "
            "up: give model, layers and optimizer names of their own, or call keras.utils.clear_session() "
            "before they are made again in one process"
        )


def _listed(paths: Iterable[str]) -> str:
    paths = sorted(paths)
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(repr, paths[:_SHOWN])) + more
