"""What is kept, and for how long.

Takes plain facts about the committed states of a store, and gives the decision which of them to keep, which
to strip and which exact values to let go. Knows steps, times, metrics and tags; never knows keys, frames or
where bytes lie, and the retention rules have neither I/O nor a clock.
"""
