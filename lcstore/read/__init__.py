"""Looking at states: one state, one tensor, a walk over many, differences."""
