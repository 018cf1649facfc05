"""Which training step a file is of, by its name."""

from __future__ import annotations

import re
from typing import Final

from lcstore.errors import InvalidInputError
from lcstore.limits import MAX_STEP

#: What stands before the number of a step, the surest first.
_WORDS: Final = ("step", "iter(?:ation)?", "checkpoint|ckpt", "(?<![a-z])ep(?:och)?")
_NUMBERS: Final = [re.compile(rf"(?:{word})s?[-_=. ]?([0-9]+)", re.IGNORECASE) for word in _WORDS]
#: A number that is a word of its own: not the size of a model, as in ``gpt2`` and ``7b``.
_ALONE: Final = re.compile(r"(?<![^-_= ])([0-9]+)(?![^-_= ])")
_ENDING: Final = re.compile(r"\.(?:safetensors|pt|pth|bin|ckpt|npz|zarr|tar)$", re.IGNORECASE)


class NoStepError(InvalidInputError):
    """A name tells no step."""


def step_in(path: str, regex: str | None = None) -> int:
    """Return the step that a path tells: in its last part, or else in the folder's name.

    Parameters
    ----------
    path
        Of a file or folder: ``runs/checkpoint-500.pt``, ``checkpoint-500/model.safetensors``.
    regex
        What to look for in the whole path instead: its first group, or all that it matches, is the number.

    Raises
    ------
    NoStepError
        It tells none.
    InvalidInputError
        It tells several.
    """
    if regex is not None:
        return _by_regex(path, regex)
    folder, _, last = path.rstrip("/").rpartition("/")
    for part in (_ENDING.sub("", last), folder.rpartition("/")[2]):
        for word in _NUMBERS:
            if found := word.search(part):
                return _checked(found[1], path)
        # Runs are numbered too: of a folder's name the step is all.
        alone = _ALONE.findall(part) if part != folder.rpartition("/")[2] or part.isdigit() else []
        if len(alone) > 1:
            raise InvalidInputError(
                f"the name of {path} has several numbers ({', '.join(alone)}), and nothing tells which is "
                "the step: say it with --steps-from REGEX (steps_from=), such as 'run-([0-9]+)', or --step "
                "(step=) for one file"
            )
        if alone:
            return _checked(alone[0], path)
    raise NoStepError(
        f"the name of {path} has no number that could be its training step: say it with --step NUMBER "
        "(step=) for one file, or --steps-from REGEX (steps_from=) for several"
    )


def _by_regex(path: str, regex: str) -> int:
    try:
        found = re.search(regex, path)
    except re.error as error:
        raise InvalidInputError(f"--steps-from {regex!r:.100} is no regular expression: {error}") from error
    text = None if found is None else found[1] if found.re.groups else found[0]
    if text is None or not (text.isascii() and text.isdigit()):
        what = "nothing" if text is None else repr(text[:40])
        raise NoStepError(
            f"--steps-from {regex!r:.100} finds {what} in {path}, and no number: its first group is the step"
        )
    return _checked(text, path)


def _checked(digits: str, path: str) -> int:
    if len(digits) > 19 or int(digits) > MAX_STEP:
        raise InvalidInputError(f"the number {digits:.40} in {path} is too large for a training step")
    return int(digits)
