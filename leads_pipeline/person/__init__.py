"""Who is meant: what an address, a number and a name are as keys, and which leads show them. No input or output.

Belongs here: keys of what people write, and whose lead a row is. Doesn't: files (privacy/),
people as hashes in the warehouse (warehouse/people.py).
"""
