"""Prefix codes: optimal under the limit, complete, canonical; and their tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import twins
from hypothesis import given
from hypothesis import strategies as st

from lcstore.bitkernels import huffman
from lcstore.compiling.status import SYMBOL, TABLE

counts_of = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 10, 1000, 1 << 40]), min_size=2, max_size=256)


def lengths_of(counts):
    lengths = np.zeros(len(counts), np.uint8)
    used = huffman.code_lengths(np.array(counts, np.int64), lengths)
    return used, lengths


def book_of(lengths):
    codes = np.full(lengths.size, 77, np.uint32)
    assert huffman.assign_codes(lengths, codes) == 0
    return codes


def kraft(lengths):
    return sum(1 << (12 - int(n)) for n in lengths if n)


@given(counts_of.filter(any))
def test_code_lengths_are_their_twin_complete_and_within_the_limit(counts):
    used, lengths = lengths_of(counts)
    assert lengths.tolist() == twins.code_lengths(counts)
    assert used == np.count_nonzero(lengths) == max(2, sum(c > 0 for c in counts))
    assert kraft(lengths) == 4096
    assert lengths.max() <= 12


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 300)), max_size=9))
def test_lengths_are_written_as_their_twin_writes_them(runs):
    lengths = np.repeat(*np.array(runs or [(0, 1)]).T)[:256].astype(np.uint8)
    out = np.zeros(-(-lengths.size // 2), np.uint8)
    used = huffman.write_lengths(lengths, out)
    assert out[:used].tobytes() == twins.written_lengths(lengths)
    assert not out[used:].any()


def best_cost(counts, limit):
    """Try every multiset of lengths that fills the code space; give long codes to the rare."""
    counts = sorted(counts, reverse=True)
    best = None
    for lengths in itertools.combinations_with_replacement(range(1, limit + 1), len(counts)):
        if sum(2.0**-n for n in lengths) == 1:
            cost = sum(c * n for c, n in zip(counts, lengths, strict=True))
            best = cost if best is None else min(best, cost)
    return best


@given(st.lists(st.integers(1, 1000), min_size=2, max_size=6))
def test_small_codes_are_optimal(counts):
    _, lengths = lengths_of(counts)
    assert int(np.dot(counts, lengths)) == best_cost(counts, len(counts))


@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=256))
def test_codes_are_within_a_bit_of_the_entropy(counts):
    _, lengths = lengths_of(counts)
    p = np.array(counts) / sum(counts)
    entropy = float(-(p * np.log2(p)).sum())
    assert entropy - 1e-9 <= float(p @ lengths) <= entropy + 1 + 1e-9


def test_the_limit_costs_little_where_it_binds():
    fibonacci = [1, 1]
    while len(fibonacci) < 40:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    _, lengths = lengths_of(fibonacci)
    assert lengths.max() == 12
    assert kraft(lengths) == 4096
    assert lengths.tolist() == twins.code_lengths(fibonacci)


@pytest.mark.parametrize(("counts", "lengths"), [([5, 0], [1, 1]), ([0, 5, 0], [1, 1, 0]), ([7, 7], [1, 1])])
def test_few_symbols_still_make_a_complete_code(counts, lengths):
    assert lengths_of(counts)[1].tolist() == lengths


@pytest.mark.parametrize("counts", [[0, 0, 0], [3], []])
def test_no_symbol_no_code(counts):
    assert lengths_of(counts)[0] == TABLE


@given(counts_of.filter(any))
def test_codes_and_tables_are_their_twins(counts):
    lengths = lengths_of(counts)[1]
    codes = book_of(lengths)
    book = twins.codes(lengths)
    for s, code in enumerate(codes.tolist()):
        assert (code & 0xFFFF, code >> 16) == book.get(s, (0, 0))
    values = np.arange(len(counts), dtype=np.uint32) * 3 + 1
    table, sizes = np.zeros(4096, np.uint32), np.zeros(4096, np.uint8)
    huffman.fill_table(codes, values, table, sizes)
    if len(book) <= 20:
        wanted = twins.lookup(book, values)
        np.testing.assert_array_equal(table, wanted[0])
        np.testing.assert_array_equal(sizes, wanted[1])
    assert sizes.min() >= 1


@given(counts_of.filter(any), st.sampled_from([1, 2, 4]), st.integers(0, 2**32))
def test_joined_codes_are_their_twin(counts, per, seed):
    lengths = lengths_of(counts)[1]
    codes, book = book_of(lengths), twins.codes(lengths)
    values = np.random.default_rng(seed).integers(0, 256**per, len(counts)).astype(np.uint64)
    table, sizes = np.zeros(4096, np.uint64), np.zeros(4096, np.uint8)
    huffman.fill_table(codes, values, table, sizes)
    joined, moves = np.zeros((4096, 2), np.uint64), np.zeros(4096, np.uint16)
    assert huffman.join_codes(table, sizes, per, joined, moves) == 0
    wanted = twins.join_codes(book, values, per)
    np.testing.assert_array_equal(joined, wanted[0])
    parts = (moves[:, None] >> np.array([0, 6, 11])) & np.array([63, 15, 31])
    np.testing.assert_array_equal(parts, wanted[1])


@given(st.lists(st.integers(0, 255), min_size=2, max_size=12))
def test_lengths_that_do_not_fill_the_space_are_refused(lengths):
    complete = max(lengths) <= 12 and kraft(lengths) == 4096
    codes = np.zeros(len(lengths), np.uint32)
    assert huffman.assign_codes(np.array(lengths, np.uint8), codes) == (0 if complete else TABLE)


@given(st.binary(max_size=50))
def test_histogram_counts(data):
    counts = np.ones(256, np.int64)
    huffman.histogram(np.frombuffer(data, np.uint8).copy(), counts)
    np.testing.assert_array_equal(counts, 1 + np.bincount(np.frombuffer(data, np.uint8), minlength=256))


@given(counts_of.filter(any))
def test_the_bits_of_a_code_and_the_bound_below_them_are_their_twins(counts):
    _, lengths = lengths_of(counts)
    counts, bound = np.array(counts, np.int64), np.full(1, np.nan)
    bits = huffman.code_bits(counts, lengths)
    assert bits == twins.code_bits(counts, lengths)
    assert huffman.entropy(counts, bound) == 0
    assert bound[0] == twins.entropy(counts)
    assert bound[0] <= bits * (1 + 1e-12)


def test_the_bits_of_symbols_without_a_code_are_not_given():
    lengths = np.array([1, 1, 0], np.uint8)
    assert huffman.code_bits(np.array([3, 4, 0]), lengths) == 7
    assert huffman.code_bits(np.array([3, 4, 1]), lengths) == SYMBOL
