"""The graph room takes the names of nodes and edges, as a listing gives them.

The room gives the cheapest path from the root to a node, the latest node, the revisions of a step, what lies
above and below a node, and the plan of a compaction. It never knows bytes, arrays, pools, storage or clocks.
"""
