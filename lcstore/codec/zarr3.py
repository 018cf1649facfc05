"""`LCCodec` as a Zarr v3 array-to-bytes codec (a serializer)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from zarr.abc.codec import ArrayBytesCodec
from zarr.registry import register_codec

from lcstore.codec.lc import LCCodec, Placed
from lcstore.errors import CorruptionError

#: What the arrays of a store have in their configuration, if anything.
_OF_STORES: Final = frozenset({"quantizer", "logical"})


@dataclass(frozen=True)
class LCZarrCodec(ArrayBytesCodec, metaclass=Placed):  # type: ignore[misc,unused-ignore]
    """Zarr v3 serializer. Use as ``zarr.create_array(..., serializer=LCZarrCodec(...), compressors=None)``.

    Parameters
    ----------
    configuration
        The parameters of `LCCodec`; those that have the values of ``"linear"`` are not kept.
    """

    configuration: dict[str, Any] = field(default_factory=dict)
    is_fixed_size = False

    def __init__(self, configuration: dict[str, Any] | None = None, **parameters: Any) -> None:
        config = LCCodec(**{**(configuration or {}), **parameters}).get_config()
        usual = LCCodec(config["quantizer"]).get_config() | {"quantizer": "linear"}
        kept = {key: value for key, value in config.items() if value != usual[key]}
        object.__setattr__(self, "configuration", kept or {"quantizer": "linear"})

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.configuration.items())))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LCZarrCodec:
        """Make the codec from Zarr metadata. Where nothing says how large errors may be, there are none.

        The grids of a store have an empty configuration. Nobody writes to them in this way, and a frame says
        what it is to whoever reads.
        """
        said = data.get("configuration")
        return cls({"quantizer": "linear", **said}) if said else cls()

    def to_dict(self) -> dict[str, Any]:
        """Return the codec's Zarr metadata."""
        return {"name": LCCodec.codec_id, "configuration": dict(self.configuration)}

    def validate(self, **_parameters: Any) -> None:
        """Accept any array: what cannot be coded as configured is stored without loss."""

    def compute_encoded_size(self, input_byte_length: int, _chunk_spec: Any) -> int:
        """Refuse: the size depends on the values."""
        raise NotImplementedError("the coded size depends on the values")

    def _encode_sync(self, chunk_array: Any, chunk_spec: Any) -> Any:
        # Zarr v3 chunks are in C order, but may arrive as views of anything.
        array = np.ascontiguousarray(chunk_array.as_numpy_array())
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        return chunk_spec.prototype.buffer.from_bytes(self._codec().encode(array))

    def _decode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        data = memoryview(chunk_bytes.as_numpy_array()).cast("B")
        count = int(np.prod(chunk_spec.shape, dtype=object)) if chunk_spec.shape else 1
        values = self._codec().decode_frame(data, count, shorter=self._may_end(chunk_spec))
        native = chunk_spec.dtype.to_native_dtype()
        if values.dtype != native.newbyteorder("="):
            raise CorruptionError(f"the chunk holds {values.dtype}, its array {native}")
        values = values.astype(native, copy=False).reshape(chunk_spec.shape)
        return chunk_spec.prototype.nd_buffer.from_numpy_array(values)

    def _codec(self) -> LCCodec:
        return LCCodec(**{"quantizer": "linear", **self.configuration})

    def _may_end(self, chunk_spec: Any) -> bool:
        """Return whether a chunk may be the last one of an array that a store wrote, which is not padded."""
        return len(chunk_spec.shape) == 1 and self.configuration.keys() <= _OF_STORES

    async def _encode_single(self, chunk_array: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._encode_sync, chunk_array, chunk_spec)

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)


register_codec(LCCodec.codec_id, LCZarrCodec)
