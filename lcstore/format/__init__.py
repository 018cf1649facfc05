"""Keys, records and metadata as typed values and as bytes. Nothing here reads or writes storage."""
