"""The sidecar's end of the death watch: a child waits for the mutexes that ranks hold for life.

Its word is a reason to look, never the verdict: a program that replaces itself lets go as well.
"""


# .
