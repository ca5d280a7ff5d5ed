"""A static reader of launch scripts and configurations: what cannot work is told before anything starts.

Nothing that is read here is run. What cannot be known from the text is left alone: a false alarm on a right
script costs more than a miss.
"""
