"""Looking for damage, in everything that a store holds. Reads only."""
