"""The specification: one function per operation, with its signature and docstring.

A primitive looks up the backend of its first array and calls the function of the same name there. A derived
function is written once, here, in primitives.
"""
