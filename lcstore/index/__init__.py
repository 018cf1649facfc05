"""What a store holds: listings, records, the graph, marks. Only this room enumerates record folders."""
