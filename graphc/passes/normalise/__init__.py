"""From what was traced to few plain ops: state, gradients, folding, identities, dead and equal
nodes.
"""
