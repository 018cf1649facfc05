"""lcstore within the training loops of other libraries: a module for each, for whoever imports it."""
