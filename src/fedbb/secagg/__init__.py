"""Secure aggregation: sums over clients that hide each client's vector, by masks or by BFV.

`masked/` implements pairwise masks (Bonawitz et al., 2017), `bfv/` homomorphic encryption; both use
`primitives/` and `protocol/`. Research code: the protocol is published and the primitives are those
of libraries, but nobody has audited their combination here. Do not rely on it where lives or laws
depend on it.
"""
