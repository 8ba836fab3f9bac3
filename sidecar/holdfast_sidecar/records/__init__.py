"""What the parts tell each other through the store: plain records, one file per part.

Everything is level, not event: a report says what is so now, the plan says what shall be, and
whoever missed a wake-up reads the same truth a moment later.
"""
