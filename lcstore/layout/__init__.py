"""The layout room says which tensor lies where: pools, their chunks, shards of tensors, and all that as JSON.

A layout is made of what the state room says of a nest; it is joined from those of several writers. It never
knows storage, keys, steps or frames.
"""
