"""What commands share: their arguments, the store that they open, tables, one answer, and errors as one line.

Takes what a user types, and prints what a store says, so that nothing in it steers the terminal. Knows no
command.
"""
