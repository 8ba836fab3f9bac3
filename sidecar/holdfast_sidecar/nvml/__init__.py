"""What NVIDIA's management library (NVML) tells of GPUs, asked in disposable children.

A call may hang for ever, so nothing in the sidecar's own process makes one. One child reads,
another waits for events.
"""
