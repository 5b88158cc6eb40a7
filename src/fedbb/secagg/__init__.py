"""Sums over clients that show nobody's part: masked by pairs (Bonawitz 2017), or encrypted (BFV).

Research code. The protocol is a published one and its primitives are library ones, but nobody has
audited how they are put together here: do not let lives or laws depend on it.
"""
