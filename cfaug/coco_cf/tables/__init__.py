"""The tables and figures of a paper, from runs: its layout, its own numbers, and ours beside them.

The paper's numbers and ours never share a column: each has its own part, whose header says where it
was measured.
"""
