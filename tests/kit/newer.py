"""What a later version writes into a store: whole, and with a feature that this one does not know."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lcstore.format import keys
from lcstore.format.fields import record_id


def newer_node(objects: dict[str, bytes], key: str) -> tuple[dict[str, bytes], str]:
    """Return a store of which a later version wrote the node at a key, and where that is then."""
    name, value = keys.parse_node_key(key), json.loads(objects[key]) | {"features": ["later"]}
    data = json.dumps(value, separators=(",", ":"), sort_keys=True).encode()
    there = replace(name, node=record_id(data))
    rest = objects.keys() - {key, keys.copy_key(name.node)}
    left = {other: objects[other] for other in rest}
    return left | {keys.node_key(there): data, keys.copy_key(there.node): data}, keys.node_key(there)


def make_newer(url: Path, step: int) -> None:
    """Have a later version have written the node of a step of a store in a folder."""
    was = {str(path.relative_to(url)): path.read_bytes() for path in url.rglob("*") if path.is_file()}
    [key] = (key for key in was if key.startswith(f"nodes/{step:019d}"))
    now, _ = newer_node(was, key)
    for gone in was.keys() - now.keys():
        (url / gone).unlink()
    for new in now.keys() - was.keys():
        (url / new).parent.mkdir(parents=True, exist_ok=True)
        (url / new).write_bytes(now[new])
