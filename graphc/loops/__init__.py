"""The scalar and loop language: expressions, loop nests, facts about them, and vector math
written in them.
"""
