"""The commands: one file for each, named as the command that a user types, with the one that undoes it.

So a command may share its name with the file of the library that does its work. Each imports what it needs
when it runs: ``lcstore --help`` loads none of it. What all of them share is in `lcstore.terminal`.
"""
