"""The three coders: the bits are those of their twins, and they come back."""

from __future__ import annotations

import numpy as np
import pytest
import twins
from hypothesis import assume, given
from hypothesis import strategies as st

from lcstore.bitkernels import escapes as escapes_of
from lcstore.bitkernels import huffman, pack, runs, wide
from lcstore.bitkernels.relative import from_relative, to_relative
from lcstore.coders.small import narrow_levels
from lcstore.compiling.status import LENGTH, OK, SPACE, SYMBOL, TABLE
from lcstore.kernels import adding

PACKINGS = [(2, 4), (3, 2), (4, 2), (8, 1)]
seeds = st.integers(0, 1 << 30)
sizes = st.sampled_from([1, 3, 7, 8, 63, 64, 65, 200, 1000])


def some_levels(seed, size, spread, zeros):
    """Give int8 levels with escapes: the largest are in a list."""
    rng = np.random.default_rng(seed)
    levels = np.rint(rng.standard_t(2, size) * spread).astype(np.int64)
    levels[rng.random(size) < zeros] = 0
    far = np.abs(levels) > 127
    narrow = np.where(far, -128, levels).astype(np.int8)
    return levels, narrow, levels[far]


def code_for(symbols):
    """Give the kernel's codes, the twin's, and look-up tables, for the symbols that occur."""
    counts = np.bincount(symbols, minlength=256).astype(np.int64)
    if not counts.any():
        counts[0] = 1
    lengths, codes = np.zeros(256, np.uint8), np.zeros(256, np.uint32)
    huffman.code_lengths(counts, lengths)
    huffman.assign_codes(lengths, codes)
    return codes, twins.codes(lengths)


def tables(codes, values):
    table, code_sizes = np.zeros(4096, values.dtype), np.zeros(4096, np.uint8)
    huffman.fill_table(codes, values, table, code_sizes)
    return table, code_sizes


def joined(codes, bits, per):
    """Give the tables that `decode_pack` takes."""
    found = np.zeros((4096, 2), np.uint64), np.zeros(4096, np.uint16)
    huffman.join_codes(*tables(codes, pack_values(bits, per).astype(np.uint64)), per, *found)
    return *found, per


def restored(levels, places, values, found):
    out = levels.astype(np.int64)
    out[places[:found]] = values[:found]
    return out


def pack_values(bits, per):
    """Give what each symbol stands for, as one integer of `per` bytes."""
    fields = np.stack([(np.arange(256) >> (bits * j)) & ((1 << bits) - 1) for j in range(per)], axis=1)
    levels = np.where(fields >= 1 << (bits - 1), fields - (1 << bits), fields)
    levels[fields == 1 << (bits - 1)] = -128
    return levels.astype(np.int8).view(f"u{per}").reshape(-1)


def frames_of(frames, segment, size):
    """Give what `add_frames` takes of frames, each given as what its parts are."""
    told, words, directories, scales = [], [], [], []
    tables = [np.zeros((len(frames), 4096, *more), kind) for more, kind in TABLES]
    for k, (coded_words, directory, coded, least, some, block, sign, relative) in enumerate(frames):
        per = coded[2] if len(coded) == 3 else 0
        for table, filled in zip(tables[:2] if per else tables[2:], coded[:2], strict=True):
            table[k] = filled
        here = size, 8 * sum(map(len, words)), sum(map(len, directories)), directory.shape[1]
        told.append((*here, per, least, sum(map(len, scales)), block, sign, relative))
        words.append(coded_words)
        directories.append(directory.reshape(-1))
        scales.append(some)
    joined = [np.concatenate(parts) for parts in (words, directories, scales)]
    room, places, values = (np.zeros(runs.SIDE * segment, kind) for kind in (np.int8, np.int64, np.int64))
    told = np.array(told, np.int64)
    return joined[0], told, joined[1], *tables, joined[2], segment, room, places, values


TABLES = (((2,), np.uint64), ((), np.uint16), ((), np.uint8), ((), np.uint8))


def comes_onto_a_track(words, directory, coded, segment, least, levels, sign):
    """Check that what coded segments add is what their levels are, once and as they wait, block by block."""
    rng = np.random.default_rng(levels.size)
    track = rng.integers(-(1 << 31), 1 << 31, levels.size).astype(np.int32)
    none, blocks = np.empty(0, np.int64), -(-levels.size // 8)
    some, other = (rng.integers(0, 30, blocks).astype(np.int16) for _ in range(2))
    # Of equal step sizes, of others, of blocks of other sizes, and taken back.
    kinds = [(some, 8, sign)] * 3 + [(other, 8, sign), (some, 8, sign), (other[: -(-blocks // 4)], 32, -sign)]
    times = rng.integers(0, 7)
    wanted = track
    relative = rng.integers(0, 2, times)
    meant = levels, np.array(twins.from_relative(levels.tolist(), segment), levels.dtype)
    for (scales, block, turn), signs in zip(kinds, relative, strict=False):
        wanted = twins.add_levels(meant[signs], none, none, scales, block, turn, wanted)
    frames = [
        (words, directory, coded, least, *kind, signs) for kind, signs in zip(kinds, relative, strict=False)
    ]
    if not frames:
        return
    told = frames_of(frames, segment, levels.size)
    step = int(rng.integers(1, 5)) * segment * runs.SIDE // 4
    sums, found = np.full(step + 8, 99, np.int8), np.append(track, [7] * 5).astype(np.int32)
    for low in range(0, levels.size, step):
        end = min(low + step, levels.size)
        onto = found[low : end + 5 * (end == levels.size)]  # a track may go on behind a frame
        assert adding.add_frames(low, *told, sums[:step], onto) == times
    np.testing.assert_array_equal(found, [*wanted, *[7] * 5])
    assert (sums[step:] == 99).all()


@given(st.lists(st.integers(-5, 5) | st.integers(-300, 300), max_size=90), st.sampled_from([8, 64]))
def test_relative_signs_are_their_twin_and_come_back(levels, segment):
    far = [level for level in levels if abs(level) > 127]
    narrow = np.array([-128 if abs(level) > 127 else level for level in levels], np.int8)
    places, escapes = np.flatnonzero(narrow == -128), np.array(far, np.int64)
    assert to_relative(narrow, escapes, segment) == OK
    turned = narrow.astype(np.int64)
    turned[places] = escapes
    assert turned.tolist() == twins.to_relative(levels, segment)
    assert twins.from_relative(turned.tolist(), segment) == levels
    narrow[places] = 0
    assert from_relative(narrow, places, escapes, segment) == OK
    assert not narrow[places].any()
    back = narrow.astype(np.int64)
    back[places] = escapes
    assert back.tolist() == levels


@given(st.lists(st.integers(-128, 127), max_size=70), st.sampled_from(PACKINGS))
def test_pack_is_its_twin(levels, packing):
    bits, per = packing
    symbols = np.full(-(-len(levels) // per), 99, np.uint8)
    pack.pack(np.array(levels, np.int8), bits, per, symbols)
    np.testing.assert_array_equal(symbols, twins.pack(levels, bits, per))
    counts = np.ones(256, np.int64)
    pack.count_symbols(np.array(levels, np.int8), bits, per, counts)
    np.testing.assert_array_equal(counts - 1, np.bincount(symbols, minlength=256))


@given(st.integers(0, 200_000), st.integers(-128, 127), st.integers(0, 200_000))
def test_any_level_finds_one(size, level, at):
    levels = np.zeros(size, np.int8)
    if at < size:
        levels[at] = level
    assert pack.any_level(levels) == int(levels.any())


@given(
    seed=seeds,
    size=sizes,
    spread=st.sampled_from([0.3, 3.0, 60.0]),
    zeros=st.sampled_from([0.0, 0.9]),
    packing=st.sampled_from(PACKINGS),
    streams=st.sampled_from([1, 4]),
    segment=st.sampled_from([8, 64, 256]),
)
def test_pack_streams_are_their_twin_and_come_back(seed, size, spread, zeros, packing, streams, segment):
    bits, per = packing
    levels, narrow, escapes = some_levels(seed, size, spread, zeros)
    codes, book = code_for(twins.pack(narrow, bits, per))
    payload = np.zeros(16 * size + 64, np.uint8)
    directory = np.zeros((-(-size // segment), streams + 1), np.uint16)
    used = pack.encode_pack(narrow, escapes, bits, per, streams, segment, codes, payload, directory)
    wanted, wanted_directory = twins.encode_pack(narrow, escapes, bits, per, streams, segment, book)
    np.testing.assert_array_equal(directory, wanted_directory)
    assert payload[:used].tobytes() == wanted
    words = twins.words_of(wanted)
    coded = joined(codes, bits, per)
    room = np.full(size + 8, 99, np.int8)
    back, places, values = room[:size], np.zeros(size, np.int64), np.zeros(size, np.int64)
    assert pack.decode_pack(words, 0, directory, *coded, back, segment) == 0
    assert (room[size:] == 99).all()
    found = escapes_of.decode_escapes(words, 0, directory, back, segment, 1 << (bits - 1), places, values)
    assert found == np.count_nonzero(np.abs(levels) >= 1 << (bits - 1))
    np.testing.assert_array_equal(restored(back, places, values, found), levels)
    comes_onto_a_track(words, directory, coded, segment, 1 << (bits - 1), levels, 1)


@pytest.mark.parametrize("room", [0, 1, 5])
def test_pack_says_when_there_is_no_room(room):
    narrow = np.arange(-60, 60).astype(np.int8)
    codes, _ = code_for(twins.pack(narrow, 8, 1))
    directory = np.zeros((1, 2), np.uint16)
    args = (narrow, np.empty(0, np.int64), 8, 1, 1, 256, codes)
    assert pack.encode_pack(*args, np.zeros(room, np.uint8), directory) == SPACE


def test_pack_decoders_find_streams_that_do_not_end_where_they_should():
    _, narrow, escapes = some_levels(1, 300, 3.0, 0.0)
    codes, _ = code_for(twins.pack(narrow, 4, 2))
    payload, directory = np.zeros(4000, np.uint8), np.zeros((2, 5), np.uint16)
    used = pack.encode_pack(narrow, escapes, 4, 2, 4, 256, codes, payload, directory)
    words, coded = twins.words_of(payload[:used]), joined(codes, 4, 2)
    for j in range(4):
        wrong = directory.copy()
        wrong[0, j] += 1
        assert pack.decode_pack(words, 0, wrong, *coded, np.zeros(300, np.int8), 256) == LENGTH
    wrong = directory.copy()
    wrong[0, 4] += 1
    packed = np.zeros(300, np.int8)
    assert pack.decode_pack(words, 0, directory, *coded, packed, 256) == 0
    room = np.zeros(300, np.int64)
    assert escapes_of.decode_escapes(words, 0, wrong, packed, 256, 8, room, room.copy()) in (LENGTH, SYMBOL)
    scales = np.arange(38, dtype=np.int16), 8, 1, 0
    for j in range(5):
        wrong = directory.copy()
        wrong[0, j] += 1
        frames = [(words, one, coded, 8, *scales) for one in (directory, directory, wrong, directory)]
        sums, track = np.zeros(300, np.int8), np.zeros(300, np.int32)
        assert adding.add_frames(0, *frames_of(frames, 256, 300), sums, track) == 2
    wrong = directory.copy()
    wrong[0, 4] += 1
    assert pack.decode_pack(words, 0, directory, *coded, packed, 256) == 0
    assert escapes_of.decode_escapes(words, 0, directory, packed, 256, 8, room[:1], room[:1].copy()) == SPACE


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("size", [0, 100, 4 * 155, 4 * 156 + 3, 3000])
def test_pack_decoders_stay_within_the_levels_whatever_tables_say(size, streams):
    """Looks are not checked one by one: those that move on as far as can be must be within, too."""
    tables = np.full((4096, 2), 2**64 - 1, np.uint64), np.full(4096, 0xFC41, np.uint16)
    words, directory = np.zeros(size + 8, np.uint64), np.full((1, streams + 1), size, np.uint16)
    room = np.full(size + 40, 99, np.int8)
    assert pack.decode_pack(words, 0, directory, *tables, 1, room[:size], 4096) in (0, LENGTH)
    assert (room[size:] == 99).all()
    if size:
        assert (room[:size] == -1).any()
        segments = np.zeros((size // 8 + 2, streams + 1), np.uint16)
        assert pack.decode_pack(words, 0, segments, *tables, 1, room[:size], 8) == LENGTH
    few = tables[0][:4095], tables[1]
    assert pack.decode_pack(words, 0, directory, *few, 1, room[:size], 4096) == TABLE


@given(
    seed=seeds,
    size=sizes,
    zeros=st.sampled_from([0.0, 0.7, 0.99, 1.0]),
    segment=st.sampled_from([8, 64, 1024]),
)
def test_tokens_are_their_twin(seed, size, zeros, segment):
    _, narrow, _ = some_levels(seed, size, 1.5, zeros)
    symbols, extras = np.zeros(2 * size + 2, np.uint8), np.zeros(2 * size + 2, np.uint32)
    counts = np.zeros(-(-size // segment), np.int64)
    used = runs.tokenize(narrow, segment, symbols, extras, counts)
    wanted = twins.tokenize(narrow, segment)
    np.testing.assert_array_equal(symbols[:used], wanted[0])
    np.testing.assert_array_equal(extras[:used], wanted[1])
    np.testing.assert_array_equal(counts, wanted[2])
    exact = np.zeros(max(used, 1), np.uint8), np.zeros(max(used, 1), np.uint32)
    assert runs.tokenize(narrow, segment, *exact, counts) in (used, SPACE)
    if used > 1:
        assert runs.tokenize(narrow, segment, symbols[: used - 1], extras, counts) == SPACE


def test_run_classes_cover_every_run_of_a_segment():
    classes = twins.run_classes()
    assert len(classes) == runs.CLASSES
    for (base, bits), (following, _) in zip(classes, [*classes[1:], (1 << 16, 0)], strict=True):
        assert base + (1 << bits) == following
    extra = np.full(256, 9, np.uint8)
    runs.extra_bits(extra)
    assert extra.tolist() == [bits for _, bits in classes for _ in range(5)] + [0] * 16


@given(
    seed=seeds,
    size=sizes,
    spread=st.sampled_from([0.7, 3.0, 90.0]),
    zeros=st.sampled_from([0.0, 0.7, 0.99, 1.0]),
    segment=st.sampled_from([8, 64, 1024]),
)
def test_run_streams_are_their_twin_and_come_back(seed, size, spread, zeros, segment):
    levels, narrow, escapes = some_levels(seed, size, spread, zeros)
    symbols, extras, counts = twins.tokenize(narrow, segment)
    codes, book = code_for(symbols)
    payload, directory = np.zeros(32 * size + 64, np.uint8), np.zeros((counts.size, 2), np.uint16)
    used = runs.encode_runs(narrow, escapes, segment, symbols, extras, counts, codes, payload, directory)
    assume(used != SPACE or segment > 8)  # tiny segments have little room for their side stream
    wanted, wanted_directory = twins.encode_runs(narrow, escapes, segment, book)
    np.testing.assert_array_equal(directory, wanted_directory)
    assert payload[:used].tobytes() == wanted
    words, back = twins.words_of(wanted), np.full(size, 55, np.int8)
    table, code_sizes = tables(codes, np.arange(256, dtype=np.uint8))
    assert runs.decode_runs(words, 0, directory, table, code_sizes, back, segment) == 0
    places, values = np.zeros(size, np.int64), np.zeros(size, np.int64)
    found = escapes_of.decode_escapes(words, 0, directory, back, segment, runs.LEAST, places, values)
    np.testing.assert_array_equal(restored(back, places, values, found), levels)
    coded = table, code_sizes
    comes_onto_a_track(words, directory, coded, segment, runs.LEAST, levels, -1)
    for row in np.flatnonzero(directory[:6, 0]):  # of segments side by side, and of those after them
        wrong = directory.copy()
        wrong[row, 0] += 1
        status = runs.decode_runs(words, 0, wrong, table, code_sizes, back, segment)
        assert status in (LENGTH, SYMBOL)


def test_long_runs_come_back():
    levels = np.zeros(1 << 16, np.int8)
    levels[[0, 255, 256, 511, 4000, 65535]] = [1, -1, 2, -2, 1, -1]
    symbols, extras, counts = twins.tokenize(levels, 1 << 16)
    codes, book = code_for(symbols)
    payload, directory = np.zeros(1000, np.uint8), np.zeros((1, 2), np.uint16)
    none = np.empty(0, np.int64)
    used = runs.encode_runs(levels, none, 1 << 16, symbols, extras, counts, codes, payload, directory)
    assert payload[:used].tobytes() == twins.encode_runs(levels, none, 1 << 16, book)[0]
    table, code_sizes = tables(codes, np.arange(256, dtype=np.uint8))
    back = np.ones_like(levels)
    assert (
        runs.decode_runs(twins.words_of(payload[:used]), 0, directory, table, code_sizes, back, 1 << 16) == 0
    )
    np.testing.assert_array_equal(back, levels)


@pytest.mark.parametrize("symbol", [240, 254])
def test_symbols_that_no_token_has_are_refused(symbol):
    codes, _ = code_for(np.array([symbol, 0]))
    table, code_sizes = tables(codes, np.arange(256, dtype=np.uint8))
    words, directory = np.full(4, (1 << 64) - 1, np.uint64), np.array([[8, 0]], np.uint16)
    assert runs.decode_runs(words, 0, directory, table, code_sizes, np.zeros(64, np.int8), 64) == SYMBOL


def test_runs_past_the_segment_are_refused():
    codes, _ = code_for(np.array([75, 76]))  # both skip 15
    table, code_sizes = tables(codes, np.arange(256, dtype=np.uint8))
    words, directory = np.zeros(4, np.uint64), np.array([[8, 0]], np.uint16)
    assert runs.decode_runs(words, 0, directory, table, code_sizes, np.zeros(40, np.int8), 40) == SYMBOL


wide_levels = st.one_of(
    st.integers(-9, 9), st.integers(-(1 << 20), 1 << 20), st.integers(-(1 << 61) + 1, (1 << 61) - 1)
)


@given(st.lists(wide_levels, min_size=1, max_size=80), st.sampled_from([8, 32, 4096]))
def test_wide_streams_are_their_twin_and_come_back(levels, segment):
    array = np.array(levels, np.int64)
    counts = np.zeros(256, np.int64)
    wide.count_wide(array, counts)
    symbols = np.array([twins.wide_symbol(v)[0] for v in levels])
    np.testing.assert_array_equal(counts, np.bincount(symbols, minlength=256))
    codes, book = code_for(symbols)
    payload, directory = (
        np.zeros(12 * len(levels) + 64, np.uint8),
        np.zeros((-(-len(levels) // segment), 2), np.uint16),
    )
    used = wide.encode_wide(array, segment, codes, payload, directory)
    wanted, wanted_directory = twins.encode_wide(levels, segment, book)
    np.testing.assert_array_equal(directory, wanted_directory)
    assert payload[:used].tobytes() == wanted
    table, code_sizes = tables(codes, np.arange(256, dtype=np.uint8))
    back = np.zeros(len(levels), np.int64)
    assert wide.decode_wide(twins.words_of(wanted), 0, directory, table, code_sizes, back, segment) == 0
    np.testing.assert_array_equal(back, array)
    for row in range(len(directory)):  # four segments side by side, or one after another
        for column in (0, 1):
            wrong = directory.copy()
            wrong[row, column] += 2
            status = wide.decode_wide(twins.words_of(wanted), 0, wrong, table, code_sizes, back, segment)
            assert status in (LENGTH, SYMBOL)


@given(
    st.lists(st.one_of(st.integers(-130, 130), st.integers(-(2**60), 2**60)), max_size=50),
    st.integers(1, 200),
)
def test_narrow_levels_are_their_twin(some, times):
    levels = np.tile(np.array(some, np.int64), times)
    far = np.abs(levels) > 127
    narrow, escapes = np.empty(levels.size, np.int8), np.empty(int(far.sum()), np.int64)
    assert narrow_levels(levels, narrow, escapes) == far.sum()
    assert (narrow == np.where(far, -128, levels)).all()
    assert (escapes == levels[far]).all()
    if far.any():
        assert narrow_levels(levels, narrow, escapes[:-1]) == SPACE


def test_wide_symbols_past_the_last_are_refused():
    codes, _ = code_for(np.array([252, 255]))
    table, code_sizes = tables(codes, np.arange(256, dtype=np.uint8))
    words, directory = np.zeros(8, np.uint64), np.array([[1, 0]], np.uint16)
    assert wide.decode_wide(words, 0, directory, table, code_sizes, np.zeros(1, np.int64), 8) == SYMBOL
