"""Work done side by side: how long it is waited for, and what becomes of it when a program ends."""
