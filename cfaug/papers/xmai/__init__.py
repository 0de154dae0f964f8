"""XMAI: text pairs before and after a change, insertion of attributes, retrieval and entailment."""
