"""A state as one listing shows it: a node, the path to it, and the values that they compose to."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lcstore.arrays import Array
from lcstore.dtypes import dtype_from_name
from lcstore.edges.algebra import ArrayName, sets
from lcstore.edges.compose import Composer
from lcstore.edges.edge import Edge, Fetch
from lcstore.edges.grid import pool_dtype
from lcstore.edges.path import Path
from lcstore.errors import CorruptionError, NotFoundError
from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.graph.refs import EdgeRef, NodeName
from lcstore.jobs.jobs import run_all
from lcstore.layout.shards import Box, overlap, within
from lcstore.limits import check_unstored, zeros
from lcstore.once import once
from lcstore.read.convert import tree_of
from lcstore.read.feeder import Ask, Feeder
from lcstore.read.fetch import ChunkFetch, stored_bytes
from lcstore.read.kept import exact_fetch, exact_places, exact_values
from lcstore.read.lookup import Wanted
from lcstore.read.nearby import Nearby
from lcstore.read.node import Node
from lcstore.read.reader import Reader

T = TypeVar("T")


class Rebuilt(NamedTuple):
    """What a writer goes on from.

    Attributes
    ----------
    node, pools
        The node, and its track by pool; None where the values alone could be read.
    values, leaves
        Flat values of all that is stored, by place among `Layout.tensors`, the exact ones while they are
        kept; and the plain values. Of a node whose track alone was wanted, the values are those of the track,
        each made when it is looked at.
    """

    node: Node
    pools: dict[str, Array] | None
    values: Mapping[int, Array]
    leaves: list[object]

    def tree(self, *, dtype: str | None, like: Any, to: str) -> Any:
        """Return the state; parameters as for `Store.restore`."""
        part = Wanted(None).part(self.node)
        values = self.node.layout.put_together(self.values, part.tensors)
        return tree_of(self.node, part, values, self.leaves, dtype=dtype, like=like, to=to)


class Resolved:
    """A node and the path to it, as of one listing. It never changes, and its records are read once.

    Parameters
    ----------
    reader, name
        What reads, and which node.
    exact
        Whether its exact value, where it has one, is given; as the listing says if None.

    Attributes
    ----------
    situation
        What `Index.situation` said: reading may go better where that has changed.
    exact, let_go
        Whether the exact value is given, and whether the listing says that it is let go of.
    nearby
        What is held of small tensors that are read one by one.
    """

    def __init__(self, reader: Reader, name: NodeName, exact: bool | None = None) -> None:
        self.reader = reader
        self.name = name
        graph = reader.index.graph
        self.situation = reader.index.situation(name.node)
        while reader.index.graph is not graph:
            graph = reader.index.graph
            self.situation = reader.index.situation(name.node)
        self._graph = graph
        self.let_go = self.situation.let_go
        self.nearby = Nearby()
        self.exact = not self.let_go if exact is None else exact

    @once
    def node(self) -> Node:
        """The node, its record and layout read."""
        return replace(self.reader.node(self.name), exact=self.exact, stripped=self.situation.stripped)

    @property
    def path(self) -> tuple[EdgeRef, ...]:
        """The edges from the root to the node; `CorruptionError` if nothing leads to it."""
        if self.situation.path is None:
            raise CorruptionError(self.situation.problem)
        return self.situation.path

    @property
    def called(self) -> int | str:
        """What finds the node: its step, or its id where another is found by that."""
        return self.name.step if self._graph.at_step(self.name.step) == self.name else self.name.node

    @property
    def keys(self) -> list[str]:
        """The keys of the records of the path: from them alone the node can be read."""
        # The graph is the one that the path was found in: where names go away, another takes its place.
        graph, path = self._graph, [*(self.situation.path or ())]
        if any(ref.backward for ref in path):
            path += self._forward()
        nodes = dict.fromkeys([self.name.node, *(ref.target for ref in path)])
        found = [keys.node_key(graph.nodes.get(node, self.name)) for node in nodes]
        return found + [keys.edge_key(graph.edges[ref.edge]) for ref in path if ref.edge is not None]

    @once
    def edges(self) -> list[Edge]:
        """The edges of the path, their records read."""
        return self.reader.edges(self.path)

    @once
    def leaves(self) -> list[object]:
        """The plain values, in the order of the structure."""
        return self.reader.leaves(self.node)

    def check_same(self) -> None:
        """Refuse to give the track where the exact value was given before."""
        if self.exact and self.let_go and self.node.has_exact:
            raise NotFoundError(
                "the exact value of this state was let go of while it was looked at: "
                f"look at it anew for what is kept, store.at({self.name.step})",
                key=keys.node_key(self.name),
                step=self.name.step,
            )

    def values(self, wanted: Sequence[int]) -> dict[int, Array]:
        """Return flat values of tensors by place among `Layout.wholes`: the exact ones while kept."""
        layout = self.node.layout
        return layout.put_together(self.stored(layout.stored(wanted)), wanted)

    def stored(self, wanted: Iterable[int]) -> dict[int, Array]:
        """Return flat values of what is stored, by place among `Layout.tensors`; as `values` does."""
        exact, tracked = self.node.divide(wanted)
        with self.node.named():
            self.node.check_kept((*exact, *tracked))
            out = exact_values(self.reader, self.node, exact)
            if tracked:
                out |= self._filled(tracked, tracked)[1]
        return out

    def _filled(
        self, wanted: Sequence[int], given: Sequence[int], *, keep: bool = False
    ) -> tuple[Composer, dict[int, Array]]:
        """Compose and prove the track of tensors; return what may keep it, and the values of those given."""
        feeder, specs = Feeder(self.reader.requests), self.node.layout.tensors
        composer = self.composer(wanted, of=feeder.edge)
        out = {t: zeros(specs[t].size, dtype_from_name(specs[t].dtype)) for t in given}
        self._run(feeder, composer, composer.filling(out, keep=keep))
        composer.check_filled()
        return composer, out

    def region(self, whole: int, box: Box, window: Callable[[int, int, int], Array] | None = None) -> Array:
        """Return the elements of one tensor in a box, decoding little else: of each shard some rows.

        `window` gives elements of what is stored of one tensor; they are decoded here if it is not given.
        """
        layout, window = self.node.layout, window or self._window
        out = np.empty([high - low for low, high in box], dtype_from_name(layout.wholes[whole].dtype))
        for tensor in layout.shards[whole]:
            shard = layout.tensors[tensor]
            both = overlap(shard.box, box)
            if both is not None:
                inside, into = within(both, shard.box), within(both, box)
                row = math.prod(shard.shape[1:])
                flat = window(tensor, inside[0].start * row, inside[0].stop * row)
                out[into] = flat.reshape(-1, *shard.shape[1:])[:, *inside[1:]]
        return out

    def _window(self, tensor: int, low: int, high: int) -> Array:
        """Return elements ``low:high`` of what is stored of one tensor, decoding little else."""
        node = self.node
        with node.named():
            node.check_kept([tensor])
            if node.keeps_exact(tensor):
                return exact_values(self.reader, node, [tensor], (low, high))[tensor]
            return self.compose([tensor], window=(low, high)).values(tensor)

    def rebuild(self) -> Rebuilt:
        """Return the track of the node, proved, and its values."""
        node = self.node
        exact, tracked = node.divide(node.everything)
        with node.named():
            node.check_kept(node.everything)
            composer, values = self._filled(node.everything, tracked, keep=True)
            values |= exact_values(self.reader, node, exact)
        return Rebuilt(node, self._pools(composer), {t: values[t] for t in node.everything}, self.leaves)

    def rebuild_values(self) -> Rebuilt:
        """Return the values of a node alone: the exact ones may be whole where the track is damaged.

        Raises
        ------
        CorruptionError
            They are damaged, too, or there are no exact ones.
        """
        if not self.node.has_exact:
            raise CorruptionError("it has no exact value", step=self.name.step)
        return Rebuilt(self.node, None, self.stored(self.node.everything), self.leaves)

    def rebuild_track(self) -> Rebuilt:
        """Return the track of the node, proved; the values are those of the track, made when looked at."""
        node, tensors = self.node, self.node.layout.tensors
        wanted = [t for t in node.everything if pool_dtype(node.layout.pools[tensors[t].pool]) is not None]
        with node.named():
            node.check_kept(node.everything)
            composer, _ = self._filled(wanted, (), keep=True)
        return Rebuilt(node, self._pools(composer), _OfTrack(composer, wanted), self.leaves)

    def _pools(self, composer: Composer) -> dict[str, Array]:
        return {
            # On the way a pool may have been longer: a writer would take that for one to be laid out afresh.
            name: composer.pools.get(name, np.zeros(pool.size, dtype))[: pool.size]
            for name, pool in self.node.layout.pools.items()
            if (dtype := pool_dtype(pool)) is not None
        }

    def compose(self, wanted: Sequence[int], *, window: tuple[int, int] | None = None) -> Composer:
        """Compose the track of tensors along the path."""
        feeder = Feeder(self.reader.requests)
        composer = self.composer(wanted, window, feeder.edge)
        self._run(feeder, composer, composer.jobs())
        return composer

    def _run(self, feeder: Feeder, composer: Composer, jobs: Sequence[Callable[[], None]]) -> None:
        """Run jobs of a composer, with the chunks that they get on their way beforehand."""
        asks = (Ask(edge.fetch, pool, array, chunk) for edge, pool, array, chunk in composer.fetches())
        with feeder.feeding(asks):
            run_all(self.reader.executor, jobs)

    def composer(
        self,
        wanted: Sequence[int],
        window: tuple[int, int] | None = None,
        of: Callable[[Edge], Edge] = lambda edge: edge,
    ) -> Composer:
        """Return what composes tensors; what a way back over an edge loses comes from before the node."""
        node = self.node
        found = self._edges_to(wanted)
        composer = Composer([of(edge) for edge in found], node.layout, node.columns, wanted, window=window)
        check_unstored(composer.nbytes, stored_bytes(found))
        if composer.path.lost and any(ref.backward for ref in self.path):
            forward = [of(edge) for edge in self.reader.edges(self._forward())]
            composer.compose_anew(Path(forward, node.layout, composer.path.lost))
        return composer

    def _forward(self) -> list[EdgeRef]:
        """Return the path that goes backward nowhere; none where there is no such path."""
        try:
            return self._graph.path(self.name.node)
        except CorruptionError:
            return []

    def _edges_to(self, wanted: Sequence[int]) -> list[Edge]:
        if sets(self.node.columns.op[list(wanted)]).all():
            # The node's own edge sets all of them: nothing before it matters.
            return [self.reader.own_edge(self.node)]
        return self.edges

    def objects_to_read(self, wanted: Iterable[int]) -> dict[str, int]:
        """Return the stored objects that give the values of tensors: by key the bytes, as records say."""
        return {ref.key: ref.nbytes for _, ref in self._asked(wanted)}

    def has(self, wanted: Iterable[int], there: Collection[str]) -> bool:
        """Return whether all objects that give the values of tensors are there, or can be rebuilt."""
        return all(fetch.has(ref, there) for fetch, ref in self._asked(wanted))

    def has_leaves(self, there: Collection[str]) -> bool:
        """Return whether the plain values are there, as far as they are objects, or their copies are."""
        refs = self.node.record.leaves_objects
        return all(ref.key in there or keys.own_copy_key(ref.key) in there for ref in refs)

    def _asked(self, wanted: Iterable[int]) -> Iterator[tuple[ChunkFetch, ObjectRef]]:
        """Yield the stored objects that give the values of tensors, each with what gets it."""
        node = self.node
        exact, tracked = node.divide(node.layout.stored(wanted))
        with node.named():
            node.check_kept((*exact, *tracked))
            own: Fetch = exact_fetch(self.reader, node)
            asks: list[tuple[Fetch, str, ArrayName, int]] = [
                (own, tensors.pool.name, "exact", chunk)
                for tensors, some in exact_places(node, exact)
                for chunk in tensors.chunks_with(some)
            ]
            if tracked:
                composer = self.composer(tracked)
                composer.check()
                asks += ((edge.fetch, pool, array, chunk) for edge, pool, array, chunk in composer.fetches())
        for fetch, pool, array, chunk in asks:
            assert isinstance(fetch, ChunkFetch)
            ref = fetch.ref(pool, array, chunk)
            if ref is not None:
                yield fetch, ref


class _OfTrack(Mapping[int, Array]):
    """The values of a composed track: all of them at once would take as much memory again."""

    def __init__(self, composer: Composer, tensors: Sequence[int]) -> None:
        self._composer = composer
        self._tensors = tensors

    def __getitem__(self, tensor: int) -> Array:
        return self._composer.values(tensor)

    def __iter__(self) -> Iterator[int]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
