"""What `holdfast doctor` looks at, one file per part of the machine.

Nothing is changed: a directory that has to be made to see whether it can be is removed again.
"""
