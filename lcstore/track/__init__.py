"""What a reader would restore, held by the writer as integers: the track.

Takes the tensors of a state with their layout, and gives coded chunks; takes coded chunks along a path of
edges, and gives tensors back. Knows values, grids and steps of the quantizer; never knows keys, commits or
where bytes lie.
"""
