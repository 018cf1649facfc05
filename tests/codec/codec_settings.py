"""Settings of the codec that tests go through, and what they compare by."""

from __future__ import annotations

import ml_dtypes
import numpy as np

FLOATS = [np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32), np.dtype(np.float64)]
SETTINGS = [
    {},
    {"step_size": 0.25},
    {"step_size": 2.0**-40},
    {"max_error": 1e-3},
    {"bits": 3, "scale": "block"},
    {"dead_zone": 0.9},
    {"entropy": "runs"},
    {"entropy": "symbol", "bits": 2},
    {"quantizer": "exponent", "bits": 2},
    {"quantizer": "exponent", "bits": 7, "entropy": "auto"},
    {"quantizer": "log", "bits": 0},
    {"quantizer": "log", "bits": 7},
    {"quantizer": "lossless"},
]


def there_and_back(codec, array):
    return codec.decode(codec.encode(array))


def bits_of(array):
    return np.ascontiguousarray(array).reshape(-1).view(f"V{array.itemsize}")


def assert_same_bits(a, b):
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(bits_of(a), bits_of(b))
