"""`LCCodec`: what it takes, and how it is configured."""

from __future__ import annotations

import pickle

import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
from codec_settings import SETTINGS, assert_same_bits, there_and_back

from lcstore.codec import LCCodec
from lcstore.dtypes import dtype_from_name
from lcstore.errors import CorruptionError, InvalidInputError

# what it takes


def test_memory_order_is_kept():
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    codec = LCCodec(step_size=1.0)
    np.testing.assert_array_equal(there_and_back(codec, array), array.reshape(-1))
    np.testing.assert_array_equal(there_and_back(codec, np.asfortranarray(array)), array.T.reshape(-1))
    np.testing.assert_array_equal(there_and_back(codec, array[::2, ::3]), array[::2, ::3].reshape(-1))
    np.testing.assert_array_equal(there_and_back(codec, array[:, ::-1]), array[:, ::-1].reshape(-1))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_read_only_and_0d_arrays_are_taken(settings):
    codec = LCCodec(**settings)
    values = np.arange(2000, dtype=np.float32)
    wanted = there_and_back(codec, values)
    locked = values.copy()
    locked.setflags(write=False)
    np.testing.assert_array_equal(there_and_back(codec, locked), wanted)
    np.testing.assert_array_equal(there_and_back(codec, np.frombuffer(values.tobytes(), np.float32)), wanted)
    assert there_and_back(codec, np.float32(1)).shape == (1,)
    assert there_and_back(codec, np.array(1.0)).shape == (1,)


def test_bytes_are_bytes():
    for data in (b"abc", bytearray(b"abc"), memoryview(b"abc")):
        assert there_and_back(LCCodec(), data).tobytes() == b"abc"


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_what_is_decoded_does_not_lie_in_the_frame(dtype):
    """Bytes that save nothing are stored as they are; whoever read the frame may use its buffer again."""
    values = np.random.default_rng(0).integers(0, 256, 800).astype(np.uint8).view(dtype)
    frame = bytearray(LCCodec("lossless").encode(values))
    back = LCCodec().decode(frame)
    frame[:] = bytes(len(frame))
    assert_same_bits(back, values)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a"]),
        np.array([object()]),
        np.array([1], "M8[s]"),
        np.array([1.0], np.dtype(np.float64).newbyteorder()),
        np.zeros(2, [("a", "i4"), ("b", "f8")]),
        np.zeros(2, np.longdouble),
    ],
    ids=lambda a: str(a.dtype),
)
def test_dtypes_that_cannot_be_stored_are_refused(array):
    with pytest.raises(InvalidInputError, match=r"cannot be stored|order"):
        LCCodec().encode(array)


def test_an_array_of_zarr_v2_is_made_with_the_dtype_that_its_refusal_names(tmp_path):
    values, codec = np.linspace(0, 1, 100, dtype=">f4"), LCCodec("lossless")

    def kept(dtype):
        how = {"shape": 100, "compressors": codec, "zarr_format": 2, "overwrite": True}
        array = zarr.create_array(tmp_path / "a", dtype=dtype, **how)
        array[:] = values
        return array[:]

    with pytest.raises(InvalidInputError, match="made with dtype='<f4'"):
        kept(">f4")
    np.testing.assert_array_equal(kept("<f4"), values)


@pytest.mark.parametrize("order", ["C", "F"])
def test_out_is_filled(order):
    values = np.random.default_rng(0).normal(size=(30, 40)).astype(np.float32)
    values = np.asarray(values, order=order)
    codec = LCCodec(step_size=2.0**-10)
    frame = codec.encode(values)
    out = np.empty_like(values)
    assert codec.decode(frame, out=out) is out
    np.testing.assert_array_equal(out.reshape(-1, order="A"), codec.decode(frame))
    buffer = bytearray(values.nbytes)
    codec.decode(frame, out=buffer)
    assert bytes(buffer) == codec.decode(frame).tobytes()


@pytest.mark.parametrize(
    "out", [np.empty(3, np.float32), np.empty(5, np.float32), np.empty(2, np.float64), bytearray(17)]
)
def test_out_must_fit(out):
    frame = LCCodec(step_size=1.0).encode(np.ones(4, np.float32))
    if memoryview(out).nbytes == 16:
        LCCodec().decode(frame, out=out)
    else:
        with pytest.raises(CorruptionError):
            LCCodec().decode(frame, out=out)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda d: np.frombuffer(d, np.uint8)])
def test_frames_may_lie_in_any_buffer(wrap):
    values = np.arange(100, dtype=np.float32)
    np.testing.assert_array_equal(LCCodec().decode(wrap(LCCodec(step_size=1.0).encode(values))), values)


def test_decoding_needs_no_parameters():
    values = np.abs(np.random.default_rng(0).normal(size=5000)).astype(np.float32)
    for settings in SETTINGS:
        frame = LCCodec(**settings).encode(values)
        np.testing.assert_array_equal(LCCodec("lossless").decode(frame), LCCodec(**settings).decode(frame))


def test_the_same_array_gives_the_same_bytes():
    values = np.random.default_rng(0).normal(size=300_000).astype(np.float32)
    for settings in SETTINGS:
        assert LCCodec(**settings).encode(values) == LCCodec(**settings).encode(values)


def test_a_frame_is_never_much_larger_than_its_values():
    rng = np.random.default_rng(0)
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.uint8, np.int64):
        values = rng.integers(0, 256, 80_000).astype(np.uint8).view(dtype)
        for settings in SETTINGS:
            assert len(LCCodec(**settings).encode(values)) <= values.nbytes + 48 * (1 + values.itemsize) + 64


def test_sparse_masks_take_less_than_a_bit_a_byte():
    mask = np.random.default_rng(0).random(1 << 18) < 0.01
    assert 8 * len(LCCodec("lossless").encode(mask)) / mask.size < 0.1
    counts = np.where(mask, np.uint8(128), np.uint8(0))
    assert 8 * len(LCCodec("lossless").encode(counts)) / mask.size < 0.3


# logical dtypes


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_bits_of_a_logical_dtype_are_coded_as_its_values(name):
    values = np.random.default_rng(0).normal(size=5000).astype(dtype_from_name(name))
    patterns = values.view(np.uint16)
    codec = LCCodec(step_size=2.0**-6, logical=name)
    frame = codec.encode(patterns)
    back = codec.decode(frame)
    assert back.dtype == np.uint16
    assert len(frame) < patterns.nbytes * 0.6
    np.testing.assert_array_equal(
        back.view(values.dtype), LCCodec(step_size=2.0**-6).decode(LCCodec(step_size=2.0**-6).encode(values))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.uint8, np.uint32, np.int16])
def test_a_logical_dtype_leaves_others_alone(dtype):
    values = np.arange(100).astype(dtype)
    assert_same_bits(there_and_back(LCCodec(step_size=1.0, logical="bfloat16"), values), values)


# numcodecs


@pytest.mark.parametrize("settings", [*SETTINGS, {"logical": "bfloat16"}], ids=str)
def test_configuration_and_pickle_round_trip(settings):
    codec = LCCodec(**settings)
    config = codec.get_config()
    assert config["id"] == "lcstore.lc"
    for other in (numcodecs.get_codec(dict(config)), pickle.loads(pickle.dumps(codec))):
        assert other == codec
        assert other.get_config() == config
        assert repr(other) == repr(codec)
        values = np.arange(50, dtype=np.float32)
        assert other.encode(values) == codec.encode(values)


@pytest.mark.parametrize(
    "settings",
    [
        {"quantizer": "cubic"},
        {"bits": 0},
        {"bits": 49},
        {"quantizer": "exponent", "bits": 8},
        {"quantizer": "log", "bits": 8},
        {"quantizer": "log", "step_size": 1.0},
        {"quantizer": "lossless", "max_error": 1.0},
        {"step_size": 0.0},
        {"step_size": -1.0},
        {"step_size": float("nan")},
        {"max_error": float("inf")},
        {"max_error": 1.0, "step_size": 1.0},
        {"max_error": 1.0, "dead_zone": 0.7},
        {"dead_zone": 0.4},
        {"dead_zone": 1.1},
        {"scale": "tensor"},
        {"entropy": "lz"},
        {"logical": "float17"},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(InvalidInputError):
        LCCodec(**settings)


def test_a_dead_zone_alone_says_that_values_may_err():
    codec = LCCodec(dead_zone=0.8)
    assert (codec.quantizer, codec.bits) == ("linear", 8)
    assert LCCodec(dead_zone=0.5).quantizer == "lossless"  # what it is where none is given


@pytest.mark.parametrize(
    "codec",
    [
        LCCodec("lossless"),
        LCCodec(step_size=0.25),
        LCCodec(bits=16),
        LCCodec(max_error=0.01),
        LCCodec("log"),
        LCCodec("exponent"),
        LCCodec(step_size=1e9),
    ],
    ids=repr,
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", ml_dtypes.bfloat16])
def test_values_are_decoded_into_memory_of_any_kind(codec, dtype):
    values = np.abs(np.random.default_rng(0).standard_normal((70, 1000))).cumsum(axis=1).astype(dtype)
    frame = codec.encode(values)
    wanted = codec.decode(frame)
    rows = np.full(values.shape, 7, dtype)
    columns = np.full(values.shape, 7, dtype, order="F")
    loose, odd = bytearray(values.nbytes), bytearray(values.nbytes + 1)
    every = np.full((2 * values.size,), 7, dtype)[::2]
    for out in (rows, columns, loose, memoryview(odd)[1:], every):
        codec.decode(frame, out=out)
    np.testing.assert_array_equal(rows.reshape(-1), wanted)
    np.testing.assert_array_equal(columns.reshape(-1, order="F"), wanted)
    np.testing.assert_array_equal(every, wanted)
    assert bytes(loose) == bytes(odd[1:]) == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8"])
def test_values_are_decoded_into_the_memory_of_their_frame(dtype):
    values = np.random.default_rng(0).integers(0, 9, 70_000).astype(dtype)
    frame = LCCodec("lossless").encode(values)
    room = np.zeros(max(values.nbytes, len(frame)) + 64, np.uint8)
    for place in (0, 64):
        room[place : place + len(frame)] = np.frombuffer(frame, np.uint8)
        out = room[: values.nbytes].view(dtype)
        assert LCCodec().decode(room[place : place + len(frame)], out=out) is out
        assert out.tobytes() == values.tobytes()


def test_nothing_of_a_damaged_frame_goes_into_memory_that_is_given():
    codec = LCCodec("lossless")
    frame = bytearray(codec.encode(np.random.default_rng(0).standard_normal(5000)))
    frame[-1] ^= 1
    out = np.full(5000, 7.0)
    with pytest.raises(CorruptionError):
        codec.decode(bytes(frame), out=out)
    assert (out == 7).all()


@pytest.mark.parametrize("wrong", ["0.1", True, 0, -1.0, float("nan"), float("inf"), [0.1]])
def test_a_bound_that_is_no_positive_number_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="positive and finite number"):
        LCCodec(max_error=wrong)


@pytest.mark.parametrize("bits", [2.5, True, "4", 0, 99])
def test_bits_are_a_whole_number(bits):
    with pytest.raises(InvalidInputError, match="takes whole ones"):
        LCCodec(bits=bits)


def test_a_masked_array_is_refused():
    with pytest.raises(InvalidInputError, match="lose its mask"):
        LCCodec().encode(np.ma.array([1.0, 2.0], mask=[True, False]))
