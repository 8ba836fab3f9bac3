"""This node's snapshot slots: room for them, handing them out, what lies in them."""
