"""A disk of so many blocks, in memory."""

import errno

from lcstore.storage.memory import MemoryBackend

BLOCK = 4096


class Disk(MemoryBackend):
    """A disk of so many blocks, each object on blocks of its own."""

    blocks = 1 << 30

    @property
    def used(self):
        return sum(-(-len(data) // BLOCK) for data in self.snapshot().values())

    def _put(self, key, data):
        if self.used + -(-data.nbytes // BLOCK) > self.blocks:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._put(key, data)


def left(backend):
    """Return the keys of all but condemnations, which have the time in their names."""
    return {key for key in backend.snapshot() if not key.startswith("condemned/")}
