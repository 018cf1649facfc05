"""A training process that saves and keeps a diary of what a reader must get; it is killed now and then.

python writer_process.py STORE DIARY SAVES RESUME_BACK
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from conftest import Run
from states import leaves, tracked

import lcstore


def sha(values: dict[str, bytes]) -> dict[str, str]:
    return {path: hashlib.sha256(data).hexdigest() for path, data in values.items()}


def main(url: str, diary: str, saves: int, back: int) -> None:
    store = lcstore.open(url)
    run = Run()
    done = store.latest_step()
    begin = 0
    if done is not None:
        begin = max(done - back, 0)
        store.resume(begin)
        begin += 1
    for _ in range(begin):
        run.step()
    for step in range(begin, saves):
        state = run.step()
        exact = step % 37 == 5
        info = store.save(step, state, exact=exact)
        kept = tracked(store)
        if exact or info.kind == "anchor":
            kept = {p: v.tobytes() for p, v in leaves(state).items() if exact or "exp_avg" not in p}
        with open(diary, "a") as file:
            file.write(json.dumps({"node": info.node, "step": step, "sha": sha(kept)}) + "\n")
            file.flush()
        print(step, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
