"""States as files that are made when they are read: an fsspec filesystem, and Zarr hierarchies.

Nothing here is written anywhere. A range of a file is decoded from the chunks that it lies in, and from no
others; sizes and headers come from the layout alone.
"""
