"""Objects, names and commits: how states become visible, stay whole and are found again.

Takes states and gives them back over any backend, one content-named record per commit. Knows every key and
record; never knows the arithmetic of values, clocks as policy, or any training framework.
"""
