"""The state room takes nested user states: dicts, lists and tuples of any library's tensors and plain data.

It gives a JSON structure, a flat list of host arrays, a list of plain values, and a guess of what each tensor
is, and it puts all of that together again. It never knows storage, keys, steps, grids or frames, and it never
runs or imports anything that a stored value names.
"""
