"""The training processes of this node: their pages, deaths, silence and stacks, and ending them."""
