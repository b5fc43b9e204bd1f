"""One broker under administration, load and faults all at once: what ends a node or loses data is found here.

`workload` does, with the operations of a `mix`; `machine` runs the broker and knows that it never fails;
`promises` knows what was acknowledged and what may be lost all the same; `campaign` runs many seeds.
"""
