"""Checkpoints of training frameworks in a store: each module here needs the framework that it is called after."""
