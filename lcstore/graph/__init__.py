"""The graph room takes the names of nodes and edges, as a listing gives them.

It gives the cheapest path from the root to a node, the latest node, the revisions of a step, and what lies
above and below a node. It never knows bytes, arrays, storage, clocks, or the format of a key.
"""
