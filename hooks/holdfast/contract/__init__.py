"""All that a sidecar may import of the hooks: page, identity, environment, files, storage."""
