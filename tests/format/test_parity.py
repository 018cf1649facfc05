"""Parity equals its twin, and any one object of a family is what all others come to."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lcstore.format import keys
from lcstore.format.bodies import ObjectRef
from lcstore.format.parity import COVERED, Xor, families
from lcstore.write.paritywrite import ParityObject, ParityWrite, covered_roles, is_covered

EDGE = "e" * 32
CHUNKS = st.lists(st.binary(max_size=60), min_size=1, max_size=40)


def twin(chunks: list[bytes]) -> bytes:
    """Return the parity of some chunks the slow way: a column of bytes after the other."""
    rows = np.zeros((len(chunks), max(map(len, chunks))), np.uint8)
    for row, data in zip(rows, chunks, strict=True):
        row[: len(data)] = list(data)
    return bytes(int(np.bitwise_xor.reduce(column)) for column in rows.T)


def written(chunks: dict[int, bytes]) -> tuple[dict[str, bytes], list[ObjectRef]]:
    """Return an array with parity, as it is stored and as its record lists it."""
    parity, pool = ParityWrite("kept"), "weights-float32"
    stored = {}
    made: list[ParityObject | None] = []
    for chunk, data in chunks.items():
        stored[keys.chunk_key(EDGE, pool, "add", chunk)] = data
        made.append(parity.add(pool, "add", chunk, data))
    order = sorted(stored, key=lambda key: parity.place(key, pool, "add"))
    for one in (*made, *parity.rest()):
        if one is not None:
            stored[keys.parity_key(EDGE, one.pool, one.op, one.number)] = one.data
    order += [key for key in stored if key not in order]
    return stored, [ObjectRef.of(key, stored[key]) for key in order]


@given(CHUNKS)
def test_it_equals_its_twin(chunks):
    whole = Xor()
    for data in chunks:
        whole.add(data)
    assert whole.value() == twin(chunks)


@given(CHUNKS, st.randoms())
@settings(deadline=None)
def test_any_one_of_a_family_is_what_the_others_come_to(chunks, random):
    numbers = random.sample(range(10 * len(chunks)), len(chunks))
    stored, refs = written(dict(zip(numbers, chunks, strict=True)))
    found = families(refs)
    assert found.keys() == stored.keys()
    assert sum(keys.parse_data_key(key).parity is not None for key in stored) == -(-len(chunks) // COVERED)
    for ref in refs:
        family = found[ref.key]
        assert 1 <= len(family.chunks) <= COVERED
        others = family.others(ref.key)
        assert ref.key not in {other.key for other in others}
        assert len(others) == len(family.chunks)
        rebuilt = Xor()
        for other in others:
            rebuilt.add(stored[other.key])
        assert rebuilt.value(ref.nbytes) == stored[ref.key]


@given(CHUNKS)
def test_each_parity_is_that_of_sixteen_chunks_in_the_order_of_the_record(chunks):
    stored, refs = written(dict(enumerate(chunks)))
    listed = [ref.key for ref in refs if keys.parse_data_key(ref.key).chunk is not None]
    for number in range(-(-len(chunks) // COVERED)):
        covered = [stored[key] for key in listed[COVERED * number : COVERED * (number + 1)]]
        assert stored[keys.parity_key(EDGE, "weights-float32", "add", number)] == twin(covered)


def test_a_lone_chunk_has_a_copy():
    stored, _ = written({7: b"all there is"})
    assert {bytes(data) for data in stored.values()} == {b"all there is"}
    assert len(stored) == 2


def test_arrays_and_parts_have_parity_of_their_own():
    refs = [
        ObjectRef.of(key, b"x")
        for pool in ("weights-float32", "1/weights-float32", "plain-int64")
        for key in (keys.chunk_key(EDGE, pool, "set", 0), keys.parity_key(EDGE, pool, "set", 0))
    ]
    found = families(refs)
    assert len({family.parity.key for family in found.values()}) == 3
    assert all(len(family.chunks) == 1 for family in found.values())


def test_what_no_parity_covers_has_no_family():
    chunk = ObjectRef.of(keys.chunk_key(EDGE, "weights-float32", "add", 0), b"x")
    meta = ObjectRef.of(keys.group_key(EDGE), b"x")
    far = ObjectRef.of(keys.parity_key(EDGE, "weights-float32", "add", 1), b"x")
    assert families([chunk, meta]) == {}
    assert families([chunk, meta, far]) == {}


def test_chunks_that_are_coded_side_by_side_are_each_covered_once():
    chunks = {number: bytes([number % 251]) * (1 + number % 97) for number in range(500)}
    parity = ParityWrite("all")

    def add(item: tuple[int, bytes]) -> ParityObject | None:
        return parity.add("first-float32", "set", *item)

    with ThreadPoolExecutor(8) as pool:
        made = [one for one in pool.map(add, chunks.items()) if one is not None]
    made += parity.rest()
    place = {
        number: parity.place(keys.chunk_key(EDGE, "first-float32", "set", number), "first-float32", "set")
        for number in chunks
    }
    assert sorted(place.values()) == list(range(500))
    assert sorted(one.number for one in made) == list(range(32))
    for one in made:
        covered = [data for number, data in chunks.items() if place[number] // COVERED == one.number]
        assert one.data == twin(covered)


@pytest.mark.parametrize(
    ("which", "pool", "op", "covered"),
    [
        ("kept", "weights-float32", "add", True),
        ("kept", "weights-bfloat16", "exact", True),
        ("kept", "weights-float32", "grid", True),
        ("kept", "plain-bool", "set", True),
        ("kept", "plain_optim-float32", "set", True),
        ("kept", "first-float32", "set", False),
        ("kept", "3/second-float32", "set", False),
        ("kept", "first-float32", "exact", True),
        ("all", "first-float32", "set", True),
        ("none", "weights-float32", "add", False),
    ],
)
def test_which_arrays_are_covered(which, pool, op, covered):
    assert is_covered(which, pool, op) is covered
    made = ParityWrite(which)
    made.add(pool, op, 0, b"x")
    assert bool(list(made.rest())) is covered


def test_pools_that_are_always_covered_are_cut_into_more_chunks():
    assert covered_roles("none") == set()
    assert covered_roles("kept") == {"weights", "plain"}
    assert covered_roles("all") == {"weights", "plain", "first_moment", "second_moment"}
