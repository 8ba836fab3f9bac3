"""A libnvidia-ml.so.1 without a GPU: C code that the real nvidia-ml-py loads.

Its whole state is one file that every process maps, so that a test or a demonstration turns a knob
and whoever has the library loaded sees it at the next call.
"""
