"""One tensor's place, one pool, and the rules of size and alignment that both follow."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from lcstore.dtypes import dtype_from_name, pattern_dtype, storage_dtype
from lcstore.layout.qualified import stem_of
from lcstore.layout.shards import Box, Shard, box_of
from lcstore.limits import MAX_DIMS, MAX_POOL_ELEMENTS, check
from lcstore.state.frameworks import Framework
from lcstore.state.names import Name
from lcstore.state.roles import Role

#: A tensor in a lossy pool starts on a block of the codec, so that it has a step size of its own.
ALIGN: Final = 1024
#: Chunks are whole blocks.
CHUNK_MULTIPLE: Final = 1024
MIN_CHUNK_BYTES: Final = 4 << 20
MAX_CHUNK_BYTES: Final = 64 << 20
#: The same of pools with parity, which takes as many bytes as the longest chunk that it covers.
MIN_COVERED_BYTES: Final = 1 << 20
#: Into how many chunks these are cut: more than the fewest where a chunk would be larger than that, and no
#: more than one parity covers. A save holds some of them beside the state, and a delta makes a file of each.
FEWEST_COVERED, MOST_COVERED = 8, 16
FULL_COVERED_BYTES: Final = 16 << 20
#: From here on a pool would have too many objects with chunks of the usual size.
HUGE_POOL_BYTES: Final = 16 << 30
HUGE_CHUNK_BYTES: Final = 512 << 20

#: First word of a pool's name, and the role of all that lies in it. Optimizer state can be stripped, so it
#: shares no pool with anything else.
POOL_ROLES: Final[Mapping[str, Role]] = {
    "weights": "weights",
    "first": "first_moment",
    "second": "second_moment",
    "plain": "plain",
    "plain_optim": "plain",
}


class TensorSpec(NamedTuple):
    """A tensor, or a shard of one, and its place: ``offset`` to ``offset + size`` of its pool, in C order.

    `shape` is that of what is stored: of a shard its own.
    """

    name: Name
    shape: tuple[int, ...]
    dtype: str
    role: Role
    framework: Framework
    pool: str
    offset: int
    shard: Shard | None = None

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the tensor: its own, or that of which it is a shard."""
        return self.shape if self.shard is None else self.shard.whole

    @property
    def box(self) -> Box:
        """First and behind the last index of each dimension, in the tensor that it is or is a shard of."""
        return box_of(self.shape) if self.shard is None else self.shard.box(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def place(self) -> tuple[Name, str, int, tuple[int, ...], Shard | None]:
        """Where it lies. If it is the same in two layouts, their pools can be added where the tensor lies."""
        return self.name, self.pool, self.offset, self.shape, self.shard

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return dtype_from_name(self.dtype).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.itemsize


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """A flat array that holds tensors of one role and dtype.

    Attributes
    ----------
    name
        ``"<first word of POOL_ROLES>-<dtype>"``, behind the number of its part (`lcstore.layout.qualified`).
    dtype
        The logical dtype; `storage_dtype` is what Zarr sees.
    size, chunk
        In elements. The size is a multiple of the pool's alignment and only grows; the chunk is fixed when
        the pool is created, and may be larger than the pool.
    """

    name: str
    dtype: str
    size: int
    chunk: int

    @property
    def stem(self) -> str:
        """Its name without its part."""
        return stem_of(self.name)

    @property
    def role(self) -> Role:
        """The role of every tensor in the pool."""
        return role_of(self.name)

    @property
    def is_movable(self) -> bool:
        """Whether an edge may add to its tensors: to weights, and to plain ones of most dtypes."""
        plain = self.role == "plain" and pattern_dtype(dtype_from_name(self.dtype)) is not None
        return plain or self.role == "weights"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return dtype_from_name(self.dtype).itemsize

    @property
    def align(self) -> int:
        """Every tensor starts on a multiple of this many elements."""
        return pool_align(self.role)

    @property
    def storage_dtype(self) -> str:
        """Name of the dtype that Zarr sees: ``"uint16"`` for bfloat16."""
        return str(storage_dtype(self.dtype))


def role_of(pool: str) -> Role:
    """Return the role of every tensor in a pool of this name."""
    return POOL_ROLES[stem_of(pool).partition("-")[0]]


def is_optimizer_pool(stem: str) -> bool:
    """Return whether a pool of this name holds nothing but the state of an optimizer."""
    return stem.partition("-")[0] in ("first", "second", "plain_optim")


def pool_align(role: Role) -> int:
    """Return the alignment, in elements, of tensors in pools of `role`."""
    return 1 if role == "plain" else ALIGN  # small plain values are many, and lie side by side


def length_of_vector(role: Role, shape: tuple[int, ...]) -> int:
    """Return the length of a moment of one dimension, as that of a bias; 0 of all else.

    New tensors are laid out by it: moments of one length lie side by side, behind those of matrices.
    """
    return shape[0] if len(shape) == 1 and role.endswith("_moment") else 0


def movable_in(tensors: Sequence[TensorSpec]) -> int:
    """Return the size of what edges may add to, in weights, at least 1: four plain bytes count as one."""
    weights = sum(spec.size for spec in tensors if spec.role == "weights")
    plain = sum(spec.nbytes for spec in tensors if spec.role == "plain")
    return max(1, weights + plain // 4)


def check_shape(shape: Sequence[int]) -> int:
    """Return the number of elements of `shape`, or raise `LimitError`."""
    check(len(shape), MAX_DIMS, "number of dimensions of a tensor")
    # numpy counts the other dimensions even where one is zero, so they are bounded together.
    check(math.prod(size or 1 for size in shape), MAX_POOL_ELEMENTS, "number of elements of a tensor")
    return math.prod(shape)


def chunk_elements(size: int, dtype: str, *, covered: bool = False) -> int:
    """Return the chunk length of a new pool of `size` elements.

    A quarter of the pool, at least 4 MiB and at most 64 MiB of raw values, so that small states are few
    objects and large ones are coded in parallel; above 16 GiB, one part in 256, at most 512 MiB. Of a pool
    that parity covers an eighth, at least 1 MiB; a smaller part where that is more than 16 MiB, down to a
    sixteenth.
    """
    itemsize = dtype_from_name(dtype).itemsize
    nbytes = size * itemsize
    if nbytes > HUGE_POOL_BYTES:
        chunk = min(max(nbytes // 256, MAX_CHUNK_BYTES), HUGE_CHUNK_BYTES)
    elif covered:
        step = CHUNK_MULTIPLE * itemsize
        count = min(max(-(-nbytes // FULL_COVERED_BYTES), FEWEST_COVERED), MOST_COVERED)
        chunk = min(max(-(-nbytes // (count * step)) * step, MIN_COVERED_BYTES), MAX_CHUNK_BYTES)
    else:
        chunk = min(max(nbytes // 4, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)
    return chunk // itemsize // CHUNK_MULTIPLE * CHUNK_MULTIPLE
