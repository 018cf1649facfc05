"""What a module of torch says of its own tensors: which are trained, and which are buffers."""

from __future__ import annotations

from typing import Any

from lcstore.state.roles import Role


def roles_said(module: Any) -> dict[str, Role]:
    """Return the roles of tensors of a module, by their keys in its ``state_dict()``.

    A parameter that is trained is weights, whatever its name; a buffer is plain. Of a frozen parameter, which
    may be a mask, a table of positions or the scale of a quantized layer, the module says nothing.
    """
    said: dict[str, Role] = {name: "plain" for name, _ in module.named_buffers(remove_duplicate=False)}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            said[name] = "weights"
    return said
