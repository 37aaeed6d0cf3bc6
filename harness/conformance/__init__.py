"""Conformance: measurements that compare the emulator with a GPU.

For every instruction form in the registry, a GPU runs the real instruction and the emulator runs its model. The result
is a line of `ledger.jsonl`. Each form is compared in two ways:

- `ptxdiff.emulate` on the host is compared with the instruction's results, fetched from the device. This tests the
emulator as users call it, including parser and machine, on about a million inputs.
- The form's scalar definition is compared with the instruction, both on the device. One kernel contains numba's LLVM
code of the definition and the instruction as LLVM inline assembly; it makes its own inputs and reports only
differences. This is fast enough for all 2^32 inputs.

| module | contents |
|---|---|
| `forms` | snippets of inline asm for the forms of the registry, one or more for each |
| `inputs` | inputs: edges, strata, all |
| `kernels` | PTX and cubins from snippets |
| `cuda` | the necessary calls of the driver, without a package |
| `fetch` | the interface of a device for a campaign, and its implementation for a GPU |
| `measure` | measurement of one snippet |
| `campaign` | measurement of all forms on all cores within a time budget |
| `product_forms` | the forms of products: mma, dense, sparse and scaled; wgmma |
| `products`, `sparse_tiles`, `group_products` | products of matrices on tiles: mma; tiles of sparse matrices; wgmma |
| `group_rounds` | wgmma on very many tiles, compared by the GPU |
| `product_campaign` | measurement of all products on all cores and GPUs within a time budget |
| `triples` | `fma.rn.f16x2` on all triples of float16 |
| `ledger` | the ledger file, a form's entry, and whether the entry is out of date |
| `bounds` | the ISA's error bounds of approximate instructions |
| `errors` | the largest errors of approximate instructions over all inputs |
| `fit` | the coefficients of the special function unit, fitted to a GPU's results |
| `taught`, `teaching` | which forms of machine instructions are believed, and the kernels by which ptxas teaches them |
"""
