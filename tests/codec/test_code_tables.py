"""Code tables and scales: written briefly, read strictly; and the cache of tables."""

from __future__ import annotations

import contextlib
import threading

import numpy as np
import pytest
from frame_builder import nibbles
from hypothesis import given
from hypothesis import strategies as st

from lcstore.bitkernels.huffman import histogram
from lcstore.bitkernels.pack import pack
from lcstore.coders.entropy import count_pairs
from lcstore.coders.tables import CodeTable, TableCache, optimal_bits
from lcstore.errors import CorruptionError
from lcstore.frames.scales import pack_scales, unpack_scales

counts_of = st.lists(st.sampled_from([0, 0, 0, 0, 1, 2, 5, 1000, 10**9]), min_size=256, max_size=256).filter(
    any
)


@given(counts_of)
def test_tables_are_written_and_read_back(counts):
    table = CodeTable.from_counts(np.array(counts, np.int64))
    data = table.to_bytes()
    assert len(data) <= 128
    again = CodeTable.from_bytes(memoryview(data))
    np.testing.assert_array_equal(again.lengths, table.lengths)
    np.testing.assert_array_equal(again.codes, table.codes)
    every = np.array(counts, np.int64)
    assert optimal_bits(every) == (table.bits(every), np.count_nonzero(table.lengths))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_complete_code_or_refused(data):
    try:
        table = CodeTable.from_bytes(memoryview(data))
    except CorruptionError:
        return
    assert sum(2.0 ** -int(n) for n in table.lengths if n) == 1
    values, sizes = table.lookup(np.arange(256, dtype=np.uint8))
    assert sizes.min() >= 1
    assert set(values.tolist()) == set(np.flatnonzero(table.lengths).tolist())


def test_a_table_in_nibbles():
    lengths = [1, 2, *[0] * 5, 4, 4, 4, 4]
    table = CodeTable.from_lengths(np.array(lengths + [0] * 245, np.uint8))
    assert table.to_bytes() == nibbles(1, 2, 13, 2, 0, 4, 14, 0)
    wide = CodeTable.from_lengths(np.full(256, 8, np.uint8))
    np.testing.assert_array_equal(CodeTable.from_bytes(memoryview(wide.to_bytes())).lengths, wide.lengths)


def test_bits_of_a_symbol_without_a_code_are_infinite():
    table = CodeTable.from_lengths(np.array([1, 1] + [0] * 254, np.uint8))
    counts = np.zeros(256, np.int64)
    counts[[0, 1]] = 3, 4
    assert table.bits(counts) == 7
    counts[9] = 1
    assert table.bits(counts) == np.inf


def test_the_cache_gives_a_table_again_until_it_costs_too_much():
    cache = TableCache()
    counts = np.zeros(256, np.int64)
    counts[:8] = [1000, 500, 250, 125, 60, 30, 20, 15]
    first = cache.table("a", counts)
    assert cache.table("a", counts + (counts > 0)) is first
    assert cache.table("b", counts) is not first
    turned = cache.table("a", np.roll(counts, 3))
    assert turned is not first
    assert turned.bits(np.roll(counts, 3)) < np.inf


def test_the_cache_may_be_used_by_several_threads():
    cache, failures = TableCache(), []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(100):
            counts = rng.integers(0, 1000, 256)
            if cache.table("pack", counts).bits(counts) == np.inf:
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


scale_lists = st.one_of(
    st.lists(st.integers(-32768, 32767), max_size=50),
    st.tuples(st.integers(-32768, 32767), st.integers(0, 300)).map(lambda t: [t[0]] * t[1]),
    st.lists(st.integers(-300, -100), max_size=300),
    st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 80)), max_size=6).map(
        lambda r: [s for s, n in r for _ in range(n)]
    ),
)


@given(scale_lists)
def test_scales_are_written_and_read_back(scales):
    array = np.array(scales, np.int16)
    data = pack_scales(array)
    assert len(data) <= 2 * array.size + 1
    np.testing.assert_array_equal(unpack_scales(memoryview(data), array.size), array)
    if array.size:
        for blocks in (0, array.size + 1):
            if data[0] != 0:  # one value for all fits any number of blocks
                with pytest.raises(CorruptionError):
                    unpack_scales(memoryview(data), blocks)


@given(st.binary(max_size=40), st.integers(0, 40))
def test_any_bytes_are_scales_or_refused(data, blocks):
    with contextlib.suppress(CorruptionError):
        assert unpack_scales(memoryview(data), blocks).size == blocks


@given(st.integers(0, 1 << 30), st.integers(1, 700), st.sampled_from([0.3, 2.0, 3.0, 30.0]))
def test_symbols_counted_together_are_those_counted_one_by_one(seed, size, spread):
    rng = np.random.default_rng(seed)
    levels = np.clip(np.rint(rng.normal(0, spread, size)), -128, 127).astype(np.int8)
    for counts, bits, per in zip(count_pairs(levels), (8, 3, 4), (1, 2, 2), strict=True):
        symbols, wanted = np.empty(-(-size // per), np.uint8), np.zeros(256, np.int64)
        pack(levels, bits, per, symbols)
        histogram(symbols, wanted)
        np.testing.assert_array_equal(counts, wanted)
