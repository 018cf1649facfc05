"""What a store holds: one listing, the graph, marks. Only this room enumerates record folders."""
