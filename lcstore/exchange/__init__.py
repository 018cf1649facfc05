"""Files of other tools: states of a store become one, and files become states.

Takes snapshots and gives files, and the other way round. Knows formats of files, and how the names of tensors
are written in them. Never knows keys, frames, or how a save is coded.
"""
