"""Training frameworks, one thin file each: they keep their trainer and their savers.

What those save goes into a coordinated checkpoint like everything else: hashed, sealed, judged,
walked back from. Nothing here is imported unless a script asks for it.
"""
