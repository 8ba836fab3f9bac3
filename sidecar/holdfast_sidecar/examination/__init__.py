"""What `holdfast doctor` looks at, one file per part of the machine.

Nothing is changed, except that a configured directory which does not exist yet is made.
"""
