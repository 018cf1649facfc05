"""Finding settings: the fewest bytes for a stated increase of the user's own loss.

    from lcstore.tune import tune
    found = tune(states, loss, like="balanced")       # loss(state) -> float, on a fixed probe batch
    found.save("tuned.json")
    store = lcstore.open(url, policy="tuned.json")

Knows the public store and policies; never formats of bytes.
"""

from lcstore.tune.online import Tuner
from lcstore.tune.result import Measured, Point, Setting, Tuned
from lcstore.tune.saved import Saved
from lcstore.tune.search import tune

__all__ = ["Measured", "Point", "Saved", "Setting", "Tuned", "Tuner", "tune"]
