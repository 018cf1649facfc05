"""`LCCodec`: quantize, promote, Huffman, as one numcodecs codec for any array."""

from __future__ import annotations

import math
from abc import ABCMeta
from typing import Any

import ml_dtypes
import numpy as np
from numcodecs.abc import Codec
from numcodecs.compat import ensure_contiguous_ndarray, ndarray_copy
from numcodecs.registry import register_codec

from lcstore.arrays import Array
from lcstore.codec import values as v
from lcstore.codec.predicted import encode_predicted
from lcstore.codec.predictors import Predictor, choose
from lcstore.coders import format as f
from lcstore.coders.stepsize import StepSize
from lcstore.coders.tables import TableCache
from lcstore.dtypes import DTYPE_NAMES, LOSSY_DTYPES, dtype_from_name, dtype_name
from lcstore.errors import CorruptionError, InvalidInputError
from lcstore.frames.fill import working
from lcstore.frames.frame import Frame, Framed, parse_frame
from lcstore.frames.lossless import encode_lossless
from lcstore.frames.pieces import Pieces
from lcstore.kernels import quantize

#: By quantizer: bits where none are given, the fewest and the most.
_BITS = {"linear": (8, 1, 48), "exponent": (3, 1, 7), "log": (1, 0, 7), "lossless": (0, 0, 64)}
_ENTROPIES = ("auto", "symbol", "pack", "runs")

#: Where a bound leaves more than one part of so many, so many values are kept exactly to see what that takes.
_HARDLY, _SAMPLE = 8, 1 << 16


class Placed(ABCMeta):
    """The type of codecs that are serializers in Zarr v3.

    Zarr refuses a codec in the wrong place with the name of its class, which therefore tells the right one.
    """

    def __repr__(cls) -> str:
        return (
            f"<class '{cls.__module__}.{cls.__qualname__}', which Zarr v3 takes as "
            'serializer={"name": "lcstore.lc", "configuration": {...}}, with compressors=None>'
        )


class LCCodec(Codec, metaclass=Placed):  # type: ignore[misc]
    """Lossy codec for floating-point arrays: quantize, promote the levels that matter, Huffman-code.

    Decoding needs no parameters: a frame says everything. Arrays that a setting cannot code as promised
    (a bound finer than the dtype, integers of other widths, NaN and infinity but with one linear step size
    for all) are stored without loss, never wrongly. Instances are immutable and may be used by several
    threads.

    Parameters
    ----------
    quantizer
        ``"linear"``: multiples of a step size. ``"exponent"``: buckets of equal sign and
        exponent, the ``2**bits - 1`` largest kept, each decoded to the middle of its range, the rest to zero
        (LC-Checkpoint, ICML 2020). ``"log"``: values that are not negative, on a logarithmic scale.
        ``"lossless"``: every bit comes back. Where it is not given: ``"linear"`` with `bits`, `step_size`,
        `max_error`, `dead_zone` or `scale`, and ``"lossless"`` where nothing says how large errors may be.
    bits
        ``linear``: bits that a typical value is to take, which sets the step size if none is given (default
        8): errors are a part of the values' size, so of what lies far from zero little is left.
        ``exponent``: bits of a bucket id, 1 to 7 (default 3). ``log``: mantissa bits kept, 0 to
        7 (default 1).
    step_size
        ``linear``: the step size; rounded down to a power of two.
    max_error
        ``linear``: every finite value comes back within this distance, NaN and infinity as they are. Excludes
        `step_size` and `dead_zone`.
    dead_zone
        ``linear``: magnitude, in step sizes, from which a value is rounded away from zero: 0.5 (to nearest)
        to 1.
    scale
        ``linear`` without a step size: ``"frame"`` for one, ``"block"`` for one per 1,024 values.
    predictor
        ``linear`` with one step size: ``"auto"`` tells levels by their neighbours in the array where a sample
        says that this saves bytes, as it does for smooth fields; ``"none"`` never does.
    entropy
        ``"auto"``; ``"symbol"`` for one Huffman code per value, as in the paper; ``"pack"`` and ``"runs"``
        force a coder.
    logical
        Name of the floating dtype (such as ``"bfloat16"``) that unsigned integers given to this codec stand
        for: Zarr has no such dtypes, and stores their bits.

    Raises
    ------
    InvalidInputError
        A parameter makes no sense.

    Examples
    --------
    >>> import numpy as np
    >>> import lcstore
    >>> codec = lcstore.LCCodec(max_error=0.01)
    >>> x = np.linspace(-1, 1, 1000, dtype="float32")
    >>> y = codec.decode(codec.encode(x))
    >>> bool(np.abs(x - y).max() <= 0.01)
    True
    """

    codec_id = "lcstore.lc"

    def __init__(
        self,
        quantizer: str | None = None,
        bits: int | None = None,
        step_size: float | None = None,
        max_error: float | None = None,
        dead_zone: float = 0.5,
        scale: str = "frame",
        entropy: str | None = None,
        logical: str | None = None,
        predictor: str = "auto",
    ) -> None:
        if quantizer is None:
            told = not (bits is step_size is max_error is None and scale == "frame" and dead_zone == 0.5)
            quantizer = "linear" if told else "lossless"
        self.quantizer = _one_of("quantizer", quantizer, tuple(_BITS))
        self.bits = _bits(quantizer, bits)
        self.step_size = _positive("step_size", step_size)
        self.max_error = _positive("max_error", max_error)
        self.dead_zone = float(dead_zone)
        self.scale = _one_of("scale", scale, ("frame", "block"))
        self.entropy = None if entropy is None else _one_of("entropy", entropy, _ENTROPIES)
        self.logical = logical
        self.predictor = _one_of("predictor", predictor, ("auto", "none"))
        if quantizer != "linear" and (step_size is not None or max_error is not None):
            raise InvalidInputError(
                f"step_size and max_error belong to quantizer 'linear', not {quantizer!r}"
            )
        if max_error is not None and (step_size is not None or dead_zone != 0.5):
            raise InvalidInputError("max_error sets the step size and the dead zone itself: give it alone")
        if not 0.5 <= self.dead_zone <= 1:
            raise InvalidInputError(f"dead_zone is {dead_zone}; it is 0.5 to 1 step sizes")
        if logical is not None and logical not in DTYPE_NAMES:
            raise InvalidInputError(f"logical is {logical!r}; it is one of {', '.join(DTYPE_NAMES)}")
        self._prepare()

    def _prepare(self) -> None:
        self._logical = None if self.logical is None else dtype_from_name(self.logical)
        self._cache = TableCache()

    def __getstate__(self) -> dict[str, Any]:
        return {k: w for k, w in self.__dict__.items() if not k.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={w!r}" for k, w in self.get_config().items() if k != "id" and w is not None)
        return f"LCCodec({shown})"

    def __getitem__(self, _place: int) -> None:
        """Refuse, in a sentence: Zarr v3 takes a codec that it does not know for a list of codecs."""
        raise InvalidInputError(f"a codec is no list of codecs: this is a {type(self)}")

    def encode(self, buf: Any) -> bytes:
        """Code an array (flattened in memory order) as one frame.

        Raises
        ------
        InvalidInputError
            The dtype cannot be stored, or is not in the machine's byte order; the array is masked.
        """
        if isinstance(buf, np.ma.MaskedArray):
            raise InvalidInputError("it would lose its mask: give array.filled(value), and keep array.mask")
        array = np.asarray(memoryview(buf) if isinstance(buf, bytes | bytearray) else buf)
        dtype_name(array.dtype)
        if not array.dtype.isnative:
            # Zarr v2 takes the bytes that come back for the array's own; a frame does not say their order.
            raise InvalidInputError(
                f"dtype {array.dtype} has its bytes in the other order: "
                "array.astype(array.dtype.newbyteorder('=')) has them in this machine's. An array of Zarr v2 "
                f"is made with dtype={array.dtype.newbyteorder('=').str!r}"
            )
        flat = np.ascontiguousarray(array.reshape(-1, order="A"))
        if self._logical is not None and flat.dtype == _bits_of(self._logical):
            flat = flat.view(self._logical)
        backward = array.flags.f_contiguous and not array.flags.c_contiguous
        frame = self._lossy(flat, array.shape[::-1] if backward else array.shape)
        if frame is None or len(frame) > flat.nbytes or self._takes_more(flat, len(frame)):
            lossless = bytes(encode_lossless(Pieces.of(flat)))
            frame = lossless if frame is None or len(lossless) < len(frame) else frame
        return frame

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Decode a frame to a one-dimensional array, or into `out`, an array or buffer of as many bytes.

        Raises
        ------
        CorruptionError, UnsupportedFormatError, LimitError
            The bytes are not a frame that this version can decode.
        """
        data = ensure_contiguous_ndarray(buf).reshape(-1).view(np.uint8).data
        if out is None:
            return self.decode_frame(data)
        # numpy gives no buffer of a dtype that is not its own.
        bits: Any = out.view(_bits_of(out.dtype)) if isinstance(out, np.ndarray) else out
        place = memoryview(bits)
        room = place.nbytes
        frame = parse_frame(data, room=room)
        nbytes = frame.count * frame.dtype.itemsize
        if nbytes != room:
            raise CorruptionError(f"the frame holds {nbytes} bytes of values instead of {room}")
        if place.contiguous and not place.readonly:
            into = ensure_contiguous_ndarray(bits).reshape(-1).view(np.uint8).view(frame.dtype)
            # Kernels are compiled for aligned arrays; and a frame that is written over does not decode.
            if into.flags.aligned and not np.may_share_memory(into, np.frombuffer(data, np.uint8)):
                v.decode_into(frame, into)
                return out
        ndarray_copy(self._restore(frame), bits)
        return out

    def decode_frame(
        self, data: memoryview | bytes, expected: int | None = None, *, shorter: bool = False
    ) -> Array:
        """Decode a frame that must hold `expected` elements (any number if None).

        With `shorter` it may hold fewer, and zeros follow: stores do not pad the last chunk of an array.
        """
        values = self._restore(parse_frame(data, expected=expected, shorter=shorter))
        if expected is not None and values.size < expected:
            values = np.concatenate((values, np.zeros(expected - values.size, values.dtype)))
        return values

    def _restore(self, frame: Frame) -> Array:
        values = v.decode_values(frame)
        if self._logical is not None and frame.dtype == self._logical:
            return values.view(_bits_of(frame.dtype))
        return values

    def _lossy(self, flat: Array, shape: tuple[int, ...]) -> bytes | None:
        """Code as configured; None where only a lossless frame keeps the promise."""
        if self.quantizer == "lossless" or not flat.size:
            return None
        if flat.dtype in (np.int32, np.int64):
            return v.encode_integers(flat, entropy=self.entropy or "auto", cache=self._cache)
        if flat.dtype.name not in LOSSY_DTYPES:
            return None
        flat = Pieces.of(flat).whole  # may be written to: kernels would be compiled anew for what may not
        if self.quantizer == "exponent":
            return v.encode_exponent(flat, self.bits, entropy=self.entropy or "symbol", cache=self._cache)
        if self.quantizer == "log":
            made = v.encode_log(flat, self.bits, entropy=self.entropy or "auto", cache=self._cache)
            return made and made.data
        if self.max_error is not None:
            return self._bounded(flat, shape, self.max_error)
        if self.scale == "block" and self.step_size is None:
            made = self._linear(flat, self._exponents(flat))
            return made and made.data
        return self._stepped(flat, shape, self._step(flat))

    def _takes_more(self, flat: Array, nbytes: int) -> bool:
        """Return whether values that are coarse beside the bound take less exactly, as a sample says."""
        if self.max_error is None or _HARDLY * nbytes < flat.nbytes:
            return False
        sample = flat[:_SAMPLE].copy()
        return len(encode_lossless(Pieces.of(sample))) * flat.size < nbytes * sample.size

    def _step(self, flat: Array) -> StepSize:
        if self.step_size is not None:
            return StepSize(StepSize.at_most(self.step_size).exponent)
        return StepSize(v.exponent_for(v.robust_scale(flat), self.bits))

    def _exponents(self, flat: Array) -> Array:
        size = 1 << f.BLOCK
        scales = [v.robust_scale(flat[at : at + size]) for at in range(0, flat.size, size)]
        return np.array([v.exponent_for(scale, self.bits) for scale in scales], np.int16)

    def _stepped(
        self, flat: Array, shape: tuple[int, ...], step: StepSize, bound: float = math.inf
    ) -> bytes | None:
        """Code with one step size; None where a value would come back farther away than the bound."""
        predictor = Predictor()
        if self.predictor == "auto":
            predictor = choose(working(flat), shape, step.size, between=bound < math.inf)
        if not predictor.shape:
            made = self._linear(
                flat, np.full(-(-flat.size >> f.BLOCK), step.exponent, np.int16), step.mantissa
            )
            if made is not None:
                return made.data if _is_near(flat, made, bound) else None
        return encode_predicted(
            flat,
            step,
            predictor,
            rounding=1 - self.dead_zone,
            bound=bound,
            entropy=self.entropy or "auto",
            cache=self._cache,
        )

    def _linear(self, flat: Array, exponents: Array, mantissa: int = 0) -> Framed | None:
        return v.encode_linear(
            Pieces.of(flat),
            exponents,
            mantissa=mantissa,
            threshold=self.dead_zone,
            entropy=self.entropy or "auto",
            cache=self._cache,
        )

    def _bounded(self, flat: Array, shape: tuple[int, ...], bound: float) -> bytes | None:
        """Code within the bound, and prove it: values are rounded to the dtype besides."""
        for step in _steps_within(flat, bound):
            frame = self._stepped(flat, shape, step, bound)
            if frame is not None:
                return frame
        return None


def _steps_within(flat: Array, bound: float) -> list[StepSize]:
    """Return step sizes to be tried in turn, the largest first.

    What is restored is rounded to the dtype. Powers of two need no room for that, where levels are few.
    """
    power = math.frexp(bound)[1]
    powers = [StepSize(power - less) for less in range(3)]
    finest = float(_eps(flat.dtype))
    room = 2 * bound - 1.01 * finest * _largest(flat, bound / finest)
    any_size = [StepSize.at_most(room)] if room > 0 else []
    return [step for step in sorted({*any_size, *powers}, reverse=True) if step.allowed]


def _eps(dtype: np.dtype[Any]) -> Any:
    finfo: Any = ml_dtypes.finfo
    return finfo(dtype).eps


def _largest(flat: Array, limit: float) -> float:
    """Return the largest magnitude that is no more than a limit; about that of 0 without one."""
    ends = working(flat)
    top = float(max(ends.max(), -ends.min()))
    if top <= limit:
        return top
    with np.errstate(invalid="ignore"):  # a NaN may be a signalling one
        sizes = np.abs(ends.astype(np.float64))
    return float(sizes[sizes <= limit].max(initial=0.0))


def _is_near(flat: Array, made: Framed, bound: float) -> bool:
    """Return whether all values come back within a distance."""
    if bound == math.inf:
        return True
    worst = np.zeros(1)
    for at, part in v.values_back(made):
        quantize.linear_errors(working(flat[at : at + part.size]), working(part), worst)
        if not worst[0] <= bound:
            return False
    return True


def _bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the unsigned integers that hold the bits of `dtype`."""
    return np.dtype(f"V{dtype.itemsize}" if dtype.itemsize > 8 else f"u{dtype.itemsize}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise InvalidInputError(f"{name} is {value!r}; it is one of {', '.join(allowed)}")
    return value


def _bits(quantizer: str, bits: int | None) -> int:
    default, low, high = _BITS[quantizer]
    value = default if bits is None else bits
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInputError(
            f"bits is {bits!r}; quantizer {quantizer!r} takes whole ones, {low} to {high}"
        )
    return int(value)


def _positive(name: str, value: object) -> float | None:
    if value is None:
        return None
    if (
        not isinstance(value, int | float | np.number)
        or isinstance(value, bool)
        or not (math.isfinite(value) and value > 0)
    ):
        raise InvalidInputError(f"{name} is {value!r}; it must be a positive and finite number")
    return float(value)


register_codec(LCCodec)
