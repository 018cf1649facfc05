"""Training frameworks that save to a store: each module needs the framework that it is called after."""
