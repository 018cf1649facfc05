"""Where bytes are kept: the backend contract, and local directories, memory and fsspec targets behind it."""
